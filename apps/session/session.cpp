// SPDX-License-Identifier: Apache-2.0
#include "apps/session/session.h"

#include <algorithm>
#include <cmath>

#include "apps/catalog/datasets.h"
#include "apps/catalog/infer.h"
#include "apps/catalog/losses.h"
#include "apps/catalog/metrics.h"
#include "apps/catalog/optimizers.h"
#include "apps/catalog/weights.h"
#include "apps/session/branch_names.h"
#include "apps/session/meta_step.h"
#include "apps/session/ranks.h"
#include "framework/backend/backend.h"
#include "framework/backend/dnn.h"
#include "framework/data/formats/read_once.h"
#include "framework/data/loading/permutation.h"
#include "framework/data/sets/split.h"
#include "framework/data/tables/csv_table.h"
#include "framework/data/transforms/statistics.h"

namespace halfstep::app {
namespace {

// Infers the model of a config whose data did not exist when it was checked; else does nothing.
void infer_missing_model(Config& config, const Dataset& data) {
  if (config.facts) return;
  const DataFacts& facts = config.facts.emplace(facts_of(data));
  Issues issues;
  InferredModel inferred = infer_model(config.model, facts, config, "model", issues);
  if (inferred.output) check_loss(config.loss, inferred, facts, config, issues);
  check_metrics(config.metrics, facts.targets(), issues);
  issues.raise("the config", {});
  config.model = inferred.model;
}

std::shared_ptr<const Sampler> make_sampler(const LoaderSection& loader, const Dataset& data, std::optional<int64_t> ignored) {
  const Json& options = loader.sampler;
  if (options.is_null()) return {};
  constexpr const char* kPath = "data.loader.sampler";
  try {
    if (options["type"] == "bucket") {
      std::vector<int64_t> lengths = data.lengths();
      check<ConfigError>(!lengths.empty(), kPath,
                         "bucket needs samples that differ in length, but this data has none: ", data.describe());
      return std::make_shared<BucketSampler>(std::move(lengths), loader.batch_size, options["window"]);
    }
    check<ConfigError>(data.classes() > 0, kPath, "weighted needs data with classes, got ", data.describe());
    const std::vector<int64_t> labels = class_labels(data);
    std::vector<double> weights;
    if (options["weights"] == "balanced")
      weights = balanced_weights(labels, ignored.value_or(kIgnoredClass));
    else
      for (const int64_t c : labels) weights.push_back(c == ignored ? 0.0 : options["weights"].at(size_t(c)).get<double>());
    return std::make_shared<WeightedSampler>(
        std::move(weights), options["num_samples"].is_null() ? 0 : int64_t(options["num_samples"]), options["replacement"]);
  } catch (const ValueError& e) { fail<ConfigError>(kPath, one_line(e)); }
}

}  // namespace

std::unique_ptr<DataLoader<>> make_loader(const Config& config, const std::string& split, const ProcessGroup* group,
                                          const DataForm* known) {
  const MemoryScope scope(MemoryTag::data);
  const LoaderSection& section = config.data.loader;
  const bool is_train = split == "train";
  const int rank = group ? group->rank() : 0, ranks = group ? group->size() : 1;
  const bool overfits = config.train.overfit_batches && split != "test";
  auto data = build_dataset(config.json, overfits ? "train" : split, config.device, known);
  if (overfits) {
    const auto seed = section.shuffle ? std::optional<uint64_t>(config.seed) : std::nullopt;
    return std::make_unique<DataLoader<>>(first_batches(std::move(data), *config.train.overfit_batches, section.batch_size, seed),
                                          LoaderOptions{.batch_size = section.batch_size,
                                                        .seed = config.seed,
                                                        .num_workers = section.num_workers,
                                                        .prefetch = section.prefetch,
                                                        .rank = rank,
                                                        .ranks = ranks,
                                                        .device = config.device,
                                                        .views = true});
  }
  const LoaderOptions options{.batch_size = section.batch_size,
                              .shuffle = is_train && section.shuffle,
                              .sampler = is_train ? make_sampler(section, *data, ignored_class(config.loss)) : nullptr,
                              .drop_last = is_train && section.drop_last,
                              .seed = config.seed,
                              .num_workers = section.num_workers,
                              .prefetch = section.prefetch,
                              .rank = rank,
                              .ranks = ranks,
                              .device = config.device,
                              .order = parse_generator_kind(config.generator),
                              .views = true};
  return std::make_unique<DataLoader<>>(std::move(data), options);
}

std::vector<NamedMetric> make_metrics(const Config& config, const Dataset& data) {
  const DataForm form = data.form();
  if (std::holds_alternative<SeriesForm>(form.source)) {
    bool has_last_values = true;  // transforms change the last value of a window
    for (const char* split : {"train", "val", "test"})
      has_last_values =
          has_last_values && (config.json["data"][split].is_null() || config.json["data"][split]["transforms"].empty());
    return build_number_metrics(config.metrics, form.names, has_last_values);
  }
  return build_metrics(config.metrics, facts_of(data).targets(), ignored_class(config.loss));
}

bool lay_out(Module& model, const Config& config) {
  constexpr int64_t kConvolutionDims = 4, kWideChannels = 16;  // kWideChannels: fewer gain nothing by the layout
  const auto is_wide = [](const Tensor& weight) { return weight.dim() >= kConvolutionDims && weight.size(1) >= kWideChannels; };
  const std::vector<Tensor> weights = model.parameters();
  const bool pays = config.device.is_cpu() && config.low == DType::bf16 && std::any_of(weights.begin(), weights.end(), is_wide);
  const bool channels_last = config.performance.channels_last.value_or(pays);
  if (channels_last) model.to(MemoryFormat::channels_last);
  return channels_last;
}

ModelParts make_model(const Config& config) {
  ModelParts out;
  out.device = config.device;
  backend_for(out.device);
  set_allow_tf32(config.performance.tf32);
  set_threads_independent(config.performance.threads_independent);
  set_dnn_options({.benchmark = config.performance.cudnn_benchmark, .workspace = config.performance.cudnn_workspace << 20});
  manual_seed(config.seed, parse_generator_kind(config.generator));
  out.low = config.low;
  out.region = config.region();
  {
    const MemoryScope scope(MemoryTag::parameters);
    out.model = build_model(config.model);
    out.model->to(out.device);
    set_precisions(*out.model, config);
    out.channels_last = lay_out(*out.model, config);
  }
  out.loss = build_loss(config.loss);
  return out;
}

TrainStepOptions step_options(const Config& config, ProcessGroup* group) {
  const TrainSection& t = config.train;
  const std::optional<bool>& graph = config.performance.cuda_graph;
  return {.device = config.device,
          .amp = config.low,
          .clip_grad_norm = t.clip_grad_norm.value_or(0.0),
          .clip_grad_value = t.clip_grad_value.value_or(0.0),
          .clip_grad_agc = t.clip_grad_agc.value_or(0.0),
          .grad_norm = t.grad_norm,
          .accumulate_steps = t.accumulate_steps,
          .graph = !graph   ? GraphMode::automatic
                   : *graph ? GraphMode::on
                            : GraphMode::off,
          .group = group,
          .reducer = {.bucket_mb = config.distributed.bucket_mb,
                      .wire = config.distributed.wire == "bfloat16" ? Wire::bf16 : Wire::as_is},
          .keeps_states = config.diagnostics.explain && config.device.is_cpu() && !group,
          .policies = config.policies};
}

namespace {

// Returns ", lr of groups 0.001, 0.0001" if groups have other rates than the first, which describe() prints.
std::string rates_of_groups(const Optimizer& optimizer) {
  std::string out = ", lr of groups ";
  bool rates_differ = false;
  for (size_t g = 0; g < optimizer.param_groups().size(); ++g) {
    const double rate = optimizer.initial_lr(g);
    if (g > 0 && rate == optimizer.initial_lr(g - 1)) continue;  // a group of biases without decay repeats the rate
    out += joined(g ? ", " : "", rate);
    rates_differ |= g > 0;
  }
  return rates_differ ? out : "";
}

}  // namespace

Session make_session(Config config, ProcessGroup* group, FirstValues values) {
  backend_for(config.device);
  const ReadCache<const CsvTable> tables;  // data.train and data.val may share them
  auto train = make_loader(config, "train", group);
  infer_missing_model(config, train->dataset());
  Session session;
  const int64_t batch = part_of_rank(planned_batch(config), group ? group->size() : 1);
  session.recomputation = choose_recomputation(config, batch, group);  // chosen before the model takes memory
  static_cast<ModelParts&>(session) = make_model(config);
  session.train = std::move(train);
  // Load weights before Lookahead is made, which copies the weights.
  session.form = session.train->dataset().form();
  if (values == FirstValues::with_files) {
    const auto data = [&] { return StoredData{session.form, prediction_transforms(with_statistics(config.json))}; };
    session.weights_read = load_weights(*session.model, config.model, "model", data);
  }
  recompute_activations(*session.model, config.train.checkpoint_activations);
  if (session.recomputation) recompute_modules(*session.model, session.recomputation->plan.modules);
  check_precisions(*session.model, config);
  if (config.distributed.sync_batch_norm) SyncBatchNorm::convert_sync_batchnorm(*session.model);
  session.metrics = make_metrics(config, session.train->dataset());
  if (config.data.has("val")) session.val = make_loader(config, "val", group, &session.form);
  session.optimizer = build_optimizer(config.optimizer, *session.model);
  session.optimizer_text = session.optimizer->describe() + rates_of_groups(*session.optimizer);
  if (group) share_states(*session.optimizer, config, *group);
  session.scaler = GradScaler(config.scaler);

  const TrainSection& t = config.train;
  session.batches_per_epoch = std::min(session.train->size(), t.limit_batches.value_or(session.train->size()));
  session.batches_per_step = t.accumulate_steps;
  session.steps_per_epoch = (session.batches_per_epoch + t.accumulate_steps - 1) / t.accumulate_steps;
  session.counts_epochs = t.epochs.has_value();
  session.total_steps = t.epochs ? *t.epochs * session.steps_per_epoch : *t.max_steps;
  session.followers = make_followers(t, *session.optimizer, session.total_steps);
  for (const auto& f : session.followers) {
    if (auto* const average = dynamic_cast<WeightAverage*>(f.get())) session.average = average;
    session.optimizer_text +=
        ", " + (t.swa.follows_epochs() && f.get() == session.average ? joined("SWA(start=", t.swa.start, ", every=1 epoch)")
                                                                     : f->describe());
  }
  if (session.total_steps > 0)
    session.schedule = build_scheduler(config.scheduler, *session.optimizer,
                                       {session.steps_per_epoch, session.total_steps, config.checkpoint.mode});
  return session;
}

std::vector<std::unique_ptr<Optimizer::Follower>> make_followers(const TrainSection& train, Optimizer& optimizer,
                                                                 int64_t total_steps) {
  std::vector<std::unique_ptr<Optimizer::Follower>> out;
  if (train.lookahead.enabled) out.push_back(std::make_unique<Lookahead>(optimizer, train.lookahead.slow));
  if (train.ema.enabled) out.push_back(std::make_unique<WeightAverage>(optimizer, train.ema.average));
  if (train.swa.enabled) {
    out.push_back(std::make_unique<WeightAverage>(optimizer, WeightAverageOptions{.equal = true,
                                                                                  .start = train.swa.steps_before(total_steps),
                                                                                  .every = train.swa.every.value_or(1),
                                                                                  .by_hand = train.swa.follows_epochs()}));
  }
  return out;
}

}  // namespace halfstep::app
