// SPDX-License-Identifier: Apache-2.0
#include "framework/backend/profile.h"

#include <algorithm>
#include <chrono>

#include "framework/backend/backend.h"
#include "framework/backend/ledger.h"
#include "framework/base/check.h"

namespace halfstep {
namespace {

int64_t nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool nests(SpanKind kind) { return kind == SpanKind::op || kind == SpanKind::cast; }

}  // namespace

ProfileScope::ProfileScope(Device device, size_t limit) : limit_(limit) {
  check<ValueError>(!device.is_meta(), "ProfileScope", "a profile needs a device that computes, got ", device);
  check<ValueError>(!open_, "ProfileScope", "this thread has an open profile");
  stopwatch_ = backend_for(device).open_stopwatch();
  if (stopwatch_) {
    stopwatch_->mark();  // throws where it cannot
    marks_.push_back({-1, true});
    no_kernels_ = stopwatch_->no_work();
  }
  start_ = nanoseconds();
  open_ = this;
}
ProfileScope::~ProfileScope() {
  if (open_ == this) open_ = nullptr;
}

int64_t ProfileScope::now() const { return nanoseconds() - start_; }

int ProfileScope::open(SpanKind kind, std::string_view name, std::span<const Tensor> inputs, const std::string* layer) {
  const int depth = depth_;
  const bool kept = spans_.size() < limit_;
  if (kept) {
    ProfileSpan span;
    span.kind = kind, span.pass = Ledger::current_pass(), span.depth = depth;
    span.name = name, span.layer = layer;
    span.inputs.reserve(inputs.size());
    for (const Tensor& t : inputs)
      if (t.defined()) span.inputs.push_back({t.shape(), t.dtype()});
    mark(int(spans_.size()), true);
    if (stopwatch_) stopwatch_->enter(int(spans_.size()));
    spans_.push_back(std::move(span));
    spans_.back().begin = now();
  } else {
    ++left_out_;
  }
  ++open_spans_;
  if (nests(kind)) ++depth_;
  return kept ? int(spans_.size()) - 1 : nests(kind) ? -2 : -1;
}

void ProfileScope::close(int span) noexcept {
  --open_spans_;
  if (span == -2 || (span >= 0 && nests(spans_[size_t(span)].kind))) --depth_;
  if (span < 0) return;
  spans_[size_t(span)].end = now();
  if (stopwatch_) stopwatch_->leave();
  mark(span, false);
}

// A device that has failed says so elsewhere. From then on the scope has the times of the calls alone.
void ProfileScope::mark(int span, bool begin) noexcept {
  if (!stopwatch_) return;
  try {
    marks_.push_back({span, begin});
    stopwatch_->mark();
  } catch (...) {
    marks_.clear();
    stopwatch_.reset();
  }
}

const std::vector<ProfileSpan>& ProfileScope::spans() {
  check<ValueError>(open_spans_ == 0, "ProfileScope", "the spans are read when all calls have returned");
  if (!stopwatch_) return spans_;
  const std::vector<double> seconds = stopwatch_->seconds();
  for (size_t i = 0; i < seconds.size(); ++i) {
    if (marks_[i].first < 0) continue;
    ProfileSpan& span = spans_[size_t(marks_[i].first)];
    (marks_[i].second ? span.device_begin : span.device_end) = seconds[i];
  }
  return spans_;
}

const std::vector<ProfileKernel>& ProfileScope::kernels() {
  spans();  // waits for the device
  if (!stopwatch_) return kernels_;
  for (DeviceWork& w : stopwatch_->work())
    if (w.begin >= start_) kernels_.push_back({std::move(w.name), w.span, w.stream, w.begin - start_, w.end - start_});
  return kernels_;
}

void ProfileEntry::begin_range(std::string_view name, const std::string* layer) {
  const std::string text = layer && !layer->empty() ? joined(*layer, ": ", name) : std::string(name);
  ranges_->begin(text.c_str());
}

}  // namespace halfstep
