// SPDX-License-Identifier: Apache-2.0
#include "cuda/dnn/plan.h"

#include <algorithm>

#include "framework/base/check.h"

namespace halfstep::cuda::dnn {
namespace {

std::string first_line(const DeviceError& e) {
  const std::string text = e.what();
  return text.substr(0, text.find('\n'));
}

}  // namespace

Target Target::of(cudnnHandle_t handle) {
  Target t;
  t.handle_ = handle;
  return t;
}

Target Target::described(const std::string& description) {
  Target t;
  t.description_.emplace(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  t.description_->set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, std::vector<char>(description.begin(), description.end()))
      .finalize();
  return t;
}

bool Engine::has(cudnnBackendNumericalNote_t note) const {
  return std::find(numerics.begin(), numerics.end(), note) != numerics.end();
}

bool Engine::is_allowed(const Rules& rules) const {
  // Seen on an H100 with cuDNN 9.19: in a 1 x 1 convolution with TF32 this engine's ReLU returns 0 for NaN, whatever the graph
  // requests.
  constexpr int64_t kLosesNan = 39;
  if (rules.relu && number == kLosesNan) return false;
  return !has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) && !has(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) &&
         !has(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) && (rules.tensor_cores || !has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE));
}

std::vector<Engine> engines(OpGraph& graph, const Target& target, cudnnBackendHeurMode_t mode) {
  const Cudnn& dnn = cudnn();
  Descriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.operation_graph(target.handle()))
      .set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
  if (target.description()) heuristic.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.description());
  heuristic.finalize();
  const auto results = [&](int64_t most, int64_t& count, cudnnBackendDescriptor_t* into) {
    check_cudnn(dnn.cudnnBackendGetAttribute(heuristic.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, most,
                                             &count, into),
                "cudnnBackendGetAttribute");
  };
  int64_t count = 0;
  results(0, count, nullptr);
  std::vector<Engine> found;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < count; ++i) {
    found.push_back({.config = Descriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR), .numerics = {}, .behaviour = {}});
    raw.push_back(found.back().config.raw());
  }
  if (count > 0) results(int64_t(raw.size()), count, raw.data());
  while (int64_t(found.size()) > count) found.pop_back();
  for (Engine& e : found) {
    const Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendDescriptor_t at = engine.raw();
    check_cudnn(
        dnn.cudnnBackendGetAttribute(e.config.raw(), CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &at),
        "cudnnBackendGetAttribute");
    const std::vector<int64_t> number = engine.get<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 1);
    e.number = number.empty() ? -1 : number[0];
    e.numerics = engine.get<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
    e.behaviour = engine.get<cudnnBackendBehaviorNote_t>(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT);
  }
  return found;
}

Plan::Plan(Engine engine, const Target& target) : engine_(std::move(engine)), plan_(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
  plan_.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine_.config);
  if (target.description())
    plan_.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target.description());
  else
    plan_.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, target.handle());
  plan_.finalize();
  const std::vector<int64_t> bytes = plan_.get<int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 1);
  workspace_ = bytes.empty() ? 0 : bytes[0];
}

cudnnStatus_t Plan::run(cudnnHandle_t handle, const OpGraph& graph, std::span<void* const> memory, void* workspace) const {
  check<DeviceError>(memory.size() == graph.uids().size(), "cudnn", "a graph of ", graph.uids().size(), " tensors was given ",
                     memory.size());
  std::vector<void*> pointers(memory.begin(), memory.end());
  std::vector<int64_t> uids = graph.uids();
  for (const OpGraph::Constant& c : graph.constants()) {
    pointers.push_back(const_cast<float*>(&c.value));
    uids.push_back(c.uid);
  }
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, pointers)
      .set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, uids)
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace)
      .finalize();
  return cudnn().cudnnBackendExecute(handle, plan_.raw(), pack.raw());
}

Plans::Plans(std::unique_ptr<OpGraph> graph, const Target& target, const Rules& rules) : graph_(std::move(graph)), rules_(rules) {
  propose(target, CUDNN_HEUR_MODE_A);
}

void Plans::propose(const Target& target, cudnnBackendHeurMode_t mode) {
  try {
    std::vector<Engine> found = engines(*graph_, target, mode);
    proposed_ += found.size();
    if (rules_.tensor_cores_first)
      std::stable_partition(found.begin(), found.end(), [](const Engine& e) { return e.has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE); });
    for (Engine& e : found) {
      if (e.is_allowed(rules_)) engines_.push_back(std::move(e));
    }
  } catch (const DeviceError& e) { problem_ = first_line(e); }
}

const Plan* Plans::at(size_t i, const Target& target) {
  while (i >= plans_.size() && !settled_) {
    if (engines_.empty()) {  // requests the fallback's engines once, and only if no proposal remains to be chosen
      if (i > chosen_ || std::exchange(fallback_, true)) return nullptr;
      propose(target, CUDNN_HEUR_MODE_FALLBACK);
      continue;
    }
    Engine engine = std::move(engines_.front());
    engines_.pop_front();
    try {
      Plan plan(std::move(engine), target);
      if (plan.workspace() <= rules_.workspace)
        plans_.push_back(std::move(plan));
      else
        problem_ = "a workspace of " + std::to_string(plan.workspace()) + " bytes";
    } catch (const DeviceError& e) { problem_ = first_line(e); }
  }
  return i < plans_.size() ? &plans_[i] : nullptr;
}

void Plans::refuse(const std::string& why) {
  problem_ = "refused when run, " + why;
  ++chosen_;
}

void Plans::free_others() {
  if (std::exchange(settled_, true)) return;
  engines_.clear();
  if (chosen_ < plans_.size()) {
    Plan kept = std::move(plans_[chosen_]);
    plans_.clear();
    plans_.push_back(std::move(kept));
  }
  chosen_ = 0;
}

}  // namespace halfstep::cuda::dnn
