// SPDX-License-Identifier: Apache-2.0
// Streams, events and the state of captures.
#include <algorithm>
#include <set>
#include <vector>

#include "tests/emulators/source/hooks.h"
#include "tests/emulators/source/runtime.h"

namespace emu {
namespace {

struct Event {
  double time = 0;           // of the device, in microseconds
  std::shared_ptr<Capture> capture = nullptr;  // last recorded in a captured stream ...
  std::vector<const Node*> after = {};         // ... after these
  Stream* stream = nullptr;  // last recorded here ...
  uint64_t position = 0;     // ... after so much of its work
};
Event& event_of(cudaEvent_t handle) { return *reinterpret_cast<Event*>(handle); }

double device_time = 0;
Stream default_stream;
std::set<Stream*> streams;
Operations* operations = nullptr;
thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

// The first of a stream's work, up to `position`.
void run_until(Stream& s, uint64_t position) {
  if (s.pending.empty()) return;
  const OpenDeviceMemory open;  // for all of it: changing its rights takes longer than a small kernel
  while (s.done < position && !s.pending.empty()) {
    if (s.pending.front().ready && !s.pending.front().ready()) return;
    const Task task = std::move(s.pending.front().task);
    s.pending.pop_front();
    ++s.done;
    do_work(task);
    spend(1);
  }
}
bool passed(const Event& e) {
  const bool lives = e.stream == &default_stream || streams.contains(e.stream);
  return !lives || e.stream->done >= e.position;
}
void wait_for(const Event& e) {
  if (!passed(e)) run_until(*e.stream, e.position);
}

cudaError_t wait_for(Stream& stream) {
  if (stream.capture) return refuse(stream);
  run_pending(stream);
  return cudaSuccess;
}

// Is everything that was captured before the end of the origin's?
bool all_joined(const Capture& c) {
  std::set<const Node*> before;
  std::vector<const Node*> next = c.origin->last;
  while (!next.empty()) {
    const Node* const n = next.back();
    next.pop_back();
    if (before.insert(n).second) next.insert(next.end(), n->after.begin(), n->after.end());
  }
  return before.size() == c.graph.nodes.size();
}

// Again and again until it says that all is done; others come to the runtime in between.
template <class F>
cudaError_t until_done(const F& attempt) {
  for (;;) {
    bool done = true;
    {
      const Lock lock(runtime_mutex());
      if (device_error != cudaSuccess) return set_error(device_error);
      const cudaError_t error = attempt(done);
      if (error != cudaSuccess || done) return error;
    }
    std::this_thread::yield();
  }
}

cudaError_t run_until(const Event& event) {
  if (event.capture) return set_error(cudaErrorCapturedEvent);
  if (const cudaError_t refused = refuse_unsafe()) return refused;
  wait_for(event);
  return cudaSuccess;
}

}  // namespace

Stream& stream_of(cudaStream_t handle) {
  if (!handle || handle == cudaStreamLegacy || handle == cudaStreamPerThread) return default_stream;
  Stream* stream = reinterpret_cast<Stream*>(handle);
  if (!streams.contains(stream)) fail("%p is not a live stream", static_cast<void*>(handle));
  return *stream;
}

std::recursive_mutex& runtime_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

bool counts_only = false;
cudaError_t device_error = cudaSuccess;
void (*task_given)(Task&, const Stream&) = nullptr;

void do_work(const Task& task) {
  if (!(counts_only && task.kernel)) task.work();
}
void spend(double microseconds) { device_time += microseconds; }
void run_pending(Stream& stream) { run_until(stream, stream.given); }
void run_pending() {
  for (Stream* s : streams) run_pending(*s);
  run_pending(default_stream);
}

Operations::Operations() {
  if (operations) fail("two lists of operations at a time");
  operations = this;
}
Operations::~Operations() { operations = nullptr; }
void note(const Task& task, bool in_graph) {
  if (operations) operations->list.push_back({task.kernel ? kernel_name(task.kernel) : task.what, in_graph});
}

cudaError_t refuse(Stream& stream) {
  const bool before = stream.capture->invalidated;
  stream.capture->invalidated = true;
  return set_error(before ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnsupported);
}

cudaError_t refuse_unsafe() {
  cudaError_t error = cudaSuccess;
  if (thread_mode == cudaStreamCaptureModeRelaxed) return error;
  for (Stream* s : streams) {
    if (!s->capture) continue;
    const Capture& c = *s->capture;
    const bool mine = c.owner == std::this_thread::get_id();
    if (mine ? c.mode == cudaStreamCaptureModeRelaxed
             : thread_mode != cudaStreamCaptureModeGlobal || c.mode != cudaStreamCaptureModeGlobal)
      continue;
    error = refuse(*s);
  }
  return error;
}

cudaError_t refuse_default_stream() {
  cudaError_t error = cudaSuccess;
  for (Stream* s : streams) {
    if (!s->capture || !s->blocking) continue;
    s->capture->invalidated = true;
    error = set_error(cudaErrorStreamCaptureImplicit);
  }
  return error;
}

cudaError_t submit(cudaStream_t handle, Task task, bool at_once) { return submit_when(handle, std::move(task), {}, at_once); }

cudaError_t submit_when(cudaStream_t handle, Task task, std::function<bool()> ready, bool at_once) {
  const Lock lock(runtime_mutex());
  Stream& s = stream_of(handle);
  if (task.kernel && !options().has_image) return cudaErrorNoKernelImageForDevice;
  if (s.capture) {
    if (s.capture->invalidated) return set_error(cudaErrorStreamCaptureInvalidated);
    auto& nodes = s.capture->graph.nodes;
    nodes.push_back({std::move(task), std::move(ready), std::move(s.last), s.capture->origin != &s});
    s.last = {&nodes.back()};
    return cudaSuccess;
  }
  if (&s == &default_stream) {
    if (const cudaError_t refused = refuse_default_stream()) return refused;
    for (Stream* other : streams) {
      if (other->blocking) run_pending(*other);
    }
  } else if (s.blocking) {
    run_pending(default_stream);
  }
  if (task.kernel || task.what) note(task, /*in_graph=*/false);
  if (task_given) task_given(task, s);
  s.pending.push_back({std::move(task), std::move(ready)});
  ++s.given;
  if (!options().async || at_once) run_pending(s);
  if (at_once && !s.pending.empty()) fail("a copy that the host waits for is behind work that waits for another rank");
  return cudaSuccess;
}

}  // namespace emu

