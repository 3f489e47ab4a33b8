// SPDX-License-Identifier: Apache-2.0
#include "framework/autograd/node.h"

#include <atomic>
#include <mutex>

#include "framework/autograd/grad_mode.h"
#include "framework/autograd/leaf_listener.h"
#include "framework/autograd/scaled_backward.h"
#include "framework/base/fork_mutex.h"
#include "framework/base/layer_path.h"

namespace halfstep {
namespace {

std::atomic<uint64_t> next_sequence{1};
thread_local constinit UsedTensors* used_tensors = nullptr;

// The end of the graph at a leaf: adds incoming gradients to its .grad. It is created before the first op that uses the leaf gets
// its number, so it runs after all ops that use the leaf and before older ones. The leaf's hooks thus see the whole gradient while
// backward continues. The ops that use the leaf keep this node alive; if a graph outlives others, it may run later than necessary.
class AccumulateGrad final : public Node {
 public:
  explicit AccumulateGrad(const Tensor& leaf) : leaf_(leaf) {
    sequence = next_sequence++;
    is_leaf = true;
    outputs.push_back({leaf.shape(), leaf.dtype(), leaf.device()});
    AutogradMeta& meta = leaf.impl()->meta();
    if (!meta.hooks) meta.hooks = std::make_shared<HookList>();
    hooks.push_back(meta.hooks);
  }
  std::string_view name() const override { return "accumulate_grad"; }

  Tensors backward(Tensors grads, const BackwardCall& call) override {
    const Tensor& g = grads[0];
    if (!g.defined() || !leaf_.requires_grad()) return {};  // frozen since the forward
    check<AutogradError>(leaf_.dtype() == outputs[0].dtype && leaf_.device() == outputs[0].device, "backward",
                         leaf_.label().empty() ? "a leaf" : leaf_.label(), " of shape ", leaf_.shape(), " was ", outputs[0].dtype,
                         " on ", outputs[0].device, " in the forward and is ", leaf_.dtype(), " on ", leaf_.device(), " now",
                         Help{"convert and move modules before the forward"});
    add(g);
    if (call.reports) call.reports->accumulated(leaf_);
    return {};
  }

 private:
  void add(const Tensor& g) {
    const std::lock_guard lock(mutex_);
    leaf_.grad();  // converts a 16-bit gradient before adding to it
    AutogradMeta& meta = leaf_.impl()->meta();
    Tensor& slot = meta.grad;
    const bool scaled = ScaledBackward::is_scaled();
    const bool one_scale = ScaledBackward::join(leaf_, slot.defined() && meta.scaled) && meta.scaled == scaled;
    // Zeros, which grad().zero_() leaves, fit any scale. A mixed sum is an error only where it is used: a GAN's generator loss
    // leaves one in the critic, which zero_grad() clears.
    if (slot.defined() && (meta.mixed || !one_scale)) meta.mixed = !is_zero(slot);
    meta.scaled = scaled;
    if (grad_enabled()) {
      slot = slot.defined() ? slot.add(g) : g.clone();  // copies g, which may also be another tensor's gradient
    } else if (slot.defined()) {
      slot.add_(g);
    } else {
      // Takes g over if the engine holds its only handle and it has the leaf's layout: optimizers walk through both side by side.
      const MemoryFormat format = leaf_.format();
      slot = is_sole(g) && g.is_contiguous(format) ? g : g.detach().clone(format);
    }
  }

