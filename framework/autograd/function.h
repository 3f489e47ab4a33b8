// SPDX-License-Identifier: Apache-2.0
// User-defined differentiable functions.
//
//   struct Square : Function<Square> {
//     static Tensors forward(FunctionContext& ctx, const Tensors& in) { ctx.save({in[0]}); return {in[0] * in[0]}; }
//     static Tensors backward(FunctionContext& ctx, const Tensors& g) { return {g[0] * ctx.saved()[0] * 2.0}; }
//   };
//   Tensors y = Square::apply({x});
//
// Arguments that are not tensors follow the tensors: `Clip::apply({x}, 0.5)` calls `forward(FunctionContext& ctx, const Tensors&
// in, double bound)`. Store what backward needs of them in ctx.state.
//
// forward is not recorded. backward is recorded under create_graph and must then consist of differentiable ops.
// Mixed precision: see amp/step/custom.h for custom_fwd and custom_bwd.
#pragma once

#include <any>
#include <functional>
#include <string_view>
#include <vector>

#include "framework/autograd/node.h"

namespace halfstep {

class FunctionContext {
 public:
  // Keeps inputs or outputs of forward for backward, where saved() returns them. A second call replaces the list of the first.
  void save(const Tensors& tensors);
  Tensors saved() const;
  // Returns whether the gradient of this input is wanted; in forward: whether it may be wanted later.
  bool needs(size_t input) const;
  // Names outputs without a gradient: they do not require grad, and backward gets zeros for them. Call it in forward.
  void mark_non_differentiable(const Tensors& outputs) { non_differentiable_ = outputs; }
  // Names inputs that forward changes in place and returns. Call it in forward. A leaf that requires grad cannot be among them, nor
  // can a view.
  void mark_dirty(const Tensors& inputs) { dirty_ = inputs; }
  // false: backward gets undefined gradients, instead of zeros, for outputs that were not used.
  void set_materialize_grads(bool value) { materializes_grads_ = value; }
  std::any state;  // other values that backward needs
  std::any amp;    // used by custom_fwd / custom_bwd

 private:
  friend class FunctionNode;
  friend Tensors apply_function(std::string_view name, const std::function<Tensors(FunctionContext&, const Tensors&)>& forward,
                                Tensors (*backward)(FunctionContext&, const Tensors&), const Tensors& inputs);
  bool is_dirty(const Tensor& t) const;
  void check_dirty(std::string_view name, const Tensors& inputs, const Tensors& outputs, bool record) const;
  std::vector<bool> may_need_;                                // by input
  std::vector<Tensor> to_save_, non_differentiable_, dirty_;  // named by forward; cleared when it has been recorded
  bool materializes_grads_ = true;
  std::vector<SavedTensor> saved_;
  Node* node_ = nullptr;
  const BackwardCall* call_ = nullptr;  // while backward runs
};

using FunctionForward = std::function<Tensors(FunctionContext&, const Tensors&)>;
using FunctionBackward = Tensors (*)(FunctionContext&, const Tensors&);
Tensors apply_function(std::string_view name, const FunctionForward& forward, FunctionBackward backward, const Tensors& inputs);

template <class F>
struct Function {
  template <class... Args>
  static Tensors apply(const Tensors& inputs, const Args&... args) {
    const auto forward = [&](FunctionContext& ctx, const Tensors& in) { return F::forward(ctx, in, args...); };
    return apply_function("custom function", forward, &F::backward, inputs);
  }
};

}  // namespace halfstep
