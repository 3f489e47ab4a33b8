// SPDX-License-Identifier: Apache-2.0
#include "framework/autograd/recompute.h"

#include <algorithm>
#include <optional>
#include <span>

#include "amp/autocast/autocast.h"
#include "framework/autograd/autograd.h"
#include "framework/autograd/node.h"
#include "framework/base/device.h"
#include "framework/base/draw_log.h"
#include "framework/base/draws.h"
#include "framework/base/guard.h"
#include "framework/comm/process_group.h"
#include "framework/tensor/storage.h"

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
    for (const Tensor& t : parameters) parameters_.emplace_back(t);
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
    for (const SavedTensor& p : parameters_) used.push_back(p.unpack(*this));  // checks that none has changed
    std::vector<size_t> input_of_wanted;                                       // index of the edge
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
  // used: x and the parameters.
  Tensor second_forward(const Tensors& used) {
    std::vector<uint64_t> versions;
    for (const Tensor& t : used) versions.push_back(t.defined() ? t.version() : 0);
    const SurroundingsScope as_in_forward(surroundings_, draws_);
    const TakenStates::Scope states(states_, /*is_second=*/true);
    const MemoryScope tag(MemoryTag::activations);
    const Tensor y = f_(used[0]);
    // What f itself writes, such as the rows that an Embedding with max_norm rescales, is no change for a further backward.
    for (size_t i = 1; i < used.size(); ++i)
      if (used[i].defined() && used[i].version() != versions[i]) parameters_[i - 1] = SavedTensor(used[i]);
    return y;
  }

  std::function<Tensor(const Tensor&)> f_;
  SavedTensor x_;
  std::vector<SavedTensor> parameters_;
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
  Tensor y;
  UsedTensors used;
  {
    const NoGrad off;
    const UsedTensors::Scope collect(used);
    const TakenStates::Scope states(node->states(), /*is_second=*/false);
    const DrawLog::Writing draws(node->draws());
    y = f(x);
  }
  for (const Tensor& t : used.list()) {
    if (std::any_of(inputs.begin(), inputs.end(), [&](const Tensor& input) { return input.same(t); })) continue;
    check<AutogradError>(t.is_leaf(), "checkpoint", "the function uses a tensor of shape ", t.shape(),
                         " that was computed outside of it and requires grad",
                         Help{"add it to the list of parameters, or detach() it"});
    inputs.push_back(t);
  }
  // Others have this tensor, such as x or a parameter, which must not become a result of the node.
  if (y.defined() && y.impl_ptr().use_count() > 1) y = y.detach();
  for (const Tensor& t : inputs) node->edges.push_back(edge_of(t));
  node->set_parameters(std::span(inputs).subspan(1));
  attach(node, y);
  return y;
}

}  // namespace halfstep
