// SPDX-License-Identifier: Apache-2.0
#include "amp/step/run_state.h"

#include <cmath>
#include <exception>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "amp/step/grad_scaler.h"
#include "framework/comm/process_group.h"
#include "framework/data/loading/loader.h"
#include "framework/io/checkpoint/generator_state.h"
#include "layers/module/module.h"
#include "layers/module/save.h"
#include "layers/sequences/recurrent.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"

namespace halfstep {
namespace {

constexpr int kFormat = 2;  // 1: states of the optimizer by position, schedules by count
// Prefixes of tensors' names and of positions. No parameter's name begins with a dot.
const std::string &kOptimizer = *new std::string("optimizer."), &kKept = *new std::string("kept."),
                  &kUnnamed = *new std::string(".");

GradScaler::StateDict scaler_state(const StoredJson& stored) {
  GradScaler::StateDict out;
  for (const char* key : {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"}) {
    out[key] = stored.number(key);
    stored.expect(std::isfinite(out[key]) && std::abs(out[key]) < 0x1p200, key, "a number of this size");
  }
  for (const char* key : {"growth_interval", "_growth_tracker"}) stored.expect(out[key] >= 0 && out[key] < 0x1p53, key, "a count");
  return out;
}

// Maps the names of the optimizer's parameters in the model to positions; omits those that are not the model's.
std::map<std::string, size_t> positions_of(const Optimizer& optimizer, const Module& model) {
  std::map<const TensorImpl*, std::string> names;
  for (const NamedTensor& p : model.named_parameters()) names[p.tensor.impl()] = p.name;
  std::map<std::string, size_t> out;
  size_t position = 0;
  for (const Tensor& p : optimizer.parameters()) {
    const auto at = names.find(p.impl());
    if (at != names.end()) out[at->second] = position;
    ++position;
  }
  return out;
}

// Renames states: "3.exp_avg" becomes "layers.1.weight.exp_avg". A parameter that is not the model's keeps its position, prefixed
// with kUnnamed if that position is also the name of one of the model's that the optimizer updates.
std::map<std::string, Tensor> named_states(const Optimizer& optimizer, const Module& model, bool together) {
  std::map<std::string, std::string> name_of;  // by position, as text
  const std::map<std::string, size_t> positions = positions_of(optimizer, model);
  for (const auto& [name, position] : positions) name_of[std::to_string(position)] = name;
  std::map<std::string, Tensor> out;
  for (const auto& [key, tensor] : together ? optimizer.gathered_state_dict() : optimizer.state_tensors()) {
    const size_t dot = key.find('.');
    const auto at = name_of.find(key.substr(0, dot));
    const bool taken = at == name_of.end() && positions.contains(key.substr(0, dot));
    out[at == name_of.end() ? (taken ? kUnnamed : "") + key : at->second + key.substr(dot)] = tensor;
  }
  return out;
}

// Reverses named_states. Keeps unknown names, so that the optimizer refuses them.
std::map<std::string, Tensor> positioned_states(const std::map<std::string, Tensor>& named, const Optimizer& optimizer,
                                                const Module& model) {
  const std::map<std::string, size_t> positions = positions_of(optimizer, model);
  std::map<std::string, Tensor> out;
  for (const auto& [key, tensor] : named) {
    if (key.starts_with(kUnnamed)) {
      out[key.substr(kUnnamed.size())] = tensor;
      continue;
    }
    const size_t dot = key.rfind('.');
    const auto at = dot == std::string::npos ? positions.end() : positions.find(key.substr(0, dot));
    out[at == positions.end() ? key : std::to_string(at->second) + key.substr(dot)] = tensor;
  }
  return out;
}

std::map<std::string, double> schedule_state(const StoredJson& meta) {
  if (!meta.get("schedule").is_object()) return {{"count", double(meta.integer("schedule", 0))}};
  const StoredJson stored = meta.part("schedule");
  std::map<std::string, double> out;
  for (const auto& [key, value] : meta.get("schedule").items()) out[key] = stored.number(key);
  const double count = stored.number("count");
  stored.expect(count >= 0 && count < 0x1p53 && count == std::floor(count), "count", "an integer >= 0");
  return out;
}

std::optional<LoaderPosition> loader_position(const StoredJson& meta) {
  if (!meta.has("loader")) return {};
  const StoredJson stored = meta.part("loader");
  if (!stored.has("sample")) return {};  // of `halfstep train`, which creates its loader itself
  return LoaderPosition{stored.integer("epoch", 0), stored.integer("sample", 0), stored.integer("batch_size", 1),
                        uint64_t(stored.integer("seed", std::numeric_limits<int64_t>::min())),
                        uint64_t(stored.integer("order", 0))};
}

}  // namespace

OwnValues::Value::Value(std::string text) : json_(nlohmann::json(std::move(text))) {}
void OwnValues::Value::set(bool flag) { json_ = nlohmann::json(flag); }
void OwnValues::Value::set(int64_t number) { json_ = nlohmann::json(number); }
void OwnValues::Value::set(double number) { json_ = nlohmann::json(number); }
OwnValues::OwnValues(std::initializer_list<std::pair<std::string, Value>> values) {
  for (const auto& [key, value] : values) {
    check<ValueError>(!values_.has(key), "save_run", "the name \"", key, "\" is there twice");
    values_[key] = *value.json();
  }
}

StoredJson stored_meta(const CheckpointContents& contents) {
  StoredJson meta(*contents.meta);
  const int64_t format = meta.integer("format", 1);
  check<CheckpointError>(format <= kFormat, "resume", "the state has format ", format,
                         ", which a newer halfstep wrote; this build reads format ", kFormat);
  return meta;
}

CheckpointContents pack(const RunParts& run) {
  CheckpointContents out;
  out.model = saved_state(run.model).tensors;
  if (run.optimizer) {
    for (const NamedTensor& p : run.model.named_parameters()) {
      const auto at = out.model.find(p.name);
      const Tensor own = run.optimizer->own_value(p.tensor);
      if (at != out.model.end() && !own.same(p.tensor)) at->second = own;
    }
    for (const auto& [name, tensor] : named_states(*run.optimizer, run.model, run.group != nullptr))
      out.state[kOptimizer + name] = tensor;
  }
  for (const auto& [name, tensor] : kept_states(run.model)) out.state[kKept + name] = tensor;
  out.meta["format"] = kFormat;
  if (run.loader) {  // before the generator, from which it may draw its seed
    const LoaderPosition at = run.loader->position();
    out.meta["loader"] = {
        {"epoch", at.epoch}, {"sample", at.sample}, {"batch_size", at.batch_size}, {"seed", int64_t(at.seed)}, {"order", at.order}};
  }
  if (run.generator) out.meta["generator"] = generator_json(run.generator->state());
  if (run.scaler) out.meta["scaler"] = run.scaler->state_dict();
  if (run.schedule) out.meta["schedule"] = run.schedule->state_dict();
  return out;
}

void unpack(const CheckpointContents& contents, const RunParts& run) {
  const StoredJson meta = stored_meta(contents);
  // Check everything before changing anything.
  std::optional<Generator::State> drawn;
  if (run.generator && meta.has("generator")) {
    drawn = generator_state(meta.part("generator"));
    const std::string_view was = name(drawn->kind()), is = name(run.generator->kind());
    check<ValueError>(was == is, "resume", "the run drew random numbers of kind ", was, ", and the generator now is of kind ", is,
                      Help{"set \"generator\" in the config, or call manual_seed(seed, kind), as before"});
  }
  std::optional<GradScaler::StateDict> scaler;
  if (run.scaler && run.scaler->is_enabled() && meta.has("scaler") && !meta.get("scaler").empty())
    scaler = scaler_state(meta.part("scaler"));
  std::optional<std::map<std::string, double>> schedule;
  if (meta.has("schedule")) schedule = schedule_state(meta);
  const std::optional<LoaderPosition> place = run.loader ? loader_position(meta) : std::nullopt;
  if (run.optimizer) run.optimizer->check_own_values("resume");
  StateDict model;
  for (const auto& [name, tensor] : contents.model) model.push_back({name, tensor});
  std::map<std::string, Tensor> moments;
  StateDict kept;
  for (const auto& [name, tensor] : contents.state) {
    if (name.starts_with(kKept)) kept.push_back({name.substr(kKept.size()), tensor});
    if (name.starts_with(kOptimizer)) moments[name.substr(kOptimizer.size())] = tensor;
  }

  const StateDict before = run.optimizer ? run.model.state_dict() : StateDict();
  run.model.load_state_dict(model);
  try {
    if (run.optimizer) run.optimizer->load_state_dict(positioned_states(moments, *run.optimizer, run.model));
  } catch (...) {
    run.model.load_state_dict(before);
    throw;
  }
  set_kept_states(run.model, kept);
  if (scaler) run.scaler->load_state_dict(*scaler);
  if (run.schedule && schedule) run.schedule->load_state_dict(*schedule);
  if (drawn) run.generator->set_state(*drawn);
  if (place) run.loader->set_position(*place);
}

std::filesystem::path save_run(const std::filesystem::path& dir, int64_t step, const RunParts& run, const OwnValues& own,
                               int keep_last) {
  CheckpointContents contents = pack(run);
  contents.meta["step"] = step;
  contents.meta["own"] = *own.json();
  if (!run.group) return save_checkpoint(dir, step, contents, keep_last);
  // Wait until the checkpoint is complete, so that all ranks know if it could not be written.
  std::string fault;
  std::exception_ptr error;
  if (run.group->rank() == 0) {
    try {
      save_checkpoint(dir, step, contents, keep_last);
    } catch (const std::exception& e) {
      fault = joined("rank 0: ", e.what());
      error = std::current_exception();
    }
  }
  fault = run.group->gather(fault)[0];
  if (error) std::rethrow_exception(error);
  if (!fault.empty()) throw IoError(fault);
  return dir / checkpoint_name(step);
}

SavedRun load_run(const std::filesystem::path& path, const RunParts& run) {
  const CheckpointContents contents = load_checkpoint(path);
  const StoredJson meta = stored_meta(contents);
  SavedRun out{meta.integer("step", 0, 0), meta.get("own")};
  unpack(contents, run);
  return out;
}

}  // namespace halfstep
