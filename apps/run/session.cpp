#include "apps/run/session.h"

#include <algorithm>
#include <cmath>

#include "amp/run_state.h"
#include "apps/catalog/datasets.h"
#include "apps/catalog/infer.h"
#include "apps/catalog/losses.h"
#include "apps/catalog/metrics.h"
#include "apps/catalog/optimizers.h"
#include "framework/backend/backend.h"
#include "framework/io/stored_json.h"

namespace halfstep::app {
namespace {

Json optional(const std::optional<double>& v) { return v ? Json(*v) : Json(); }

RunParts parts_of(Session& s) { return {*s.model, s.optimizer.get(), &s.scaler, s.schedule.get()}; }

// A config whose data was not there to infer from when it was checked.
void infer_from(Config& config, const Dataset& data) {
  if (config.facts) return;
  const DataFacts facts = facts_of(data);
  Issues issues;
  InferredModel inferred = infer_model(config.model, facts, config.low, "model", issues);
  if (inferred.output) check_loss(config.loss, inferred, facts, issues);
  check_metrics(config.metrics, facts.targets(), issues);
  issues.raise("the config", {});
  config.model = inferred.model;
}

}  // namespace

std::unique_ptr<DataLoader> make_loader(const Config& config, const std::string& split) {
  const MemoryScope scope(MemoryTag::data);
  const LoaderSection& l = config.data.loader;
  const bool train = split == "train";
  const LoaderOptions options{.batch_size = l.batch_size,
                              .shuffle = train && l.shuffle,
                              .drop_last = train && l.drop_last,
                              .seed = config.seed,
                              .num_workers = l.num_workers,
                              .prefetch = l.prefetch,
                              .device = config.device};
  return std::make_unique<DataLoader>(build_dataset(config.json, split, config.device), options);
}

std::vector<NamedMetric> make_metrics(const Config& config, const Dataset& data) {
  return build_metrics(config.metrics, facts_of(data).targets());
}

ModelParts make_model(const Config& config) {
  ModelParts out;
  out.device = config.device;
  backend_for(out.device);
  set_allow_tf32(config.performance.tf32);
  manual_seed(config.seed);
  out.low = config.low;
  {
    const MemoryScope scope(MemoryTag::parameters);
    out.model = build_model(config.model);
    out.model->to(out.device);
  }
  out.loss = build_loss(config.loss);
  return out;
}

TrainStepOptions step_options(const Config& config) {
  const TrainSection& t = config.train;
  const std::optional<bool>& graph = config.performance.cuda_graph;
  return {.device = config.device,
          .amp = config.low.has_value(),
          .dtype = config.low.value_or(DType::bf16),
          .clip_grad_norm = t.clip_grad_norm.value_or(0.0),
          .clip_grad_value = t.clip_grad_value.value_or(0.0),
          .accumulate_steps = t.accumulate_steps,
          .graph = !graph   ? GraphMode::automatic
                   : *graph ? GraphMode::on
                            : GraphMode::off};
}

Session make_session(Config config) {
  backend_for(config.device);
  auto train = make_loader(config, "train");
  infer_from(config, train->dataset());
  Session s;
  static_cast<ModelParts&>(s) = make_model(config);
  s.train = std::move(train);
  s.metrics = make_metrics(config, s.train->dataset());
  if (config.data.has("val")) s.val = make_loader(config, "val");
  s.optimizer = build_optimizer(config.optimizer, *s.model);
  s.optimizer_text = s.optimizer->describe();
  s.scaler = GradScaler(config.scaler);

  const TrainSection& t = config.train;
  s.batches_per_epoch = std::min(s.train->size(), t.limit_batches.value_or(s.train->size()));
  s.steps_per_epoch = (s.batches_per_epoch + t.accumulate_steps - 1) / t.accumulate_steps;
  s.total_steps = t.epochs ? *t.epochs * s.steps_per_epoch : *t.max_steps;
  s.schedule = build_scheduler(config.scheduler, *s.optimizer, {s.steps_per_epoch, s.total_steps});
  return s;
}

CheckpointContents pack(Session& s, const Json& config, const Counters& n) {
  CheckpointContents out = halfstep::pack(parts_of(s));
  const LoaderState at = s.train->state();
  Json trainer = {{"steps", n.steps},
                     {"skipped", n.skipped},
                     {"samples", n.samples},
                     {"epoch_loss", n.epoch_loss},
                     {"epoch_samples", n.epoch_samples},
                     {"window_loss", n.window_loss},
                     {"window_samples", n.window_samples},
                     {"last_log_step", n.last_log_step},
                     {"last_eval_step", n.last_eval_step},
                     {"best", optional(n.best)},
                     {"best_step", n.best_step},
                     {"train_loss", optional(n.train_loss)},
                     {"val_loss", optional(n.val_loss)},
                     {"seconds", n.seconds}};
  for (const MetricValue& m : n.val_metrics) trainer["val_" + m.name] = m.value;
  out.meta["trainer"] = trainer;
  out.meta["loader"] = {{"epoch", at.epoch}, {"next_batch", at.next_batch}};
  out.meta["config"] = config;
  return out;
}

Counters unpack(const CheckpointContents& contents, Session& s) {
  const StoredJson meta = stored_meta(contents), t = meta.part("trainer"), loader = meta.part("loader");
  meta.part("generator");
  const int64_t steps = t.integer("steps", 0);
  Counters counters{.steps = steps,
                    .skipped = t.integer("skipped", 0),
                    .samples = t.integer("samples", 0),
                    .epoch_loss = t.number("epoch_loss"),
                    .epoch_samples = t.integer("epoch_samples", 0),
                    .window_loss = t.number("window_loss"),
                    .window_samples = t.integer("window_samples", 0),
                    .last_log_step = t.integer("last_log_step", -1, steps),
                    .last_eval_step = t.integer("last_eval_step", -1),
                    .best = t.number_or_null("best"),
                    .best_step = t.integer("best_step", -1, -1),
                    .train_loss = t.number_or_null("train_loss"),
                    .val_loss = t.number_or_null("val_loss"),
                    .val_metrics = {},
                    .seconds = t.number("seconds")};
  for (const NamedMetric& m : s.metrics) {
    const auto value = t.number_or_null("val_" + m.name);
    if (value) counters.val_metrics.push_back({m.name, *value, m.metric->is_share()});
  }
  const LoaderState at{loader.integer("epoch", 0), loader.integer("next_batch", 0)};
  halfstep::unpack(contents, parts_of(s));
  s.train->set_state(at);
  return counters;
}

int64_t stored_step(const CheckpointContents& contents) { return stored_meta(contents).part("trainer").integer("steps", 0); }

Json stored_config(const CheckpointContents& contents) {
  const StoredJson meta = stored_meta(contents);
  meta.part("config");
  return Json(meta.get("config"));
}

}  // namespace halfstep::app
