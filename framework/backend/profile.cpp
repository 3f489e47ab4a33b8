// SPDX-License-Identifier: Apache-2.0
#include "framework/backend/profile.h"

#include <algorithm>
#include <chrono>

#include "framework/backend/backend.h"
#include "framework/base/check.h"

namespace halfstep {
namespace {

int64_t nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Returns whether calls of this kind add to the depth of those inside them.
bool nests(SpanKind kind) { return kind == SpanKind::op || kind == SpanKind::task || kind == SpanKind::cast; }

}  // namespace

ProfileScope::ProfileScope(Device device, size_t limit) : limit_(limit) {
  check<ValueError>(!device.is_meta(), "ProfileScope", "a profile needs a device that computes, got ", device);
  check<ValueError>(!Observing::find<ProfileScope>(), "ProfileScope", "this thread has an open profile");
  stopwatch_ = backend_for(device).open_stopwatch();
  if (stopwatch_) {
    stopwatch_->mark();  // throws where it cannot
    marks_.push_back({-1, true});
    no_kernels_ = stopwatch_->no_work();
  }
  start_ = nanoseconds();
  observing_.emplace(*this);
}
ProfileScope::~ProfileScope() = default;

int64_t ProfileScope::now() const { return nanoseconds() - start_; }

void ProfileScope::begin(const ObservedCall& call) {
  if (call.kind == SpanKind::simpler) return;
  open_.push_back(-1);
  if (spans_.size() < limit_) {
    ProfileSpan span;
    span.kind = call.kind == SpanKind::task ? SpanKind::op : call.kind, span.pass = Observing::pass(), span.depth = depth_;
    span.name = call.name, span.layer = call.layer;
    span.inputs.reserve(call.inputs.size());
    for (const Tensor& t : call.inputs)
      if (t.defined()) span.inputs.push_back({t.shape(), t.dtype()});
    open_.back() = int(spans_.size());
    mark(open_.back(), true);
    if (stopwatch_) stopwatch_->enter(open_.back());
    spans_.push_back(std::move(span));
    spans_.back().begin = now();
  } else {
    ++left_out_;
  }
  if (nests(call.kind)) ++depth_;
}

void ProfileScope::end(const ObservedCall& call, const CallResult&) {
  if (call.kind == SpanKind::simpler) return;
  const int span = open_.back();
  open_.pop_back();
  if (nests(call.kind)) --depth_;
  if (span < 0) return;
  spans_[size_t(span)].end = now();
  if (stopwatch_) stopwatch_->leave();
  mark(span, false);
}

// Stops marking after an error, which the device reports elsewhere. The scope then has only the times of the calls.
void ProfileScope::mark(int span, bool is_begin) noexcept {
  if (!stopwatch_) return;
  try {
    marks_.push_back({span, is_begin});
    stopwatch_->mark();
  } catch (...) {
    marks_.clear();
    stopwatch_.reset();
  }
}

const std::vector<ProfileSpan>& ProfileScope::spans() {
  check<ValueError>(open_.empty(), "ProfileScope", "the spans are read when all calls have returned");
  if (!stopwatch_) return spans_;
  const std::vector<double> seconds = stopwatch_->seconds();
  for (size_t i = 0; i < seconds.size(); ++i) {
    if (marks_[i].span < 0) continue;
    ProfileSpan& span = spans_[size_t(marks_[i].span)];
    (marks_[i].is_begin ? span.device_begin : span.device_end) = seconds[i];
  }
  return spans_;
}

const std::vector<ProfileKernel>& ProfileScope::kernels() {
  spans();  // waits for the device
  if (!stopwatch_) return kernels_;
  for (DeviceWork& work : stopwatch_->work())
    if (work.begin >= start_)
      kernels_.push_back({std::move(work.name), work.span, work.stream, work.begin - start_, work.end - start_});
  return kernels_;
}

}  // namespace halfstep
