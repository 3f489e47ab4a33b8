// SPDX-License-Identifier: Apache-2.0
#include "torch/autograd/function.h"

namespace torch::autograd::function_detail {

std::vector<bool> keep(hs::FunctionContext& ctx, const std::shared_ptr<State>& state, const hs::Tensors& results) {
  AutogradContext& context = state->context;
  std::vector<bool> plain;
  for (const hs::Tensor& t : results) {
    state->results.push_back({t.shape(), {.dtype = t.dtype(), .device = t.device()}});
    bool marked = false;
    for (const Tensor& p : context.plain_) marked = marked || p.h().same(t);
    plain.push_back(marked);
  }
  hs::Tensors saved;
  for (const Tensor& t : context.to_save_) {
    context.defined_.push_back(t.defined());
    if (t.defined()) saved.push_back(t.h());
  }
  context.to_save_.clear();
  context.plain_.clear();
  ctx.save(saved);
  ctx.state = state;
  return plain;
}

variable_list given_gradients(State& state, hs::FunctionContext& ctx, const hs::Tensors& gradients) {
  state.context.context_ = &ctx;
  variable_list out = ::torch::detail::V(gradients);
  for (size_t i = 0; i < out.size() && state.context.materialize_; ++i) {
    if (!out[i].defined()) out[i] = hs::zeros(state.results[i].first, state.results[i].second);
  }
  return out;
}

hs::Tensors of_tensors(const State& state, const variable_list& gradients) {
  const size_t arguments = state.places.size();
  TORCH_CHECK(gradients.size() >= arguments, "function returned an incorrect number of gradients (expected ", arguments, ", got ",
              gradients.size(), ")");
  hs::Tensors out;
  for (size_t i = 0; i < arguments; ++i) {
    if (state.places[i] >= 0) out.push_back(gradients[i].h());
  }
  return out;
}

}  // namespace torch::autograd::function_detail
