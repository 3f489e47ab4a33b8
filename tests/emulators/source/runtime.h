// SPDX-License-Identifier: Apache-2.0
// Between the files of the fake CUDA runtime: memory.cpp, streams.cpp, graphs.cpp, device.cpp.
//
// A stream does its work at once; with HALFSTEP_EMU_ASYNC=1 a stream's work waits until the host waits for it, or another stream's
// work that the host waits for waits for it: streams that no event orders are as far apart as can be. While a stream is captured
// its work is kept for the graph; a stream that waits for an event of a captured one is captured too, as a branch of that graph.
// What the runtime refuses during a capture is refused here: waiting for or asking after a captured stream or event, an end without
// all branches joined, copies between a captured stream and memory that is not pinned, and, unless the capture is relaxed,
// allocating and waiting in general. Such a call spoils the capture. A launched graph does its branches as early as their
// dependencies allow, and the next time as late. Work that waits for another process (fake_nccl.cpp) holds up its stream, and who
// waits for that.
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
  std::function<bool()> ready;     // where set: it cannot be done before this says so
  std::vector<const Node*> after;  // of the same graph
  bool branch = false;             // not of the stream whose capture it was
};
struct Graph {
  std::deque<Node> nodes;  // whose addresses are their handles
};

struct Stream;
struct Capture {
  Graph graph;
  Stream* origin;  // whose capture was begun
  cudaStreamCaptureMode mode;
  std::thread::id owner;  // who began it
  bool invalidated = false, ended = false;
};
struct Stream {
  bool blocking = true;              // towards the default stream
  std::shared_ptr<Capture> capture;  // that this stream is in
  std::vector<const Node*> last;     // the nodes that its next node follows
  struct Piece {
    Task task;
    std::function<bool()> ready;  // where set: the stream is blocked until it returns true
  };
  std::deque<Piece> pending;
  uint64_t given = 0, done = 0;  // pieces of work ever
};

// Held by every call of the runtime, and by the work that it does: threads take turns.
using Lock = std::lock_guard<std::recursive_mutex>;
std::recursive_mutex& runtime_mutex();

// Nothing is computed: kernels and the stand-ins for libraries do no work, and large copies move nothing. What a net would launch
// can then be counted at its real sizes, since memory that nobody touches takes none of the host's. Device memory is zero, not
// poison.
extern bool counts_only;

Stream& stream_of(cudaStream_t handle);
cudaGraph_t new_graph(std::unique_ptr<Graph> graph);
void run_pending();                          // all waiting work of all streams, up to the first that is not ready
void run_pending(Stream& stream);            // all work of one stream, and the work it waits for
// As submit; `ready` is asked again and again, and holds up the stream.
cudaError_t submit_when(cudaStream_t stream, Task task, std::function<bool()> ready, bool at_once = false);
void do_work(const Task& task);              // a kernel does none where nothing is computed
void spend(double microseconds);             // of the device's time, by which events are timed: all work takes 1, some says more
extern void (*task_given)(Task&,
                          const Stream&);    // sees, and may wrap, all work that is given to a stream (fake_cupti.cpp); null: no
void note(const Task& task, bool in_graph);  // for Operations
std::string kernel_name(const void* kernel);
cudaError_t refuse(Stream& stream);        // spoils its capture; gives the error
cudaError_t refuse_unsafe();               // for calls that only relaxed captures allow; success where there is none
cudaError_t refuse_default_stream();       // for work on the default stream, which a captured blocking stream cannot wait for
cudaError_t set_error(cudaError_t error);  // the next result of cudaGetLastError; returns its argument
// The live allocation that the address lies in; false: there is none.
bool allocation_with(uint64_t address, uint64_t& begin, uint64_t& end);
void check_device_memory(const char* what, const void* p, size_t bytes);  // fails unless all is in one live allocation

}  // namespace emu
