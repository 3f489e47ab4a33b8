// SPDX-License-Identifier: Apache-2.0
#include "torch/autograd/autograd.h"

#include <cctype>

#include "framework/autograd/node.h"

namespace torch {
namespace autograd {

std::string Node::name() const {
  if (node_->is_leaf) return "torch::autograd::AccumulateGrad";
  std::string out;
  bool upper = true;
  for (char c : node_->name()) {
    const bool gap = c == '_' || c == ' ';
    if (!gap) out += upper ? char(std::toupper(c)) : c;
    upper = gap;
  }
  return out + "Backward0";
}
std::vector<Edge> Node::next_edges() const {
  std::vector<Edge> out;
  for (const hs::Edge& e : node_->edges) out.push_back({e.node ? std::make_shared<Node>(e.node) : nullptr, e.index});
  return out;
}

namespace {

// Checks outputs and their gradients in libtorch's words.
void check_outputs(const variable_list& outputs, const variable_list& gradients) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const bool is_given = i < gradients.size() && gradients[i].defined();
    TORCH_CHECK(outputs[i].requires_grad(), "element ", i, " of tensors does not require grad and does not have a grad_fn");
    TORCH_CHECK(is_given || outputs[i].numel() == 1, "grad can be implicitly created only for scalar outputs");
  }
}

}  // namespace

void backward(const variable_list& outputs, const variable_list& gradients, std::optional<bool> retain_graph, bool create_graph,
              const std::optional<variable_list>& inputs) {
  const bool retain = retain_graph.value_or(create_graph);
  if (create_graph) {
    TORCH_WARN_ONCE(
        "Using backward() with create_graph=True will create a reference cycle between the parameter and its gradient which can "
        "cause a memory leak. We recommend using autograd.grad when creating the graph to avoid this.");
  }
  check_outputs(outputs, gradients);
  if (!inputs) {
    hs::backward(::torch::detail::H(outputs), ::torch::detail::H(gradients), retain, create_graph);
    return;
  }
  TORCH_CHECK(!inputs->empty(), "'inputs' argument to backward cannot be empty");
  hs::backward(::torch::detail::H(outputs), ::torch::detail::H(gradients), retain, create_graph, ::torch::detail::H(*inputs));
}

variable_list grad(const variable_list& outputs, const variable_list& inputs, const variable_list& gradients,
                   std::optional<bool> retain_graph, bool create_graph, bool allow_unused) {
  TORCH_CHECK(!inputs.empty(), "grad requires non-empty inputs.");
  check_outputs(outputs, gradients);
  const hs::GradOptions options{
      .retain_graph = retain_graph.value_or(create_graph), .create_graph = create_graph, .allow_unused = true};
  const hs::Tensors found =
      hs::grad(::torch::detail::H(outputs), ::torch::detail::H(inputs), ::torch::detail::H(gradients), options);
  for (const hs::Tensor& gradient : found) {
    TORCH_CHECK(
        allow_unused || gradient.defined(),
        "One of the differentiated Tensors appears to not have been used in the graph. Set allow_unused=True if this is the "
        "desired behavior.");
  }
  return ::torch::detail::V(found);
}

}  // namespace autograd

Tensor Tensor::grad() const {
  if (!defined()) return {};
  const hs::Tensor& gradient = h_.grad();
  if (!gradient.defined() && !is_leaf() && !retains_grad()) {
    TORCH_WARN(
        "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't be populated "
        "during "
        "autograd.backward(). If you indeed want the .grad field to be populated for a non-leaf Tensor, use .retain_grad() on the "
        "non-leaf Tensor. If you access the non-leaf Tensor by mistake, make sure you access the leaf Tensor instead.");
  }
  return gradient;
}
std::shared_ptr<autograd::Node> Tensor::grad_fn() const {
  return h_.node() ? std::make_shared<autograd::Node>(h_.node()) : nullptr;
}
void Tensor::backward(const Tensor& gradient, std::optional<bool> retain_graph, bool create_graph,
                      std::optional<TensorList> inputs) const {
  autograd::variable_list gradients;
  if (gradient.defined()) gradients.push_back(gradient);
  autograd::backward({*this}, gradients, retain_graph, create_graph, inputs ? std::optional(inputs->vec()) : std::nullopt);
}

}  // namespace torch
