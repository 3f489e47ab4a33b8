// SPDX-License-Identifier: Apache-2.0
// The methods of Tensor that use the graph.
#include <algorithm>
#include <atomic>

#include "framework/autograd/autograd.h"
#include "framework/autograd/node.h"

namespace halfstep {

bool Tensor::requires_grad() const {
  const auto& meta = get().autograd;
  return meta && (meta->requires_grad || meta->node);
}

const Tensor& Tensor::set_requires_grad(bool value) const {
  check<AutogradError>(is_leaf(), "set_requires_grad", "only a leaf can change requires_grad", Help{"use detach()"});
  check<DTypeError>(!value || is_floating_point(), "set_requires_grad", "only floating tensors can require grad, got ", dtype());
  get().meta().requires_grad = value;
  return *this;
}

bool Tensor::is_leaf() const { return !node(); }

const std::shared_ptr<Node>& Tensor::node() const {
  static const auto& none = *new std::shared_ptr<Node>;
  const auto& meta = get().autograd;
  return meta ? meta->node : none;
}

const Tensor& Tensor::grad() const {
  const Tensor& g = raw_grad();
  if (g.defined() && is_half(g.dtype()) && dtype() == DType::f32) {
    const NoGrad off;
    const MemoryScope memory(MemoryTag::gradients);
    get().autograd->grad = g.to(DType::f32);
  }
  return g;
}

const Tensor& Tensor::raw_grad() const {
  static const Tensor none;
  const auto& meta = get().autograd;
  return meta ? meta->grad : none;
}

void Tensor::set_grad(const Tensor& g) const {
  check<ShapeError>(!g.defined() || g.shape() == shape(), "set_grad", "the gradient must have shape ", shape(), ", got ",
                    g.defined() ? g.shape() : Shape{});
  if (g.defined()) {
    check<DeviceError>(g.device() == device(), "set_grad", "the gradient must be on ", device(), ", got ", g.device());
    // Gradients of float32 leaves may be in 16 bits; see LowGradients.
    check<DTypeError>(g.dtype() == dtype() || (dtype() == DType::f32 && is_half(g.dtype())), "set_grad", "the gradient must be ",
                      dtype(), ", got ", g.dtype());
  }
  if (!g.defined() && !get().autograd) return;
  get().meta().grad = g;
  get().meta().scaled = get().meta().mixed = false;
}

void Tensor::backward(const Tensor& gradient, bool retain_graph, bool create_graph) const {
  halfstep::backward({*this}, {gradient}, retain_graph, create_graph);
}
void Tensor::backward(const Tensor& gradient, bool retain_graph, bool create_graph, const Tensors& inputs) const {
  halfstep::backward({*this}, {gradient}, retain_graph, create_graph, inputs);
}

Tensor Tensor::detach() const { return alias(shape(), strides()); }

const Tensor& Tensor::detach_() const {
  check<AutogradError>(!get().is_view, "detach_", "a view cannot be detached in place, got shape ", shape(), Help{"use detach()"});
  if (!get().autograd) return *this;
  AutogradMeta& meta = get().meta();
  if (std::exchange(meta.retains_grad, false)) meta.node->retained[meta.output_index].reset();
  meta.hooks.reset();
  meta.node.reset();
  meta.requires_grad = false;
  return *this;
}

void Tensor::retain_grad() const {
  check<AutogradError>(requires_grad(), "retain_grad", "the tensor does not require grad");
  if (is_leaf()) return;
  AutogradMeta& meta = get().meta();
  if (meta.retains_grad) return;
  meta.retains_grad = true;
  auto& retained = meta.node->retained;
  if (retained.size() <= meta.output_index) retained.resize(meta.output_index + 1);
  retained[meta.output_index] = impl_;
}

uint64_t Tensor::register_hook(TensorHook hook) const {
  check<AutogradError>(requires_grad(), "register_hook", "the tensor does not require grad");
  check<ValueError>(hook != nullptr, "register_hook", "needs a function, got an empty one");
  static std::atomic<uint64_t> next{1};
  AutogradMeta& meta = get().meta();
  if (!meta.hooks) meta.hooks = std::make_shared<HookList>();
  if (meta.node) {
    auto& hooks = meta.node->hooks;
    if (hooks.size() <= meta.output_index) hooks.resize(meta.output_index + 1);
    if (hooks[meta.output_index])
      meta.hooks = hooks[meta.output_index];
    else
      hooks[meta.output_index] = meta.hooks;
  }
  const uint64_t key = next++;
  meta.hooks->emplace_back(key, std::move(hook));
  return key;
}

void Tensor::remove_hook(uint64_t key) const {
  const auto& meta = get().autograd;
  const size_t removed =
      meta && meta->hooks ? std::erase_if(*meta->hooks, [&](const auto& entry) { return entry.first == key; }) : 0;
  check<ValueError>(removed > 0, "remove_hook", "the tensor has no hook with the key ", key,
                    Help{"register_hook returned it, and a hook can be removed once"});
}

void Tensor::set_data(const Tensor& values) const {
  TensorImpl &to = get(), &from = values.get();
  if (&to == &from) return;
  check<DTypeError>(!requires_grad() || values.is_floating_point(), "set_data",
                    "a tensor that requires grad must stay floating, got ", values.dtype());
  check<AutogradError>(is_leaf(), "set_data", "only a leaf can get other data, got a result of shape ", shape(),
                       Help{"use detach() first"});
  if (to.autograd) {
    // The node that adds gradients has the old shape, dtype and device.
    if (to.shape != from.shape || to.dtype != from.dtype || device() != values.device()) to.autograd->accumulator.reset();
    to.autograd->shadow = {};
    to.autograd->column_sums = {};
  }
  to.storage = from.storage;
  to.offset = from.offset;
  to.shape = from.shape;
  to.strides = from.strides;
  to.dtype = from.dtype;
  to.is_view = false;
  to.base.reset();
  to.recorded_writes_seen = from.storage->recorded_writes;
}

}  // namespace halfstep
