// SPDX-License-Identifier: Apache-2.0
// Reverse-mode differentiation: the functions for users. The graph itself is in node.h.
//
// The engine is iterative (a chain of 300,000 ops works and can be freed). It runs with autocast off, so a backward inside a
// region gives the same gradients as outside. A gradient has the shape and dtype of its tensor; the engine converts gradients of
// ops that cannot.
// Several threads may differentiate their own graphs at once, also graphs of one model, and may call grad() with retain_graph on
// the same graph. If two threads add to one .grad, the order of their sums is not fixed. When all uses of a leaf have been
// processed, its .grad is complete and its hooks run; backward may then still continue for other tensors.
#pragma once

#include <concepts>

#include "framework/autograd/grad_mode.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

// Adds the gradient of sum_i outputs[i] . grad_outputs[i] to .grad of every leaf that requires grad and on which it depends. An
// undefined or missing grad_output means ones; only one-element outputs may omit it. retain_graph: keeps saved tensors for another
// backward; implied by create_graph, which records the backward itself. Throws AutogradError if an output has no graph, or a saved
// tensor was freed or changed in place. With `inputs`, only these get gradients, leaves or not; others keep theirs. Throws
// AutogradError if the outputs do not depend on one of them.
void backward(const Tensors& outputs, const Tensors& grad_outputs = {}, bool retain_graph = false, bool create_graph = false,
              const Tensors& inputs = {});

struct GradOptions {
  bool retain_graph = false;
  bool create_graph = false;
  bool allow_unused = false;  // an input outside the graph gives an undefined gradient instead of an error
};

// Returns the gradients with respect to `inputs` (leaves or not); does not change any .grad.
Tensors grad(const Tensors& outputs, const Tensors& inputs, const Tensors& grad_outputs = {}, const GradOptions& options = {});
// Returns the same for one output: grad(loss, model.parameters()), grad(y, x).
template <std::derived_from<Tensor> Output>
Tensors grad(const Output& output, const Tensors& inputs, const Tensors& grad_outputs = {}, const GradOptions& options = {}) {
  return grad(Tensors{output}, inputs, grad_outputs, options);
}
template <std::derived_from<Tensor> Output, std::derived_from<Tensor> Input>
Tensors grad(const Output& output, const Input& input, const Tensors& grad_outputs = {}, const GradOptions& options = {}) {
  return grad(Tensors{output}, Tensors{input}, grad_outputs, options);
}

}  // namespace halfstep
