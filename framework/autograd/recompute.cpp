// SPDX-License-Identifier: Apache-2.0
#include "framework/autograd/recompute.h"

#include <algorithm>
#include <optional>

#include "amp/autocast/autocast.h"
#include "framework/autograd/autograd.h"
#include "framework/autograd/node.h"
#include "framework/base/draws.h"
#include "framework/tensor/storage.h"

namespace halfstep {
namespace {

// State that a forward depends on: autocast of every device, the generator's position, and the batch rows it draws for.
struct Surroundings {
  autocast::Regions regions;
  Generator::State random;
  std::optional<BatchRows> rows;

  static Surroundings current() {
    Surroundings s;
    s.regions = autocast::regions();
    s.random = default_generator().state();
    s.rows = DrawsOf::current();
    return s;
  }
};

// Restores the state of a forward while it lives.
class SurroundingsScope {
 public:
  explicit SurroundingsScope(const Surroundings& forward)
      : regions_(forward.regions), outer_random_(default_generator().state()), rows_(forward.rows) {
    default_generator().set_state(forward.random);
  }
  ~SurroundingsScope() { default_generator().set_state(outer_random_); }

 private:
  autocast::AsIn regions_;
  Generator::State outer_random_;
  DrawsOf rows_;
};

class CheckpointNode final : public Node {
 public:
  CheckpointNode(std::function<Tensor(const Tensor&)> f, const Tensor& x)
      : f_(std::move(f)), x_(x, -1), surroundings_(Surroundings::current()) {}
  // Sets the tensors that f uses besides x, which are known after the forward.
  void set_parameters(Tensors parameters) { parameters_ = std::move(parameters); }
  std::vector<Tensors>& states() { return states_; }
  std::string_view name() const override { return "checkpoint"; }
  void release_saved() override { x_.release(); }

  Tensors backward(Tensors grads, const BackwardCall& call) override {
    if (!grads[0].defined()) return {};
    const bool recorded = grad_enabled();
    // Detaches x, so that the inner search for gradients ends here.
    Tensor x = x_.unpack(*this);
    x = call.needs(0) && recorded ? x.expand(x.shape()) : x.detach();
    if (call.needs(0) && !recorded) x.set_requires_grad();
    Tensors wanted, result(edges.size());
    std::vector<size_t> input_of_wanted;  // index of the edge
    for (size_t i = 0; i < edges.size(); ++i) {
      const Tensor& t = i == 0 ? x : parameters_[i - 1];
      if (!call.needs(i) || !t.requires_grad()) continue;
      wanted.push_back(t);
      input_of_wanted.push_back(i);
    }
    const EnableGrad on;
    Tensor y;
    {
      const SurroundingsScope as_in_forward(surroundings_);
      const TakenStates::Scope states(states_, /*is_second=*/true);
      const MemoryScope tag(MemoryTag::activations);
      y = f_(x);
    }
    const Tensors got = grad({y}, wanted, {grads[0]}, {.create_graph = recorded, .allow_unused = true});
    for (size_t i = 0; i < got.size(); ++i) result[input_of_wanted[i]] = got[i];
    return result;
  }

 private:
  std::function<Tensor(const Tensor&)> f_;
  SavedTensor x_;
  Tensors parameters_;
  std::vector<Tensors> states_;
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
    y = f(x);
  }
  for (const Tensor& t : used.list()) {
    if (std::any_of(inputs.begin(), inputs.end(), [&](const Tensor& input) { return input.same(t); })) continue;
    check<AutogradError>(t.is_leaf(), "checkpoint", "the function uses a tensor of shape ", t.shape(),
                         " that was computed outside of it and requires grad",
                         Help{"add it to the list of parameters, or detach() it"});
    inputs.push_back(t);
  }
  if (y.same(x)) y = x.detach();
  for (const Tensor& t : inputs) node->edges.push_back(edge_of(t));
  node->set_parameters({inputs.begin() + 1, inputs.end()});
  attach(node, y);
  return y;
}

}  // namespace halfstep