using namespace emu;

extern "C" {

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0, *greatest = kHighestPriority;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* handle, unsigned flags, int priority) {
  const Lock lock(runtime_mutex());
  Stream* s = new Stream;
  s->blocking = !(flags & cudaStreamNonBlocking);
  s->priority = std::clamp(priority, kHighestPriority, 0);
  streams.insert(s);
  *handle = reinterpret_cast<cudaStream_t>(s);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* handle, unsigned flags) {
  return cudaStreamCreateWithPriority(handle, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t* handle) { return cudaStreamCreateWithFlags(handle, cudaStreamDefault); }
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  const Lock lock(runtime_mutex());
  Stream& s = stream_of(handle);
  if (s.capture) fail("cudaStreamDestroy: the stream is being captured");
  run_pending(s);
  if (!s.pending.empty()) fail("cudaStreamDestroy: work of the stream waits for another rank");
  streams.erase(&s);
  delete &s;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return until_done([&](bool& done) {
    const cudaError_t error = wait_for(stream_of(handle));
    done = stream_of(handle).pending.empty();
    return error;
  });
}
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  const Lock lock(runtime_mutex());
  Stream& s = stream_of(handle);
  const bool ready = s.capture || s.pending.empty();
  const cudaError_t error = wait_for(s);
  return error == cudaSuccess && !ready ? cudaErrorNotReady : error;
}
cudaError_t cudaDeviceSynchronize() {
  return until_done([&](bool& done) {
    cudaError_t error = cudaSuccess;
    for (Stream* s : streams) {
      if (s->capture) error = refuse(*s);
    }
    if (error != cudaSuccess) return error;
    run_pending();
    for (Stream* s : streams) done = done && s->pending.empty();
    return error;
  });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  const Lock lock(runtime_mutex());
  if (const auto& capture = event_of(event).capture) {
    Stream& s = stream_of(handle);
    if (capture->ended) fail("cudaStreamWaitEvent: the event is of a capture that has ended");
    if (s.capture && s.capture != capture) fail("cudaStreamWaitEvent: the event is of another stream's capture");
    s.capture = capture;
    for (const Node* n : event_of(event).after) {
      if (std::find(s.last.begin(), s.last.end(), n) == s.last.end()) s.last.push_back(n);
    }
    return cudaSuccess;
  }
  if (stream_of(handle).capture) fail("cudaStreamWaitEvent: the stream is captured, and the event is not");
  // It waits for the work that the event marks now.
  const auto ready = [e = event_of(event)] {
    wait_for(e);
    return passed(e);
  };
  return submit_when(handle, {.work = [] {}, .what = nullptr}, ready);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned) {
  const Lock lock(runtime_mutex());
  *handle = reinterpret_cast<cudaEvent_t>(new Event);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* handle) { return cudaEventCreateWithFlags(handle, cudaEventDefault); }
cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  const Lock lock(runtime_mutex());
  wait_for(event_of(handle));
  if (passed(event_of(handle))) delete &event_of(handle);  // else what notes its time still comes
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream) {
  const Lock lock(runtime_mutex());
  Stream& s = stream_of(stream);
  Event& event = event_of(handle);
  event.capture = s.capture;
  event.after = s.last;
  if (s.capture) return s.capture->invalidated ? set_error(cudaErrorStreamCaptureInvalidated) : cudaSuccess;
  event.stream = &s;
  event.position = s.given + 1;
  return submit(stream, {.work = [&event] { event.time = device_time; }, .what = nullptr});
}
cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  return until_done([&](bool& done) {
    const cudaError_t error = run_until(event_of(handle));
    done = error != cudaSuccess || passed(event_of(handle));
    return error;
  });
}
cudaError_t cudaEventQuery(cudaEvent_t handle) {
  const Lock lock(runtime_mutex());
  const bool ready = passed(event_of(handle));
  const cudaError_t error = run_until(event_of(handle));
  return error == cudaSuccess && !ready ? cudaErrorNotReady : error;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t a, cudaEvent_t b) {
  const Lock lock(runtime_mutex());
  if (!passed(event_of(a)) || !passed(event_of(b))) return cudaErrorNotReady;
  *milliseconds = float((event_of(b).time - event_of(a).time) / 1000);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  const Lock lock(runtime_mutex());
  Stream& s = stream_of(handle);
  if (&s == &default_stream) return set_error(cudaErrorStreamCaptureUnsupported);
  if (s.capture) return set_error(cudaErrorIllegalState);
  s.capture = std::make_shared<Capture>(Capture{{}, &s, mode, std::this_thread::get_id()});
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  const Lock lock(runtime_mutex());
  Stream& s = stream_of(handle);
  *graph = nullptr;
  if (!s.capture) return set_error(cudaErrorIllegalState);
  const std::shared_ptr<Capture> c = s.capture;
  if (c->origin != &s) return set_error(cudaErrorStreamCaptureUnmatched);
  if (c->mode != cudaStreamCaptureModeRelaxed && c->owner != std::this_thread::get_id()) {
    c->invalidated = true;
    return set_error(cudaErrorStreamCaptureWrongThread);
  }
  const bool joined = all_joined(*c);
  c->ended = true;
  for (Stream* other : streams) {
    if (other->capture == c) other->capture = nullptr, other->last.clear();
  }
  auto made = std::make_unique<Graph>();
  made->nodes.swap(c->graph.nodes);  // whose addresses stay
  if (c->invalidated) return set_error(cudaErrorStreamCaptureInvalidated);
  if (!joined) return set_error(cudaErrorStreamCaptureUnjoined);
  *graph = new_graph(std::move(made));
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  const Lock lock(runtime_mutex());
  const Stream& s = stream_of(handle);
  *status = !s.capture               ? cudaStreamCaptureStatusNone
            : s.capture->invalidated ? cudaStreamCaptureStatusInvalidated
                                     : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
// Only the state and the last nodes.
#if CUDART_VERSION >= 13000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status, unsigned long long*, cudaGraph_t*,
                                     const cudaGraphNode_t** dependencies, const cudaGraphEdgeData**, size_t* count) {
#else
cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t handle, cudaStreamCaptureStatus* status, unsigned long long*, cudaGraph_t*,
                                        const cudaGraphNode_t** dependencies, size_t* count) {
#endif
  const Lock lock(runtime_mutex());
  const Stream& s = stream_of(handle);
  *dependencies = static_cast<const cudaGraphNode_t*>(static_cast<const void*>(s.last.data()));
  *count = s.last.size();
  return cudaStreamIsCapturing(handle, status);
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, thread_mode);
  return cudaSuccess;
}

}  // extern "C"
