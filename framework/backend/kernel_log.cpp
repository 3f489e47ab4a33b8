// SPDX-License-Identifier: Apache-2.0
#include "framework/backend/kernel_log.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "framework/backend/backend.h"
#include "framework/backend/observed_backend.h"
#include "framework/base/check.h"
#include "framework/base/layer_path.h"
#include "framework/math/tally.h"

namespace halfstep {
namespace {

// Returns the addresses of a view's first byte and of the end of its last element.
std::pair<uintptr_t, uintptr_t> extent(const TensorView& v) {
  int64_t low = 0, high = 0;
  for (int d = 0; d < v.shape.size(); ++d) {
    if (v.shape[d] == 0) return {0, 0};
    const int64_t reach = v.strides[d] * (v.shape[d] - 1);
    (reach < 0 ? low : high) += reach;
  }
  const auto first = reinterpret_cast<uintptr_t>(v.data);
  const int64_t size = int64_t(size_of(v.dtype));
  return {first + uintptr_t(low * size), first + uintptr_t((high + 1) * size)};
}

bool overlap(const TensorView& a, const TensorView& b) {
  const auto [a_begin, a_end] = extent(a);
  const auto [b_begin, b_end] = extent(b);
  return a_begin < b_end && b_begin < a_end;
}

ValueCounts counts_of_number(const TensorView& v) {
  const double x = v.dtype == DType::f64 ? *v.as<double>() : double(*v.as<float>());
  ValueCounts out{.numel = 1};
  out.nan = std::isnan(x);
  out.positive_inf = std::isinf(x) && x > 0;
  out.negative_inf = std::isinf(x) && x < 0;
  out.zero = x == 0;
  if (!std::isfinite(x) || x == 0) return out;
  out.negative = x < 0;
  out.largest = out.smallest = std::abs(x);
  return out;
}

ValueCounts counts_of_row(const int64_t* row, int64_t numel) {
  ValueCounts out{.numel = numel};
  out.nan = row[math::kTallyNan];
  out.positive_inf = row[math::kTallyPositiveInf];
  out.negative_inf = row[math::kTallyNegativeInf];
  out.zero = row[math::kTallyZero];
  out.negative = row[math::kTallyNegative];
  out.subnormal = row[math::kTallySubnormal];
  out.largest = std::bit_cast<double>(row[math::kTallyLargest]);
  if (out.largest > 0) out.smallest = std::bit_cast<double>(row[math::kTallySmallest]);
  return out;
}

// Counts the values with the kernel `tally`, which writes to `row`.
ValueCounts count_values(Backend& backend, const TensorView& v, const TensorView& row) {
  if (!is_floating(v.dtype) || v.numel() == 0) return {.numel = v.numel()};
  if (v.number) return counts_of_number(v);
  backend.tally(v, false, row);
  int64_t host[math::kTallyCounts];
  backend.copy_to_host(row.data, host, sizeof host);
  return counts_of_row(host, v.numel());
}

Tensor tally_row(Device device) {
  const MemoryScope tag(MemoryTag::workspace);
  return Tensor::empty({math::kTallyCounts}, {.dtype = DType::i64, .device = device});
}

}  // namespace

ValueCounts count_values(const Tensor& t) { return count_values(backend_for(t.device()), t.view(), tally_row(t.device()).view()); }

bool KernelEvent::any_not_finite() const {
  return std::any_of(writes.begin(), writes.end(), [](const KernelWrite& w) { return w.counts.any_not_finite(); });
}

KernelLog::KernelLog(Device device, Change change, Look look)
    : device_(device), real_(unobserved_backend(device)), change_(std::move(change)), look_(look), row_(tally_row(device)) {
  check<ValueError>(!device.is_meta(), "KernelLog", "a log of kernels needs values, which Device::meta does not have");
  check<ValueError>(!Observing::find<KernelLog>(), "KernelLog", "this thread has an open log of kernels");
  observing_.emplace(*this);
}
KernelLog::~KernelLog() = default;

void KernelLog::add_root(std::string name, const Tensor& t, bool on_purpose) {
  if (!t.defined()) return;
  roots_.push_back(std::move(name));
  on_purpose_.push_back(on_purpose);
  set_producer(t.view(), -1 - int(roots_.size()));
}

ValueCounts KernelLog::count(const TensorView& v) { return count_values(real_, v, row_.view()); }

void KernelLog::set_producer(const TensorView& v, int producer) {
  const auto [begin, end] = extent(v);
  if (begin >= end) return;
  auto at = ranges_.lower_bound(begin);
  if (at != ranges_.begin()) {  // cuts the range before it, which may surround this one
    auto& [first, range] = *std::prev(at);
    if (range.end > begin) {
      if (range.end > end) ranges_[end] = range;
      range.end = begin;
    }
  }
  at = ranges_.lower_bound(begin);
  while (at != ranges_.end() && at->first < end) {
    const Range old = at->second;
    at = ranges_.erase(at);
    if (old.end > end) ranges_[end] = old;
  }
  ranges_[begin] = {end, producer};
}

std::vector<int> KernelLog::producers_of(const TensorView& v) const {
  const auto [begin, end] = extent(v);
  std::vector<int> out;
  auto at = ranges_.upper_bound(begin);
  if (at != ranges_.begin()) --at;
  for (; at != ranges_.end() && at->first < end; ++at)
    if (at->second.end > begin && at->second.producer != kHost) out.push_back(at->second.producer);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::vector<std::optional<ValueCounts>> KernelLog::count_overwritten(std::span<const TensorView> reads,
                                                                     std::span<const TensorView> writes) {
  std::vector<std::optional<ValueCounts>> out(reads.size());
  for (size_t i = 0; i < reads.size(); ++i) {
    if (reads[i].number) continue;
    if (std::any_of(writes.begin(), writes.end(), [&](const TensorView& w) { return overlap(reads[i], w); }))
      out[i] = count(reads[i]);
  }
  return out;
}

void KernelLog::begin(const ObservedCall& call) {
  if (call.kind == SpanKind::cast) ++casting_;
  if (call.kind == SpanKind::op && depth_++ == 0) op_ = call.name;
}
void KernelLog::end(const ObservedCall& call, const CallResult&) {
  if (call.kind == SpanKind::cast) --casting_;
  if (call.kind == SpanKind::op) --depth_;
}

void KernelLog::before_kernel(const ObservedKernel& k) {
  if (look_ != Look::gradients && k.device == device_) overwritten_.insert_or_assign(&k, count_overwritten(k.reads, k.writes));
}

void KernelLog::kernel(const ObservedKernel& k) {
  if (k.device != device_) return;
  if (k.from_host) return set_producer(k.writes[0], kHost);
  if (look_ == Look::gradients) {
    if (k.by_library || Observing::pass() != StepPass::backward) return;
    for (const TensorView& v : k.writes) log_gradient(v);
    return;
  }
  const std::vector<std::optional<ValueCounts>> overwritten = std::move(overwritten_.extract(&k).mapped());
  const int id = int(events_.size());
  KernelEvent event;
  event.kernel = k.name;
  event.op = depth_ > 0 ? std::string_view(op_) : casting_ > 0 ? "autocast" : k.name;
  event.pass = Observing::pass();
  event.layer = LayerScope::current();
  if (change_) {
    const auto out =
        std::find_if(k.writes.begin(), k.writes.end(), [](const TensorView& v) { return is_floating(v.dtype) && v.numel() > 0; });
    if (out != k.writes.end()) change_(id, *out);
  }
  for (const TensorView& v : k.writes) event.writes.push_back({v.dtype, v.shape, count(v)});
  const bool not_finite = event.any_not_finite();
  for (size_t i = 0; i < k.reads.size(); ++i) {
    const TensorView& v = k.reads[i];
    KernelRead read{v.dtype, v.shape, v.number, {}, {}};
    if (!v.number) read.producers = producers_of(v);
    if (not_finite) read.counts = overwritten[i] ? overwritten[i] : count(v);
    event.reads.push_back(std::move(read));
  }
  for (const TensorView& v : k.writes) set_producer(v, id);
  events_.push_back(std::move(event));
  if (seen_) seen_(events_.back(), k.writes);
}

void KernelLog::log_gradient(const TensorView& v) {
  if (v.dtype != DType::f16) return;
  const ValueCounts c = count(v);
  largest_gradient_ = c.any_not_finite() ? std::numeric_limits<double>::infinity() : std::max(largest_gradient_, c.largest);
}

}  // namespace halfstep
