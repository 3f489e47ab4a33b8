#include "apps/run/session.h"

#include <algorithm>

#include "apps/build/datasets.h"
#include "apps/build/training_parts.h"
#include "apps/config/rules.h"
#include "framework/backend/backend.h"

namespace halfstep::app {
namespace {

void load_weights(Module& model, const TensorMap& tensors) {
  StateDict state;
  for (const auto& [name, tensor] : tensors) state.push_back({name, tensor});
  model.load_state_dict(state);
}

Json optional(const std::optional<double>& v) { return v ? Json(*v) : Json(); }
std::optional<double> optional(const Json& v) { return v.is_number() ? std::optional<double>(v.get<double>()) : std::nullopt; }

// A config whose data was not there to infer from when it was checked.
void infer_from(Config& config, const Dataset& data) {
  if (config.facts) return;
  const DataFacts facts{data.input_shape(), data.target_shape(), data.classes(), data.size()};
  Issues issues;
  InferredModel inferred = infer_model(config.json["model"], facts, "model", issues);
  if (inferred.output) check_loss(config.json["loss"], *inferred.output, facts, issues);
  issues.raise("the config", {});
  config.json["model"] = inferred.model;
}

}  // namespace

std::unique_ptr<DataLoader> make_loader(const Json& config, const std::string& split, Device device) {
  const MemoryScope scope(MemoryTag::data);
  const Json& l = config["data"]["loader"];
  const bool train = split == "train";
  const LoaderOptions options{.batch_size = l["batch_size"],
                              .shuffle = train && l["shuffle"] == true,
                              .drop_last = train && l["drop_last"] == true,
                              .seed = config["seed"],
                              .num_workers = l["num_workers"],
                              .prefetch = l["prefetch"]};
  return std::make_unique<DataLoader>(build_dataset(config, split, device), options);
}

ModelParts make_model(const Config& config) {
  const Json& c = config.json;
  ModelParts out;
  out.device = config_device(c);
  backend_for(out.device);
  set_deterministic(c["train"]["deterministic"]);
  set_allow_tf32(c["performance"]["tf32"]);
  manual_seed(c["seed"]);
  out.low = amp_dtype(c);
  {
    const MemoryScope scope(MemoryTag::parameters);
    out.model = build_model(c["model"]);
    out.model->to(out.device);
  }
  out.loss = build_loss(c["loss"]);
  return out;
}

Session make_session(Config config) {
  const Device device = config_device(config.json);
  backend_for(device);
  auto train = make_loader(config.json, "train", device);
  infer_from(config, train->dataset());
  const Json& c = config.json;
  Session s;
  static_cast<ModelParts&>(s) = make_model(config);
  s.train = std::move(train);
  if (!c["data"]["val"].is_null()) s.val = make_loader(c, "val", device);
  s.optimizer = build_optimizer(c["optimizer"], *s.model);
  s.optimizer_text = s.optimizer->describe();

  const Json &t = c["train"], &g = c["amp"]["scaler"];
  s.scaler = GradScaler({.init_scale = g["init_scale"],
                         .growth_factor = g["growth_factor"],
                         .backoff_factor = g["backoff_factor"],
                         .growth_interval = g["growth_interval"],
                         .enabled = scaler_enabled(c)});
  s.batches_per_epoch = s.train->size();
  if (!t["limit_batches"].is_null()) s.batches_per_epoch = std::min(s.batches_per_epoch, t["limit_batches"].get<int64_t>());
  const int64_t window = t["accumulate_steps"];
  s.steps_per_epoch = (s.batches_per_epoch + window - 1) / window;
  s.total_steps = t["epochs"].is_null() ? t["max_steps"].get<int64_t>() : t["epochs"].get<int64_t>() * s.steps_per_epoch;
  s.schedule = build_scheduler(c["scheduler"], *s.optimizer, s.steps_per_epoch, s.total_steps);
  return s;
}

CheckpointContents pack(const Session& s, const Json& config, const Counters& n) {
  CheckpointContents out;
  for (const NamedTensor& t : s.model->state_dict()) out.model[t.name] = t.tensor;
  for (const auto& [name, tensor] : s.optimizer->state_dict()) out.state["optimizer." + name] = tensor;
  const Generator::State random = default_generator().state();
  const LoaderState at = s.train->state();
  Json meta;
  meta["format"] = 1;
  meta["trainer"] = {{"steps", n.steps},
                     {"skipped", n.skipped},
                     {"samples", n.samples},
                     {"epoch_loss", n.epoch_loss},
                     {"epoch_samples", n.epoch_samples},
                     {"window_loss", n.window_loss},
                     {"window_samples", n.window_samples},
                     {"last_eval_step", n.last_eval_step},
                     {"best", optional(n.best)},
                     {"train_loss", optional(n.train_loss)},
                     {"val_loss", optional(n.val_loss)},
                     {"val_accuracy", optional(n.val_accuracy)},
                     {"seconds", n.seconds}};
  meta["generator"] = {{"seed", random.seed}, {"offset", random.offset}};
  meta["loader"] = {{"epoch", at.epoch}, {"next_batch", at.next_batch}};
  meta["scaler"] = s.scaler.state_dict();
  meta["schedule"] = s.schedule ? Json(s.schedule->count()) : Json();
  meta["config"] = config;
  out.meta = meta;
  return out;
}

Counters unpack(const CheckpointContents& contents, Session& s) {
  const nlohmann::json& meta = contents.meta;
  check<IoError>(meta.contains("trainer") && meta.contains("loader") && meta.contains("generator"), "resume",
                 "the checkpoint must have been written by `halfstep train`");
  load_weights(*s.model, contents.model);
  std::map<std::string, Tensor> moments;
  const std::string prefix = "optimizer.";
  for (const auto& [name, tensor] : contents.state) {
    if (name.starts_with(prefix)) moments[name.substr(prefix.size())] = tensor;
  }
  s.optimizer->load_state_dict(moments);
  if (s.scaler.is_enabled() && !meta["scaler"].empty()) s.scaler.load_state_dict(meta["scaler"].get<GradScaler::StateDict>());
  if (s.schedule && meta["schedule"].is_number()) s.schedule->set_count(meta["schedule"]);
  s.train->set_state({meta["loader"]["epoch"], meta["loader"]["next_batch"]});
  default_generator().set_state({meta["generator"]["seed"], meta["generator"]["offset"]});
  const Json t = meta["trainer"];
  return {.steps = t["steps"],
          .skipped = t["skipped"],
          .samples = t["samples"],
          .epoch_loss = t["epoch_loss"],
          .epoch_samples = t["epoch_samples"],
          .window_loss = t["window_loss"],
          .window_samples = t["window_samples"],
          .last_eval_step = t["last_eval_step"],
          .best = optional(t["best"]),
          .train_loss = optional(t["train_loss"]),
          .val_loss = optional(t["val_loss"]),
          .val_accuracy = optional(t["val_accuracy"]),
          .seconds = t["seconds"]};
}

}  // namespace halfstep::app
