// SPDX-License-Identifier: Apache-2.0
#include "framework/parallel/gradient_reducer.h"

#include <algorithm>
#include <cmath>

#include "framework/autograd/grad_mode.h"
#include "framework/autograd/scaled_backward.h"
#include "framework/backend/backend.h"

namespace halfstep {
namespace {

constexpr int64_t kAlignment = 16;  // elements, so that each gradient begins at a cache line

}  // namespace

GradientReducer::GradientReducer(const std::vector<Tensor>& parameters, ProcessGroup& group, const ReducerOptions& options)
    : group_(group), options_(options), listen_(*this, parameters) {
  check<ValueError>(options.first_bucket_mb > 0 && options.bucket_mb > 0, "distributed", "a bucket must have more than 0 MB, got ",
                    options.first_bucket_mb, " and ", options.bucket_mb);
  assign_slots(parameters);
  const MemoryScope tag(MemoryTag::gradients);
  for (size_t i = 0; i < buckets_.size(); ++i) allocate(buckets_[i], most_bytes(i));
}

double GradientReducer::most_bytes(size_t bucket) const {
  return (bucket == 0 ? options_.first_bucket_mb : options_.bucket_mb) * 1024 * 1024;
}

void GradientReducer::assign_slots(const std::vector<Tensor>& parameters) {
  for (auto p = parameters.rbegin(); p != parameters.rend(); ++p) {
    if (!p->requires_grad() || slot_of_.contains(p->impl())) continue;
    const bool fits = !buckets_.empty() && slots_.back().parameter.dtype() == p->dtype() &&
                      slots_.back().parameter.device() == p->device() &&
                      double((buckets_.back().used + p->numel()) * int64_t(size_of(p->dtype()))) <= most_bytes(buckets_.size() - 1);
    if (!fits) buckets_.emplace_back();
    Bucket& bucket = buckets_.back();
    slot_of_[p->impl()] = slots_.size();
    bucket.slot_indices.push_back(slots_.size());
    slots_.push_back({*p, buckets_.size() - 1, bucket.used});
    bucket.used += (p->numel() + kAlignment - 1) / kAlignment * kAlignment;
  }
}

void GradientReducer::allocate(Bucket& bucket, double limit_bytes) {
  const Tensor& first = slots_[bucket.slot_indices[0]].parameter;
  const int64_t granule = kAlignment * group_.size();  // every rank sums the same number of aligned elements
  const auto round_up = [&](int64_t n) { return (n + granule - 1) / granule * granule; };
  const int64_t end = round_up(bucket.used + int64_t(bucket.slot_indices.size()));
  bucket.buffer = Tensor::empty({end}, {.dtype = first.dtype(), .device = first.device()});
  backend_for(first.device()).fill(bucket.buffer.view(), 0);  // including the gaps between gradients
  // Equal pieces. The flags and the rest of a line do not make another one.
  const double most_elements = limit_bytes / double(size_of(first.dtype()));
  const auto count = std::max(int64_t(1), int64_t(std::ceil(double(bucket.used - kAlignment) / most_elements)));
  const int64_t piece = round_up((end + count - 1) / count);
  for (int64_t at = 0; at < end; at += piece) bucket.pieces.push_back(bucket.buffer.alias({std::min(piece, end - at)}, {1}, at));
}

std::vector<int64_t> GradientReducer::bucket_bytes() const {
  std::vector<int64_t> out;
  for (const Bucket& bucket : buckets_)
    for (const Tensor& piece : bucket.pieces) out.push_back(int64_t(piece.nbytes()));
  return out;
}

// Returns the gradient's part of the bucket in the parameter's layout, which optimizers require.
Tensor GradientReducer::gradient_view(const Slot& slot) const {
  const Shape& shape = slot.parameter.shape();
  return buckets_[slot.bucket].buffer.alias(shape, strides_of(shape, slot.parameter.format()), slot.offset);
}

void GradientReducer::arm() {
  armed_ = true;
  sent_ = arrived_ = 0;
  for (Slot& slot : slots_) slot.filled = false;
  for (Bucket& bucket : buckets_) bucket.filled = 0;
}

void GradientReducer::accumulated(const Tensor& leaf, const Tensor& gradient) {
  const auto at = open_ || armed_ ? slot_of_.find(leaf.impl()) : slot_of_.end();
  if (at == slot_of_.end()) return;
  Slot& slot = slots_[at->second];
  if (!armed_) {
    if (gradient.requires_grad()) return;  // it is part of a graph
    copy(slot, gradient);
    move_grad(leaf, gradient_view(slot));
    return;
  }
  check<AutogradError>(!slot.filled, "distributed", leaf.label().empty() ? "a parameter" : leaf.label(),
                       " got a second gradient after its first was sent",
                       Help{"run one backward a step, on the sum of the losses, or let no_sync() cover all but the last"});
  ++arrived_;
  fill(slot, gradient);
  send_full();
}

void GradientReducer::copy(const Slot& slot, const Tensor& gradient) {
  const Tensor to = gradient_view(slot);
  if (gradient.const_data_ptr() == to.const_data_ptr()) return;
  backend_for(to.device()).copy(in_memory_order(gradient.view(), to.format()), in_memory_order(to.view(), to.format()));
  to.bump_version();
}

void GradientReducer::fill(Slot& slot, const Tensor& gradient) {
  Bucket& bucket = buckets_[slot.bucket];
  Backend& backend = backend_for(bucket.buffer.device());
  slot.filled = true;
  slot.given = gradient.defined();
  if (slot.given)
    copy(slot, gradient);
  else
    backend.fill(gradient_view(slot).view(), -0.0);
  move_grad(slot.parameter, Tensor());
  ++bucket.filled;
}

void GradientReducer::set_flags(Bucket& bucket) {
  std::vector<bool> given;
  for (const size_t slot : bucket.slot_indices) given.push_back(slots_[slot].given);
  Backend& backend = backend_for(bucket.buffer.device());
  Tensor& flags = bucket.flags[given];
  if (!flags.defined()) {
    const MemoryScope tag(MemoryTag::gradients);
    const DType dtype = bucket.buffer.dtype();
    std::vector<char> host(given.size() * size_of(dtype));
    for (size_t i = 0; i < given.size(); ++i)
      backend_for(Device::cpu).fill(TensorView{host.data() + i * size_of(dtype), dtype, {1}, {1}}, given[i] ? 1 : 0);
    flags = Tensor::empty({int64_t(given.size())}, {.dtype = dtype, .device = bucket.buffer.device()});
    backend.copy_from_host(host.data(), flags.data_ptr(), host.size());
  }
  backend.copy(flags.view(), bucket.buffer.alias(flags.shape(), {1}, bucket.used).view());
}

void GradientReducer::send_full() {
  for (; sent_ < buckets_.size() && buckets_[sent_].filled == buckets_[sent_].slot_indices.size(); ++sent_) {
    Bucket& bucket = buckets_[sent_];
    if (options_.scale != 1) {
      const NoGrad off;
      bucket.buffer.alias({bucket.used}, {1}).mul_(options_.scale);
    }
    set_flags(bucket);
    for (const Tensor& piece : bucket.pieces) bucket.ticket = group_.all_reduce({piece}, ReduceOp::sum, options_.wire);
  }
}

void GradientReducer::send_rest() {
  for (Slot& slot : slots_) {
    if (!slot.filled) fill(slot, slot.parameter.grad());  // the gradient of an earlier micro-batch, or none
  }
  send_full();
  open_ = armed_ = false;
}

void GradientReducer::take() {
  if (buckets_.empty()) return;
  group_.wait(buckets_.back().ticket);
  for (Slot& slot : slots_) slot.shared = slot.given;
  for (const Bucket& bucket : buckets_) {
    if (bucket.buffer.device().is_meta()) continue;  // in a plan all ranks equal this one
    const std::vector<double> users =
        bucket.buffer.alias({int64_t(bucket.slot_indices.size())}, {1}, bucket.used).to_vector<double>();
    for (size_t i = 0; i < users.size(); ++i) slots_[bucket.slot_indices[i]].shared = users[i] > 0;
  }
  for (Slot& slot : slots_) {
    slot.expected = slot.given;
    move_grad(slot.parameter, slot.shared ? gradient_view(slot) : Tensor());
  }
}

void GradientReducer::take_recorded() {
  if (buckets_.empty()) return;
  group_.wait(buckets_.back().ticket);
  for (const Slot& slot : slots_) {
    check<RecordingError>(slot.given == slot.expected, "record",
                          "a step that is recorded must use the parameters that the last one used");
    move_grad(slot.parameter, slot.shared ? gradient_view(slot) : Tensor());
  }
}

}  // namespace halfstep
