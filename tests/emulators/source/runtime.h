// SPDX-License-Identifier: Apache-2.0
// Internal header of the fake CUDA runtime: memory.cpp, streams.cpp, graphs.cpp, device.cpp.
//
// A stream does its work at once; with HALFSTEP_EMU_ASYNC=1 its work waits until the host, or other work that the host waits for,
// waits for it: streams that no event orders diverge as far as possible. While a stream is captured, its work is kept for the
// graph; a stream that waits for an event of a captured one is captured too, as a branch of that graph. Calls that the runtime
// refuses during a capture are refused here: waiting for or querying a captured stream or event, an end with unjoined branches,
// copies between a captured stream and memory that is not pinned, and, unless the capture is relaxed, allocating and waiting in
// general. Such a call invalidates the capture. A launched graph runs its branches as early as their dependencies allow, and the
// next time as late. Work that waits for another process (fake_nccl.cpp) blocks its stream and all that wait for that.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cuda/gpu.cuh"

namespace emu {

struct Node {
  Task task;
  std::function<bool()> ready;     // if set, the work cannot be done before it returns true
  std::vector<const Node*> after;  // dependencies in the same graph
  bool branch = false;             // not on the stream that began the capture
};
struct Graph {
  std::deque<Node> nodes;  // their addresses are their handles
};

constexpr int kHighestPriority = -5;  // as of an H100
struct Stream;
struct Capture {
  Graph graph;
  Stream* origin;  // that began the capture
  cudaStreamCaptureMode mode;
  std::thread::id owner;  // that began it
  bool invalidated = false, ended = false;
};
struct Stream {
  bool blocking = true;              // for the default stream
  std::shared_ptr<Capture> capture;  // in which this stream is
  std::vector<const Node*> last;     // dependencies of its next node
  struct Piece {
    Task task;
    std::function<bool()> ready;  // if set, the stream is blocked until it returns true
  };
  std::deque<Piece> pending;
  uint64_t given = 0, done = 0;  // counts of all work
  int priority = 0;              // changes no order here: tests ask for it
};

// Held by every call of the runtime, and by its work: threads take turns.
using Lock = std::lock_guard<std::recursive_mutex>;
std::recursive_mutex& runtime_mutex();

// Counts without computing: kernels and the stand-ins for libraries do no work, and large copies move nothing. So a net's launches
// can be counted at its real sizes, since untouched memory takes none of the host's. Device memory is zero, not poison.
extern bool counts_only;

// The error with which calls that wait for the device end, as after a kernel that failed there; cudaSuccess: it works.
extern cudaError_t device_error;

Stream& stream_of(cudaStream_t handle);
cudaGraph_t new_graph(std::unique_ptr<Graph> graph);
void run_pending();                // runs waiting work of all streams, up to the first that is not ready
void run_pending(Stream& stream);  // runs work of one stream, and the work it waits for
// Submits work; polls `ready`, which blocks the stream.
cudaError_t submit_when(cudaStream_t stream, Task task, std::function<bool()> ready, bool at_once = false);
void do_work(const Task& task);   // a kernel does none if only counting
void spend(double microseconds);  // adds device time, by which events are timed: all work takes 1, and may add more
extern void (*task_given)(Task&,
                          const Stream&);    // sees, and may wrap, all work submitted to a stream (fake_cupti.cpp); null: none
void note(const Task& task, bool in_graph);  // for Operations
std::string kernel_name(const void* kernel);
cudaError_t refuse(Stream& stream);        // invalidates its capture; returns the error
cudaError_t refuse_unsafe();               // for calls that only relaxed captures allow; returns success without a capture
cudaError_t refuse_default_stream();       // for work on the default stream, which a captured blocking stream cannot wait for
cudaError_t set_error(cudaError_t error);  // sets the next result of cudaGetLastError; returns its argument
// Finds the live allocation with the address; returns false if there is none.
bool allocation_with(uint64_t address, uint64_t& begin, uint64_t& end);
void check_device_memory(const char* what, const void* p, size_t bytes);  // fails unless all of it is in one live allocation

}  // namespace emu
