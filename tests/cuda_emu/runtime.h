// Between the files that stand in for the CUDA runtime: memory.cpp, streams.cpp, graphs.cpp, device.cpp.
//
// A stream does its work at once; with HALFSTEP_EMU_ASYNC=1 a stream's work waits until the host waits for it, or another stream's
// work that the host waits for waits for it: streams that no event orders are as far apart as can be. While a stream is captured
// its work is kept for the graph. What the runtime refuses during a capture is refused here: waiting for or asking after a captured
// stream, copies between it and memory that is not pinned, and, unless the capture is relaxed, allocating and waiting in general.
// Such a call spoils the capture. Work that waits for another process (fake_nccl.cpp) holds up its stream, and who waits for that.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "cuda/gpu.cuh"

namespace emu {

struct Graph {
  std::deque<Task> nodes;  // whose addresses are their handles
};

struct Stream {
  bool blocking = true;            // towards the default stream
  std::unique_ptr<Graph> capture;  // set between begin and end
  bool invalidated = false;
  cudaStreamCaptureMode mode{};
  std::thread::id owner;   // who began the capture
  cudaGraphNode_t last{};  // node of the capture
  struct Piece {
    std::function<void()> work;
    std::function<bool()> ready;  // where set: the stream stands still until it says so
  };
  std::deque<Piece> pending;
  uint64_t given = 0, done = 0;  // pieces of work ever
};

// Held by every call of the runtime, and by the work that it does: threads take turns.
using Lock = std::lock_guard<std::recursive_mutex>;
std::recursive_mutex& runtime_mutex();

Stream& stream_of(cudaStream_t handle);
cudaGraph_t new_graph(std::unique_ptr<Graph> graph);
void run_pending();                          // all work that waits, of all streams, up to what is not ready
void run_pending(Stream& stream);            // all of one, and what it waits for
// As submit; `ready` is asked again and again, and holds up the stream.
cudaError_t submit_when(cudaStream_t stream, Task task, std::function<bool()> ready, bool at_once = false);
void spend(double microseconds);             // of the device's time, by which events are timed: all work takes 1, some says more
void note(const Task& task, bool in_graph);  // for Operations
std::string kernel_name(const void* kernel);
cudaError_t refuse(Stream& stream);        // spoils its capture; gives the error
cudaError_t refuse_unsafe();               // for calls that only relaxed captures allow; success where there is none
cudaError_t refuse_default_stream();       // for work on the default stream, which a captured blocking stream cannot wait for
cudaError_t set_error(cudaError_t error);  // what cudaGetLastError gives; returns its argument
void check_device_memory(const char* what, const void* p, size_t bytes);  // fails unless all is in one live allocation

}  // namespace emu
