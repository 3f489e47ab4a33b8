// SPDX-License-Identifier: Apache-2.0
// torch::autograd::Function: functions that a program differentiates itself.
#pragma once

#include <any>
#include <unordered_map>

#include "framework/autograd/function.h"
#include "torch/autograd/autograd.h"

namespace torch::autograd {

namespace function_detail {
struct State;
std::vector<bool> keep(hs::FunctionContext& ctx, const std::shared_ptr<State>& state, const hs::Tensors& results);
variable_list given_gradients(State& state, hs::FunctionContext& ctx, const hs::Tensors& gradients);
}  // namespace function_detail

struct AutogradContext {
  std::unordered_map<std::string, IValue> saved_data;
  void save_for_backward(variable_list v) { to_save_ = std::move(v); }
  variable_list get_saved_variables() const {
    variable_list out;
    const hs::Tensors kept = context_->saved();
    size_t k = 0;
    for (bool there : defined_) out.push_back(there ? Tensor(kept[k++]) : Tensor());
    return out;
  }
  void set_materialize_grads(bool on) { materialize_ = on; }
  bool needs_input_grad(size_t i) const { return context_->needs(i); }
  void mark_non_differentiable(const variable_list& v) { plain_.insert(plain_.end(), v.begin(), v.end()); }

 private:
  template <class>
  friend struct Function;
  friend std::vector<bool> function_detail::keep(hs::FunctionContext&, const std::shared_ptr<function_detail::State>&,
                                                 const hs::Tensors&);
  friend variable_list function_detail::given_gradients(function_detail::State&, hs::FunctionContext&, const hs::Tensors&);
  variable_list to_save_, plain_;
  std::vector<bool> defined_;
  bool materialize_ = true;
  hs::FunctionContext* context_ = nullptr;
};

namespace function_detail {
struct State {
  std::vector<int> places;  // of each argument: its number among the tensors, or -1
  AutogradContext context{};
  std::vector<std::pair<hs::Shape, hs::TensorOptions>> results{};
};
// Keeps what the context was given for backward; returns which results are not differentiable.
std::vector<bool> keep(hs::FunctionContext& ctx, const std::shared_ptr<State>& state, const hs::Tensors& results);
// Returns the gradients that backward gets, and, of those that it returns, the ones of tensors.
variable_list given_gradients(State& state, hs::FunctionContext& ctx, const hs::Tensors& gradients);
hs::Tensors of_tensors(const State& state, const variable_list& gradients);
}  // namespace function_detail

template <class T>
struct Function {
  template <class... Args>
  static auto apply(Args&&... args) {
    using Result = decltype(T::forward(static_cast<AutogradContext*>(nullptr), std::forward<Args>(args)...));
    constexpr bool many = !std::is_same_v<Result, Tensor>;
    hs::Tensors inputs;
    std::vector<int> places;
    auto list = [&](auto& a) {
      using A = std::decay_t<decltype(a)>;
      static_assert(!std::is_same_v<A, variable_list> && !std::is_same_v<A, TensorList>, "pass tensors one by one, not in a list");
      int place = -1;
      if constexpr (std::is_same_v<A, Tensor>) {
        if (a.defined()) {
          place = int(inputs.size());
          inputs.push_back(a.h());
        }
      }
      places.push_back(place);
    };
    (list(args), ...);
    std::vector<bool> plain;
    auto forward = [&](hs::FunctionContext& ctx, const hs::Tensors& in) -> hs::Tensors {
      auto state = std::make_shared<function_detail::State>(function_detail::State{places});
      state->context.context_ = &ctx;
      size_t at = 0;
      auto pass = [&](auto&& a) -> decltype(auto) {
        using A = std::decay_t<decltype(a)>;
        const int place = places[at++];
        if constexpr (std::is_same_v<A, Tensor>)
          return place < 0 ? Tensor() : Tensor(in[size_t(place)]);
        else
          return A(a);
      };
      std::tuple<std::decay_t<Args>...> given{pass(args)...};
      Result made = std::apply([&](auto&... a) { return T::forward(&state->context, a...); }, given);
      hs::Tensors out;
      if constexpr (many)
        for (const Tensor& t : made) out.push_back(t.h());
      else
        out.push_back(made.h());
      plain = function_detail::keep(ctx, state, out);
      return out;
    };
    hs::Tensors out = hs::apply_function("custom function", forward, &backward_of, inputs);
    for (size_t i = 0; i < out.size(); ++i)
      if (plain[i]) out[i] = out[i].detach();
    if constexpr (many)
      return detail::V(out);
    else
      return Tensor(out[0]);
  }

 private:
  static hs::Tensors backward_of(hs::FunctionContext& ctx, const hs::Tensors& grads) {
    auto& state = *std::any_cast<std::shared_ptr<function_detail::State>&>(ctx.state);
    const variable_list given = function_detail::given_gradients(state, ctx, grads);
    return function_detail::of_tensors(state, T::backward(&state.context, given));
  }
};

}  // namespace torch::autograd
