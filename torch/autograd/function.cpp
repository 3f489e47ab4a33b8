// SPDX-License-Identifier: Apache-2.0
#include "torch/autograd/function.h"

namespace torch::autograd {
namespace function_detail {

// Gives halfstep's context what forward saved.
void save_state(hs::FunctionContext& ctx, const std::shared_ptr<State>& state) {
  AutogradContext& context = state->context;
  hs::Tensors saved;
  for (const Tensor& t : context.to_save_) {
    context.defined_.push_back(t.defined());
    if (t.defined()) saved.push_back(t.h());
  }
  context.to_save_.clear();
  ctx.save(saved);
  ctx.state = state;
}

variable_list run_backward(State& state, hs::FunctionContext& ctx, const hs::Tensors& gradients) {
  state.context.context_ = &ctx;
  return state.backward(&state.context, ::torch::detail::V(gradients));
}

// Runs a function's backward. Returns the gradients of halfstep's inputs.
hs::Tensors backward_of(hs::FunctionContext& ctx, const hs::Tensors& gradients) {
  State& state = *std::any_cast<std::shared_ptr<State>&>(ctx.state);
  const variable_list returned = run_backward(state, ctx, gradients);
  const size_t expected = state.places.size();
  TORCH_CHECK(returned.size() >= expected, "function returned an incorrect number of gradients (expected ", expected, ", got ",
              returned.size(), ")");
  hs::Tensors out;
  for (size_t i = 0; i < expected; ++i) {
    if (state.places[i] >= 0) out.push_back(returned[i].h());
  }
  return out;
}

}  // namespace function_detail

variable_list UndefinedGrad::apply(const variable_list& inputs) const {
  auto forward = [](hs::FunctionContext&, const hs::Tensors& in) {
    hs::Tensors out;
    for (const hs::Tensor& t : in) out.push_back(t.clone());
    return out;
  };
  auto backward = [](hs::FunctionContext&, const hs::Tensors& gradients) { return hs::Tensors(gradients.size()); };
  return ::torch::detail::V(hs::apply_function("UndefinedGrad", forward, backward, ::torch::detail::H(inputs)));
}

}  // namespace torch::autograd
