// SPDX-License-Identifier: Apache-2.0
#include "framework/backend/observe.h"

#include <atomic>
#include <utility>

#include "framework/backend/backend.h"
#include "framework/backend/observed_backend.h"

namespace halfstep {

std::string_view name(StepPass pass) {
  constexpr std::string_view names[] = {"forward", "backward", "update"};
  return names[size_t(pass)];
}

Observing::Observing(OpObserver& observer) : observer_(observer), outer_(thread_.innermost), kernels_(observer.observes_kernels()) {
  static std::atomic<uint64_t> count{0};
  number_ = ++count;
  if (kernels_ && !kernels_->device.is_meta()) backend_ = observed_backend(kernels_->device, kernels_->libraries);
  thread_.innermost = this;
}
// Removes the observer; the order may differ from that of the additions.
Observing::~Observing() {
  for (Observing** at = &thread_.innermost; *at; at = &(*at)->outer_) {
    if (*at != this) continue;
    *at = outer_;
    return;
  }
}

bool Observing::asks_for_simpler(const ObservedCall& call) {
  for (const Observing* o = thread_.innermost; o; o = o->outer_)
    if (o->observer_.asks_for_simpler(call)) return true;
  return false;
}

bool Observing::any_follows_values() {
  for (const Observing* o = thread_.innermost; o; o = o->outer_)
    if (o->observer_.follows_values()) return true;
  return false;
}

// Prefers an observer of every kernel to one for which a library's call is one kernel.
Backend* Observing::backend_on(Device device) {
  Backend* found = nullptr;
  for (const Observing* o = thread_.innermost; o; o = o->outer_) {
    if (!o->backend_ || o->kernels_->device != device) continue;
    if (!o->kernels_->libraries) return o->backend_.get();
    if (!found) found = o->backend_.get();
  }
  return found;
}

struct CallScope::Open {
  ObservedCall call;
  uint64_t newest_observer;  // number of the newest one that begin() was reported to
};
void CallScope::Delete::operator()(Open* open) const { delete open; }

void CallScope::begin(const ObservedCall& call) {
  const Observing* const newest = Observing::thread_.innermost;
  open_.reset(new Open{call, newest ? newest->number_ : 0});
  if (Observing::all_threads_) Observing::all_threads_->begin(call);
  Observing::report([&](OpObserver& o) { o.begin(call); });
}

void CallScope::end(const CallResult& result) noexcept {
  const std::unique_ptr<Open, Delete> open = std::move(open_);
  if (open->call.is_backward) open->call.inputs = {};  // backward has taken them
  if (Observing::all_threads_) Observing::all_threads_->end(open->call, result);
  for (const Observing* o = Observing::thread_.innermost; o; o = o->outer_)
    if (o->number_ <= open->newest_observer) o->observer_.end(open->call, result);
}

void CallScope::leave() noexcept { end({.failed = open_->call.kind == SpanKind::op}); }

StepPassScope::StepPassScope(StepPass pass)
    : saved_(std::exchange(Observing::thread_.pass, pass)), span_(SpanKind::part, name(pass)) {}
StepPassScope::~StepPassScope() { Observing::thread_.pass = saved_; }

}  // namespace halfstep