  std::mutex mutex_;  // for threads whose graphs share the leaf
  Tensor leaf_;
};

class AutocastCast final : public Node {
 public:
  std::string_view name() const override { return "autocast"; }
  bool is_autocast_cast() const override { return is_half(outputs[0].dtype); }
  // Runs for a cast to 16 bits only if the cast tensor itself is differentiated: other edges skip this node. For a cast to
  // float32, gradients are summed here in float32 and rounded once to the input's dtype.
  Tensors backward(Tensors grads, const BackwardCall&) override {
    return {grads[0].defined() ? grads[0].to(edges[0].dtype) : Tensor()};
  }
};

}  // namespace

bool is_sole(const Tensor& t) {
  return t.impl_ptr().use_count() == 1 && t.storage().use_count() == 1 && t.is_contiguous(t.format());
}

bool may_stay_low(const Edge& edge) {
  if (!low_gradients() || !edge || !edge.node->is_leaf || edge.dtype != DType::f32) return false;
  return edge.node->hooks.empty() || !edge.node->hooks[0] || edge.node->hooks[0]->empty();
}

DType grad_dtype(const Node& node, size_t input) {
  const DType own = node.outputs[0].dtype;
  return is_half(own) && may_stay_low(node.edges[input]) ? own : node.edges[input].dtype;
}

void check_view(const TensorImpl& impl) {
  check<AutogradError>(!impl.is_view || impl.recorded_writes_seen == impl.storage->recorded_writes, "autograd", "this view (shape ",
                       impl.shape, ") was made before its memory was changed in place, so its gradient would be wrong",
                       Help{"make the view again after the in-place operation"});
}

SavedTensor::SavedTensor(const Tensor& t, int output_index) : output_index_(output_index) {
  if (!t.defined()) return;
  tensor_ = output_index >= 0 ? t.alias(t.shape(), t.strides()) : t;
  version_ = t.version();
}

Tensor SavedTensor::unpack(Node& owner) const {
  check<AutogradError>(!released_, owner.name(), "the graph was freed by an earlier backward",
                       Help{"pass retain_graph = true to the first backward"});
  if (!tensor_.defined()) return tensor_;
  check<AutogradError>(tensor_.version() == version_, owner.name(), tensor_.label().empty() ? "a tensor" : tensor_.label(),
                       " of shape ", tensor_.shape(), " was modified in place after ", owner.name(), " saved it: version ",
                       tensor_.version(), ", saved at ", version_,
                       Help{"use the out-of-place form, or clone() before the in-place change"});
  if (output_index_ < 0 || !grad_enabled()) return tensor_;
  Tensor t = tensor_.alias(tensor_.shape(), tensor_.strides());
  AutogradMeta& meta = t.impl()->meta();
  meta.node = owner.shared_from_this();
  meta.output_index = uint32_t(output_index_);
  return t;
}

void destroy_node(Node* node) {
  // Freeing a node frees the tensors it saved and the nodes behind them; those queue up here instead of recursing.
  struct Queue {
    Node* first = nullptr;
    bool draining = false;
  };
  thread_local constinit Queue queue;
  node->next_to_destroy = queue.first;
  queue.first = node;
  if (queue.draining) return;
  queue.draining = true;
  while (queue.first) {
    Node* n = queue.first;
    queue.first = n->next_to_destroy;
    delete n;
  }
  queue.draining = false;
}

Edge edge_of(const Tensor& t) {
  if (!t.defined()) return {};
  check_view(*t.impl());
  if (!t.impl()->autograd) return {};
  TensorImpl& impl = *t.impl();
  AutogradMeta& meta = *impl.autograd;
  if (meta.node) {
    if (meta.node->is_autocast_cast()) return meta.node->edges[0];
    return {meta.node, meta.output_index, meta.node->outputs[meta.output_index].dtype};
  }
  if (!meta.requires_grad) return {};
  static constinit ForkMutex mutex;  // for threads that build graphs on one leaf
  const std::lock_guard lock(mutex);
  auto accumulator = meta.accumulator.lock();
  if (!accumulator) {
    accumulator = make_node<AccumulateGrad>(t);
    meta.accumulator = accumulator;
  }
  return {accumulator, 0, impl.dtype};
}

void attach(const std::shared_ptr<Node>& node, std::span<const Tensor> outputs) {
  node->sequence = next_sequence++;
  node->layer = LayerScope::current();
  node->outputs.reserve(outputs.size());
  for (const Tensor& t : outputs) {
    const auto index = uint32_t(node->outputs.size());
    node->outputs.push_back(t.defined() ? OutputMeta{t.shape(), t.dtype(), t.device()} : OutputMeta{});
    if (!t.defined() || !is_floating(t.dtype())) continue;  // indices and masks carry no gradient
    AutogradMeta& meta = t.impl()->meta();
    meta.node = node;
    meta.output_index = index;
  }
}

UsedTensors::Scope::Scope(UsedTensors& into) : outer_(used_tensors) { used_tensors = &into; }
UsedTensors::Scope::~Scope() { used_tensors = outer_; }

void UsedTensors::add(std::span<const Tensor> inputs) {
  for (const Tensor& t : inputs)
    if (t.defined() && t.requires_grad() && seen_.insert(t.impl()).second) list_.push_back(t);
}

bool should_record(std::span<const Tensor> inputs) {
  if (used_tensors) [[unlikely]]
    used_tensors->add(inputs);
  if (!grad_enabled()) return false;
  for (const Tensor& t : inputs) {
    if (!t.defined()) continue;
    if (t.requires_grad()) return true;
    check_view(*t.impl());
  }
  return false;
}

Tensor record_autocast(const Tensor& source, const Tensor& low) {
  if (!should_record({&source, 1})) return low;
  Tensor out = low.alias(low.shape(), low.strides());
  auto node = make_node<AutocastCast>();
  node->edges = {edge_of(source)};
  attach(node, out);
  return out;
}

Tensor record_rounding(const Tensor& low, DType wide) {
  if (!low.impl()->autograd || !low.impl()->autograd->node) return low;
  const AutogradMeta& meta = *low.impl()->autograd;
  meta.node->outputs[meta.output_index].dtype = wide;
  return low;
}

std::optional<DType> rounded_from(const Tensor& t) {
  if (!t.impl()->autograd || !t.impl()->autograd->node) return {};
  const DType dtype = t.impl()->autograd->node->outputs[t.impl()->autograd->output_index].dtype;
  return dtype == t.dtype() ? std::nullopt : std::optional(dtype);
}

}  // namespace halfstep
