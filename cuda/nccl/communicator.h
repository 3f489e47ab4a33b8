// SPDX-License-Identifier: Apache-2.0
// NCCL's communicator of a group, its stream, and waits on both with a deadline.
//
// Its calls return before they are done, so that a call which waits for a rank that is gone can end too. It lives as long as the
// last recording of its work: NCCL does not free a communicator that a graph still uses.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "cuda/nccl/nccl.h"
#include "cuda/runtime.h"
#include "framework/comm/process_group.h"

namespace halfstep::cuda {

class Communicator {
 public:
  // `host` brings the ranks together, and names ranks that are gone. It must live until leave(). max_blocks: as in GroupOptions.
  [[nodiscard]] Communicator(const Nccl& nccl, ProcessGroup& host, double timeout_s, int max_blocks);
  ~Communicator();
  Communicator(const Communicator&) = delete;

  void open();
  ncclComm_t get() const { return comm_; }
  cudaStream_t stream() const { return stream_; }
  void set_timeout(double seconds) { timeout_ = seconds; }

  void check_whole() const;  // throws the first error again if it is broken
  // Makes calls of the library as one group; returns when all are in the stream. `calls` returns the first failure.
  void group(const std::string& what, const std::function<ncclResult_t()>& calls);
  // Waits until the event, recorded in a stream that is not captured, has passed. Throws PeerLostError after the timeout.
  void wait_for(const std::string& what, const Event& event);
  // Notes that work with it was recorded: it can be aborted only in parallel with the host, because NCCL waits for the recording's
  // end.
  void mark_recorded() { recorded_ = true; }

  void leave() { host_ = nullptr; }  // at the end, together with all ranks
  void abort();                      // also ends work running on the device
  void mark_broken(const std::string& why);  // a rank is lost

 private:
  void finish_call(const std::string& what, ncclResult_t result);
  // Returns ncclInProgress while the last call is not done; then its result.
  ncclResult_t progress() const;
  // Yields or sleeps between two polls, the turn-th since `from`. Throws PeerLostError after the timeout.
  void pause(const std::string& what, int turn, std::chrono::steady_clock::time_point from);
  void check_nccl(const std::string& what, ncclResult_t result);
  [[noreturn]] void throw_lost(const std::string& what, const std::string& how);
  [[noreturn]] void throw_failed(const std::string& what, ncclResult_t result);

  const Nccl& nccl_;
  ProcessGroup* host_;
  const int rank_, max_blocks_;
  double timeout_;
  cudaStream_t stream_ = nullptr;
  ncclComm_t comm_ = nullptr;
  bool recorded_ = false;
  std::string broken_;            // why the group is broken
  bool fault_is_here_ = false;    // whether the fault is on this machine, so that no rank is lost
};

}  // namespace halfstep::cuda
