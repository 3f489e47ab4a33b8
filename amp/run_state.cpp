#include "amp/run_state.h"

#include <cmath>
#include <map>
#include <optional>
#include <string>

#include "amp/grad_scaler.h"
#include "layers/module.h"
#include "layers/recurrent.h"
#include "layers/save.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"

namespace halfstep {
namespace {

constexpr int kFormat = 1;
const std::string kOptimizer = "optimizer.", kKept = "kept.";  // before the names of their tensors

GradScaler::StateDict scaler_state(const StoredJson& stored) {
  GradScaler::StateDict out;
  for (const char* key : {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"}) {
    out[key] = stored.number(key);
    stored.expect(std::isfinite(out[key]) && std::abs(out[key]) < 0x1p200, key, "a number of this size");
  }
  for (const char* key : {"growth_interval", "_growth_tracker"}) stored.expect(out[key] >= 0 && out[key] < 0x1p53, key, "a count");
  return out;
}

}  // namespace

StoredJson stored_meta(const CheckpointContents& contents) {
  StoredJson meta(contents.meta);
  const int64_t format = meta.integer("format", 1);
  check<CheckpointError>(format <= kFormat, "resume", "the state has format ", format,
                         ", which a newer halfstep wrote; this build reads format ", kFormat);
  return meta;
}

CheckpointContents pack(const RunParts& run) {
  CheckpointContents out;
  out.model = saved_state(run.model).tensors;
  if (run.optimizer) {
    for (const auto& [name, tensor] : run.optimizer->state_dict()) out.state[kOptimizer + name] = tensor;
  }
  for (const auto& [name, tensor] : kept_states(run.model)) out.state[kKept + name] = tensor;
  out.meta["format"] = kFormat;
  if (run.generator) {
    const Generator::State at = run.generator->state();
    out.meta["generator"] = {{"seed", at.seed}, {"offset", at.offset}};
  }
  if (run.scaler) out.meta["scaler"] = run.scaler->state_dict();
  if (run.schedule) out.meta["schedule"] = run.schedule->count();
  return out;
}

void unpack(const CheckpointContents& contents, const RunParts& run) {
  const StoredJson meta = stored_meta(contents);
  // Everything is looked at before anything is changed.
  std::optional<Generator::State> drawn;
  if (run.generator && meta.has("generator")) {
    const StoredJson random = meta.part("generator");
    drawn = {uint64_t(random.integer("seed", 0)), uint64_t(random.integer("offset", 0))};
  }
  std::optional<GradScaler::StateDict> scaler;
  if (run.scaler && run.scaler->is_enabled() && meta.has("scaler") && !meta.get("scaler").empty())
    scaler = scaler_state(meta.part("scaler"));
  const int64_t schedule = meta.integer("schedule", 0, -1);
  StateDict model;
  for (const auto& [name, tensor] : contents.model) model.push_back({name, tensor});
  std::map<std::string, Tensor> moments;
  StateDict kept;
  for (const auto& [name, tensor] : contents.state) {
    if (name.starts_with(kKept)) kept.push_back({name.substr(kKept.size()), tensor});
    if (name.starts_with(kOptimizer)) moments[name.substr(kOptimizer.size())] = tensor;
  }

  run.model.load_state_dict(model);
  set_kept_states(run.model, kept);
  if (run.optimizer) run.optimizer->load_state_dict(moments);
  if (scaler) run.scaler->load_state_dict(*scaler);
  if (run.schedule && schedule >= 0) run.schedule->set_count(schedule);
  if (drawn) run.generator->set_state(*drawn);
}

std::filesystem::path save_run(const std::filesystem::path& dir, int64_t step, const RunParts& run, const nlohmann::json& own,
                               int keep_last) {
  CheckpointContents contents = pack(run);
  contents.meta["step"] = step;
  contents.meta["own"] = own;
  return save_checkpoint(dir, step, contents, keep_last);
}

SavedRun load_run(const std::filesystem::path& path, const RunParts& run) {
  const CheckpointContents contents = load_checkpoint(path);
  const StoredJson meta = stored_meta(contents);
  SavedRun out{meta.integer("step", 0, 0), meta.get("own")};
  unpack(contents, run);
  return out;
}

}  // namespace halfstep
