// SPDX-License-Identifier: Apache-2.0
#include "framework/parallel/gradient_reducer.h"

#include <algorithm>
#include <cmath>

#include "framework/autograd/grad_mode.h"
#include "framework/autograd/scaled_backward.h"
#include "framework/backend/backend.h"

namespace halfstep {
namespace {

constexpr int64_t kAlign = 16;  // elements, so that each gradient begins at a cache line

}  // namespace

GradientReducer::GradientReducer(const std::vector<Tensor>& parameters, ProcessGroup& group, const ReducerOptions& options)
    : group_(group), options_(options), listen_(*this, parameters) {
  check<ValueError>(options.first_bucket_mb > 0 && options.bucket_mb > 0, "distributed", "a bucket must have more than 0 MB, got ",
                    options.first_bucket_mb, " and ", options.bucket_mb);
  const auto room = [&](size_t bucket) { return (bucket == 0 ? options.first_bucket_mb : options.bucket_mb) * 1024 * 1024; };
  for (auto p = parameters.rbegin(); p != parameters.rend(); ++p) {
    if (!p->requires_grad() || slot_of_.contains(p->impl())) continue;
    const bool fits = !buckets_.empty() && slots_.back().parameter.dtype() == p->dtype() &&
                      slots_.back().parameter.device() == p->device() &&
                      double((buckets_.back().used + p->numel()) * int64_t(size_of(p->dtype()))) <= room(buckets_.size() - 1);
    if (!fits) buckets_.emplace_back();
    Bucket& b = buckets_.back();
    slot_of_[p->impl()] = slots_.size();
    b.parts.push_back(slots_.size());
    slots_.push_back({*p, buckets_.size() - 1, b.used});
    b.used += (p->numel() + kAlign - 1) / kAlign * kAlign;
  }
  const MemoryScope tag(MemoryTag::gradients);
  for (size_t i = 0; i < buckets_.size(); ++i) {
    Bucket& b = buckets_[i];
    const Tensor& first = slots_[b.parts[0]].parameter;
    const int64_t equal = kAlign * group.size();  // every rank sums the same number of aligned elements
    const auto whole = [&](int64_t n) { return (n + equal - 1) / equal * equal; };
    const int64_t end = whole(b.used + int64_t(b.parts.size()));
    b.buffer = Tensor::empty({end}, {.dtype = first.dtype(), .device = first.device()});
    backend_for(first.device()).fill(b.buffer.view(), 0);  // including the gaps between gradients
    // Equal pieces. The flags and the rest of a line do not make another one.
    const double most = room(i) / double(size_of(first.dtype()));
    const auto count = std::max(int64_t(1), int64_t(std::ceil(double(b.used - kAlign) / most)));
    const int64_t each = whole((end + count - 1) / count);
    for (int64_t at = 0; at < end; at += each) b.pieces.push_back(b.buffer.alias({std::min(each, end - at)}, {1}, at));
  }
}

std::vector<int64_t> GradientReducer::bucket_bytes() const {
  std::vector<int64_t> out;
  for (const Bucket& b : buckets_)
    for (const Tensor& piece : b.pieces) out.push_back(int64_t(piece.nbytes()));
  return out;
}

// Returns the gradient's part of the bucket in the parameter's layout, which optimizers require.
Tensor GradientReducer::part(const Slot& s) const {
  const Shape& shape = s.parameter.shape();
  return buckets_[s.bucket].buffer.alias(shape, strides_of(shape, s.parameter.format()), s.offset);
}

void GradientReducer::arm() {
  armed_ = true;
  sent_ = arrived_ = 0;
  for (Slot& s : slots_) s.filled = false;
  for (Bucket& b : buckets_) b.filled = 0;
}

void GradientReducer::accumulated(const Tensor& leaf, const Tensor& gradient) {
  const auto at = open_ || armed_ ? slot_of_.find(leaf.impl()) : slot_of_.end();
  if (at == slot_of_.end()) return;
  Slot& s = slots_[at->second];
  if (!armed_) {
    if (gradient.requires_grad()) return;  // it is part of a graph
    copy(s, gradient);
    move_grad(leaf, part(s));
    return;
  }
  check<AutogradError>(!s.filled, "distributed", leaf.label().empty() ? "a parameter" : leaf.label(),
                       " got a second gradient after its first was sent",
                       Help{"run one backward a step, on the sum of the losses, or let no_sync() cover all but the last"});
  ++arrived_;
  fill(s, gradient);
  send_full();
}

void GradientReducer::copy(const Slot& s, const Tensor& gradient) {
  const Tensor to = part(s);
  if (gradient.const_data_ptr() == to.const_data_ptr()) return;
  backend_for(to.device()).copy(in_memory_order(gradient.view(), to.format()), in_memory_order(to.view(), to.format()));
  to.bump_version();
}

void GradientReducer::fill(Slot& s, const Tensor& gradient) {
  Bucket& b = buckets_[s.bucket];
  Backend& backend = backend_for(b.buffer.device());
  s.filled = true;
  s.given = gradient.defined();
  if (s.given)
    copy(s, gradient);
  else
    backend.fill(part(s).view(), -0.0);
  move_grad(s.parameter, Tensor());
  ++b.filled;
}

void GradientReducer::set_flags(Bucket& b) {
  std::vector<bool> given;
  for (const size_t s : b.parts) given.push_back(slots_[s].given);
  Backend& backend = backend_for(b.buffer.device());
  Tensor& flags = b.flags[given];
  if (!flags.defined()) {
    const MemoryScope tag(MemoryTag::gradients);
    const DType dtype = b.buffer.dtype();
    std::vector<char> host(given.size() * size_of(dtype));
    for (size_t i = 0; i < given.size(); ++i)
      backend_for(Device::cpu).fill(TensorView{host.data() + i * size_of(dtype), dtype, {1}, {1}}, given[i] ? 1 : 0);
    flags = Tensor::empty({int64_t(given.size())}, {.dtype = dtype, .device = b.buffer.device()});
    backend.copy_from_host(host.data(), flags.data_ptr(), host.size());
  }
  backend.copy(flags.view(), b.buffer.alias(flags.shape(), {1}, b.used).view());
}

void GradientReducer::send_full() {
  for (; sent_ < buckets_.size() && buckets_[sent_].filled == buckets_[sent_].parts.size(); ++sent_) {
    Bucket& b = buckets_[sent_];
    if (options_.scale != 1) {
      const NoGrad off;
      b.buffer.alias({b.used}, {1}).mul_(options_.scale);
    }
    set_flags(b);
    for (const Tensor& piece : b.pieces) b.ticket = group_.all_reduce({piece}, ReduceOp::sum, options_.wire);
  }
}

void GradientReducer::send_rest() {
  for (Slot& s : slots_) {
    if (!s.filled) fill(s, s.parameter.grad());  // the gradient of an earlier micro-batch, or none
  }
  send_full();
  open_ = armed_ = false;
}

void GradientReducer::take() {
  if (buckets_.empty()) return;
  group_.wait(buckets_.back().ticket);
  for (Slot& s : slots_) s.shared = s.given;
  for (const Bucket& b : buckets_) {
    if (b.buffer.device().is_meta()) continue;  // in a plan all ranks equal this one
    const std::vector<double> users = b.buffer.alias({int64_t(b.parts.size())}, {1}, b.used).to_vector<double>();
    for (size_t i = 0; i < users.size(); ++i) slots_[b.parts[i]].shared = users[i] > 0;
  }
  for (Slot& s : slots_) {
    s.expected = s.given;
    move_grad(s.parameter, s.shared ? part(s) : Tensor());
  }
}

void GradientReducer::take_recorded() {
  if (buckets_.empty()) return;
  group_.wait(buckets_.back().ticket);
  for (const Slot& s : slots_) {
    check<RecordingError>(s.given == s.expected, "record",
                          "a step that is recorded must use the parameters that the last one used");
    move_grad(s.parameter, s.shared ? part(s) : Tensor());
  }
}

}  // namespace halfstep
