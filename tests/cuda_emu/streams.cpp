// Streams, events and the state of captures.
#include <chrono>
#include <deque>
#include <set>

#include "runtime.h"

namespace emu {
namespace {

using Clock = std::chrono::steady_clock;
struct Event {
  Clock::time_point time;
  bool captured = false;  // last recorded in a captured stream
};
Event& event_of(cudaEvent_t handle) { return *reinterpret_cast<Event*>(handle); }

Stream default_stream;
std::set<Stream*> streams;
std::deque<Work> pending;
thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

cudaError_t wait_for(Stream& stream) {
  if (stream.capture) return refuse(stream);
  run_pending();
  return cudaSuccess;
}

}  // namespace

Stream& stream_of(cudaStream_t handle) {
  if (!handle || handle == cudaStreamLegacy || handle == cudaStreamPerThread) return default_stream;
  Stream* stream = reinterpret_cast<Stream*>(handle);
  if (!streams.contains(stream)) fail("%p is not a live stream", static_cast<void*>(handle));
  return *stream;
}

void run_pending() {
  while (!pending.empty()) {
    const Work work = std::move(pending.front());
    pending.pop_front();
    work();
  }
}

cudaError_t refuse(Stream& stream) {
  const bool before = stream.invalidated;
  stream.invalidated = true;
  return set_error(before ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnsupported);
}

cudaError_t refuse_unsafe() {
  cudaError_t error = cudaSuccess;
  if (thread_mode == cudaStreamCaptureModeRelaxed) return error;
  for (Stream* s : streams) {
    if (!s->capture) continue;
    const bool mine = s->owner == std::this_thread::get_id();
    if (mine ? s->mode == cudaStreamCaptureModeRelaxed
             : thread_mode != cudaStreamCaptureModeGlobal || s->mode != cudaStreamCaptureModeGlobal)
      continue;
    error = refuse(*s);
  }
  return error;
}

cudaError_t refuse_default_stream() {
  cudaError_t error = cudaSuccess;
  for (Stream* s : streams) {
    if (!s->capture || !s->blocking) continue;
    s->invalidated = true;
    error = set_error(cudaErrorStreamCaptureImplicit);
  }
  return error;
}

cudaError_t submit(cudaStream_t handle, Work work, bool at_once) {
  Stream& s = stream_of(handle);
  if (s.invalidated) return set_error(cudaErrorStreamCaptureInvalidated);
  if (s.capture) {
    s.capture->nodes.push_back(std::move(work));
    return cudaSuccess;
  }
  if (&s == &default_stream) {
    if (const cudaError_t refused = refuse_default_stream()) return refused;
  }
  if (options().async && !at_once)
    pending.push_back(std::move(work));
  else
    work();
  return cudaSuccess;
}

}  // namespace emu

using namespace emu;

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* handle, unsigned flags) {
  Stream* s = new Stream;
  s->blocking = !(flags & cudaStreamNonBlocking);
  streams.insert(s);
  *handle = reinterpret_cast<cudaStream_t>(s);
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t* handle) { return cudaStreamCreateWithFlags(handle, cudaStreamDefault); }
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  Stream& s = stream_of(handle);
  if (s.capture) fail("cudaStreamDestroy: the stream is being captured");
  run_pending();
  streams.erase(&s);
  delete &s;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) { return wait_for(stream_of(handle)); }
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  if (!pending.empty() && !stream_of(handle).capture) {
    run_pending();
    return cudaErrorNotReady;
  }
  return wait_for(stream_of(handle));
}
cudaError_t cudaDeviceSynchronize() {
  cudaError_t error = cudaSuccess;
  for (Stream* s : streams) {
    if (s->capture) error = refuse(*s);
  }
  if (error == cudaSuccess) run_pending();
  return error;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  if (event_of(event).captured != bool(stream_of(handle).capture)) {
    fail("cudaStreamWaitEvent: only one stream can be captured, and it cannot wait for others");
  }
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned) {
  *handle = reinterpret_cast<cudaEvent_t>(new Event);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* handle) { return cudaEventCreateWithFlags(handle, cudaEventDefault); }
cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  run_pending();
  delete &event_of(handle);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream) {
  const bool captured = stream_of(stream).capture != nullptr;
  event_of(handle).captured = captured;
  if (captured) return stream_of(stream).invalidated ? set_error(cudaErrorStreamCaptureInvalidated) : cudaSuccess;
  return submit(stream, [handle] { event_of(handle).time = Clock::now(); });
}
cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  if (event_of(handle).captured) return set_error(cudaErrorCapturedEvent);
  if (const cudaError_t refused = refuse_unsafe()) return refused;
  run_pending();
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t handle) {
  const bool ready = pending.empty();
  const cudaError_t error = cudaEventSynchronize(handle);
  return error == cudaSuccess && !ready ? cudaErrorNotReady : error;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t a, cudaEvent_t b) {
  if (!pending.empty()) return cudaErrorNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(event_of(b).time - event_of(a).time).count();
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  Stream& s = stream_of(handle);
  if (&s == &default_stream) return set_error(cudaErrorStreamCaptureUnsupported);
  if (s.capture) return set_error(cudaErrorIllegalState);
  s.capture = std::make_unique<Graph>();
  s.mode = mode;
  s.owner = std::this_thread::get_id();
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  Stream& s = stream_of(handle);
  *graph = nullptr;
  if (!s.capture) return set_error(cudaErrorIllegalState);
  if (s.mode != cudaStreamCaptureModeRelaxed && s.owner != std::this_thread::get_id()) {
    s.invalidated = true;
    return set_error(cudaErrorStreamCaptureWrongThread);
  }
  const std::unique_ptr<Graph> captured = std::move(s.capture);
  if (std::exchange(s.invalidated, false)) return set_error(cudaErrorStreamCaptureInvalidated);
  *graph = reinterpret_cast<cudaGraph_t>(new Graph(std::move(*captured)));
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  const Stream& s = stream_of(handle);
  *status = !s.capture      ? cudaStreamCaptureStatusNone
            : s.invalidated ? cudaStreamCaptureStatusInvalidated
                            : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, thread_mode);
  return cudaSuccess;
}

}  // extern "C"
