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
void save_state(hs::FunctionContext& ctx, const std::shared_ptr<State>& state);
variable_list run_backward(State& state, hs::FunctionContext& ctx, const hs::Tensors& gradients);
}  // namespace function_detail

struct AutogradContext {
  std::unordered_map<std::string, IValue> saved_data;
  void save_for_backward(variable_list v) { to_save_ = std::move(v); }
  variable_list get_saved_variables() const {
    variable_list out;
    const hs::Tensors saved = context_->saved();
    size_t next = 0;
    for (bool is_defined : defined_) out.push_back(is_defined ? Tensor(saved[next++]) : Tensor());
    return out;
  }
  void set_materialize_grads(bool on) { context_->set_materialize_grads(on); }
  bool needs_input_grad(size_t i) const { return context_->needs(i); }
  void mark_non_differentiable(const variable_list& outputs) { context_->mark_non_differentiable(::torch::detail::H(outputs)); }
  void mark_dirty(const variable_list& inputs) { context_->mark_dirty(::torch::detail::H(inputs)); }

 private:
  template <class>
  friend struct Function;
  friend void function_detail::save_state(hs::FunctionContext&, const std::shared_ptr<function_detail::State>&);
  friend variable_list function_detail::run_backward(function_detail::State&, hs::FunctionContext&, const hs::Tensors&);
  variable_list to_save_;
  std::vector<bool> defined_;
  hs::FunctionContext* context_ = nullptr;
};

namespace function_detail {
using Backward = variable_list (*)(AutogradContext*, variable_list);
struct State {
  std::vector<int> places;  // for each gradient that backward returns: the number of its tensor among the inputs, or -1
  Backward backward;
  AutogradContext context{};
};
hs::Tensors backward_of(hs::FunctionContext& ctx, const hs::Tensors& gradients);
template <class T>
inline constexpr bool kIsList = std::is_same_v<T, variable_list> || std::is_same_v<T, TensorList>;
}  // namespace function_detail

template <class T>
struct Function {
  template <class... Args>
  static auto apply(Args&&... args) {
    using Result = decltype(T::forward(static_cast<AutogradContext*>(nullptr), std::forward<Args>(args)...));
    constexpr bool returns_list = !std::is_same_v<Result, Tensor>;
    hs::Tensors inputs;
    std::vector<int> places;
    auto add_tensor = [&](const Tensor& t) {
      places.push_back(t.defined() ? int(inputs.size()) : -1);
      if (t.defined()) inputs.push_back(t.h());
    };
    auto add = [&](const auto& argument) {
      using A = std::decay_t<decltype(argument)>;
      if constexpr (function_detail::kIsList<A>) {
        for (const Tensor& t : argument) add_tensor(t);
      } else if constexpr (std::is_same_v<A, Tensor>) {
        add_tensor(argument);
      } else {
        places.push_back(-1);
      }
    };
    (add(args), ...);
    auto forward = [&](hs::FunctionContext& ctx, const hs::Tensors& in) -> hs::Tensors {
      auto state = std::make_shared<function_detail::State>(function_detail::State{places, &T::backward});
      state->context.context_ = &ctx;
      size_t slot = 0;
      auto next_tensor = [&]() -> Tensor {
        const int place = places[slot++];
        return place < 0 ? Tensor() : Tensor(in[size_t(place)]);
      };
      auto pass = [&](const auto& argument) {
        using A = std::decay_t<decltype(argument)>;
        if constexpr (function_detail::kIsList<A>) {
          variable_list list;
          for (size_t i = 0; i < argument.size(); ++i) list.push_back(next_tensor());
          return list;
        } else if constexpr (std::is_same_v<A, Tensor>) {
          return next_tensor();
        } else {
          ++slot;
          return A(argument);
        }
      };
      std::tuple given{pass(args)...};
      const Result made = std::apply([&](auto&... a) { return T::forward(&state->context, a...); }, given);
      function_detail::save_state(ctx, state);
      if constexpr (returns_list)
        return ::torch::detail::H(made);
      else
        return {made.h()};
    };
    const hs::Tensors out = hs::apply_function("custom function", forward, &function_detail::backward_of, inputs);
    if constexpr (returns_list)
      return ::torch::detail::V(out);
    else
      return Tensor(out[0]);
  }
};

// A function whose gradient is undefined.
struct UndefinedGrad {
  variable_list apply(const variable_list& inputs) const;
};

}  // namespace torch::autograd
