// Between the files that stand in for the CUDA runtime: memory.cpp, streams.cpp, graphs.cpp, device.cpp.
//
// A stream does its work at once; with HALFSTEP_EMU_ASYNC=1 all work waits, in the order it was given, until the host waits for
// some of it. While a stream is captured its work is kept for the graph. What the runtime refuses during a capture is refused
// here: waiting for or asking after a captured stream, copies between it and memory that is not pinned, and, unless the capture
// is relaxed, allocating and waiting in general. Such a call spoils the capture.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "cuda/gpu.cuh"

namespace emu {

using Work = std::function<void()>;

struct Graph {
  std::vector<Work> nodes;
};

struct Stream {
  bool blocking = true;            // towards the default stream
  std::unique_ptr<Graph> capture;  // set between begin and end
  bool invalidated = false;
  cudaStreamCaptureMode mode{};
  std::thread::id owner;  // who began the capture
};

Stream& stream_of(cudaStream_t handle);
void run_pending();                        // all work that waits
cudaError_t refuse(Stream& stream);        // spoils its capture; gives the error
cudaError_t refuse_unsafe();               // for calls that only relaxed captures allow; success where there is none
cudaError_t refuse_default_stream();       // for work on the default stream, which a captured blocking stream cannot wait for
cudaError_t set_error(cudaError_t error);  // what cudaGetLastError gives; returns its argument
void check_device_memory(const char* what, const void* p, size_t bytes);  // fails unless all is in one live allocation

}  // namespace emu
