// SPDX-License-Identifier: Apache-2.0
#include "framework/autograd/recompute.h"

#include <algorithm>
#include <optional>
#include <span>

#include "amp/autocast/autocast.h"
#include "framework/autograd/autograd.h"
#include "framework/autograd/node.h"
#include "framework/autograd/own_writes.h"
#include "framework/base/device.h"
#include "framework/base/draw_log.h"
#include "framework/base/draws.h"
#include "framework/base/guard.h"
#include "framework/comm/process_group.h"
#include "framework/tensor/storage.h"
#include "framework/tensor/write_log.h"

namespace halfstep {
namespace {

// State of the thread that a forward depends on, but for its random numbers.
struct Surroundings {
  autocast::Regions regions = autocast::regions();
  Device device = default_device();
  ProcessGroup* group = current_group();
  std::optional<BatchRows> rows = DrawsOf::current();
};

// Restores the state of a forward, and lets draws repeat its own, while it lives.
class SurroundingsScope : LocalGuard {
 public:
  [[nodiscard]] SurroundingsScope(const Surroundings& forward, const DrawLog& draws)
      : regions_(forward.regions), device_(forward.device), group_(forward.group), rows_(forward.rows), draws_(draws) {}

 private:
  autocast::AsIn regions_;
  DefaultDevice device_;
  GroupScope group_;
  DrawsOf rows_;
  DrawLog::Repeating draws_;
};

class CheckpointNode final : public Node {
 public:
  CheckpointNode(std::function<Tensor(const Tensor&)> f, const Tensor& x) : f_(std::move(f)), x_(x, -1) {}
  // Sets the tensors that f uses besides x, which are known after the forward.
  void set_parameters(std::span<const Tensor> parameters) {
    for (const Tensor& t : parameters) parameters_.push_back({t, SavedTensor(t), t.defined() ? version_without_own_writes(t) : 0});
  }
  std::vector<Tensors>& states() { return states_; }
  DrawLog& draws() { return draws_; }
  std::string_view name() const override { return "checkpoint"; }
  void release_saved() override { x_.release(); }

  Tensors backward(Tensors grads, const BackwardCall& call) override {
    if (!grads[0].defined()) return {};
    const bool recorded = grad_enabled();
    // Detaches x, so that the inner search for gradients ends here.
    Tensor x = x_.unpack(*this);
    x = call.needs(0) && recorded ? x.expand(x.shape()) : x.detach();
    if (call.needs(0) && !recorded) x.set_requires_grad();
    Tensors used{x}, wanted, result(edges.size());
    for (Used& p : parameters_) {
      if (p.tensor.defined() && version_without_own_writes(p.tensor) == p.version) p.saved = SavedTensor(p.tensor);
      used.push_back(p.saved.unpack(*this));  // checks that none has changed
    }
    std::vector<size_t> input_of_wanted;  // index of the edge
    for (size_t i = 0; i < edges.size(); ++i) {
      if (!call.needs(i) || !used[i].requires_grad()) continue;
      wanted.push_back(used[i]);
      input_of_wanted.push_back(i);
    }
    if (wanted.empty()) return result;  // all were frozen since the forward
    const EnableGrad on;
    const Tensor y = second_forward(used);
    if (!y.requires_grad()) return result;
    const Tensors got = grad({y}, wanted, {grads[0]}, {.create_graph = recorded, .allow_unused = true});
    for (size_t i = 0; i < got.size(); ++i) result[input_of_wanted[i]] = got[i];
    return result;
  }

 private:
  // A tensor that f uses besides x.
  struct Used {
    Tensor tensor;
    SavedTensor saved;
    uint64_t version;  // without own writes
  };

  // used: x and the parameters.
  Tensor second_forward(const Tensors& used) {
    WriteLog writes;
    const SurroundingsScope as_in_forward(surroundings_, draws_);
    const TakenStates::Scope states(states_, /*is_second=*/true);
    const MemoryScope tag(MemoryTag::activations);
    const Tensor y = f_(used[0]);
    count_own_writes(writes, std::span(used).subspan(1));
    return y;
  }

  std::function<Tensor(const Tensor&)> f_;
  SavedTensor x_;
  std::vector<Used> parameters_;
  std::vector<Tensors> states_;
  DrawLog draws_;
  Surroundings surroundings_;
};

}  // namespace

Tensor checkpoint(const std::function<Tensor(const Tensor&)>& f, const Tensor& x, const Tensors& parameters) {
  Tensors inputs{x};
  inputs.insert(inputs.end(), parameters.begin(), parameters.end());
  // If neither x nor a known parameter requires grad, nothing is kept: an ordinary forward records the other tensors that require
  // grad.
  if (!should_record(inputs)) return f(x);
  const auto node = make_node<CheckpointNode>(f, x);
  attach(node, std::span<const Tensor>());  // numbers it, so that the nodes that f makes have higher numbers
  const uint64_t begin = node->sequence;
  Tensor y;
  UsedTensors used;
  WriteLog writes;
  {
    const NoGrad off;
    const UsedTensors::Scope collect(used);
    const TakenStates::Scope states(node->states(), /*is_second=*/false);
    const DrawLog::Writing draws(node->draws());
    y = f(x);
  }
  if (y.defined()) used.add({&y, 1});  // f may return a tensor that no op has touched
  for (const Tensor& t : used.list()) {
    const std::shared_ptr<Node>& history = t.impl()->autograd->node;
    if (history ? history->sequence > begin : t.impl_ptr().use_count() == 1) continue;  // f made it, where it turned recording on
    if (std::any_of(inputs.begin(), inputs.end(), [&](const Tensor& input) { return input.same(t); })) continue;
    check<AutogradError>(t.is_leaf(), "checkpoint", "the function uses a tensor of shape ", t.shape(),
                         " that was computed outside of it and requires grad",
                         Help{"add it to the list of parameters, or detach() it"});
    inputs.push_back(t);
  }
  should_record(inputs);  // a checkpoint around this one has them as inputs, too
  count_own_writes(writes, std::span(inputs).subspan(1));
  // Others have this tensor, such as x or a parameter, which must not become a result of the node.
  if (y.defined() && (y.impl_ptr().use_count() > 1 || y.requires_grad())) y = y.detach();
  for (const Tensor& t : inputs) node->edges.push_back(edge_of(t));
  node->set_parameters(std::span(inputs).subspan(1));
  attach(node, y);
  return y;
}

}  // namespace halfstep
