// SPDX-License-Identifier: Apache-2.0
// Reverse-mode differentiation: the functions for users. The graph itself is in node.h.
//
// The engine is iterative (a chain of 300,000 ops works and is freed) and runs with autocast off, so that a backward inside a
// region gives the same gradients as outside. A gradient has its tensor's shape and dtype; where an op cannot know better, the
// engine converts.
// Threads may differentiate graphs of their own at once, also of one model, and ask one graph for grad() with retain_graph; what
// two threads add to one .grad comes in the order of their arrival. The hooks of a leaf run, and its .grad is complete, as soon as
// all uses of the leaf have been through; what was computed from other tensors before may still be to come.
#pragma once

#include <concepts>

#include "framework/autograd/grad_mode.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

// Adds the gradient of sum_i outputs[i] . grad_outputs[i] to .grad of every leaf that requires grad and that it depends on.
// An undefined or missing grad_output means ones, legal for one-element outputs only.
// retain_graph: keep saved tensors for another backward; implied by create_graph, which records the backward itself.
// Throws AutogradError when an output has no graph, or a saved tensor was freed or changed in place.
void backward(const Tensors& outputs, const Tensors& grad_outputs = {}, bool retain_graph = false, bool create_graph = false);

struct GradOptions {
  bool retain_graph = false;
  bool create_graph = false;
  bool allow_unused = false;  // an input outside the graph gives an undefined gradient instead of an error
};

// The gradients with respect to `inputs` (leaves or not); touches no .grad.
Tensors grad(const Tensors& outputs, const Tensors& inputs, const Tensors& grad_outputs = {}, const GradOptions& options = {});
// Of one output: grad(loss, model.parameters()), grad(y, x).
template <std::derived_from<Tensor> Output>
Tensors grad(const Output& output, const Tensors& inputs, const Tensors& grad_outputs = {}, const GradOptions& options = {}) {
  return grad(Tensors{output}, inputs, grad_outputs, options);
}
template <std::derived_from<Tensor> Output, std::derived_from<Tensor> Input>
Tensors grad(const Output& output, const Input& input, const Tensors& grad_outputs = {}, const GradOptions& options = {}) {
  return grad(Tensors{output}, Tensors{input}, grad_outputs, options);
}

}  // namespace halfstep
