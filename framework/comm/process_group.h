// SPDX-License-Identifier: Apache-2.0
// The ranks of one job: processes that compute parts of a batch and exchange tensors.
//
//   const std::unique_ptr<ProcessGroup> group = open_process_group();   // null for a process of its own
//   const Ticket sum = group->all_reduce({gradient});                   // begins; the caller continues computing
//   group->wait(sum);
//
// Every rank must begin the same operations in the same order, with tensors of equal shapes and dtypes. Sums are computed in the
// order of the ranks, in float32 (float64 and integers in their own type), and rounded once. So all ranks get the same bits, and
// the bits of one process that adds the same numbers one after the other, unless GroupOptions::library_sums is set.
// Operations run one at a time, while the calling thread continues.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/guard.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

// Error of an operation that did not end in time, or whose transport failed: a rank is gone, stopped or cut off. The group cannot
// be used any more.
struct PeerLostError : Error {
  using Error::Error;
};

enum class ReduceOp : uint8_t { sum, max, min };
// Format in which all_reduce sends numbers: unchanged, or float32 rounded to bfloat16, which halves the bytes. Sums are float32 in
// both cases.
enum class Wire : uint8_t { as_is, bf16 };

using Ticket = uint64_t;  // number of an operation that has begun

struct GroupOptions {
  double timeout_s = 600;     // time after which an unfinished operation counts as lost
  bool library_sums = false;  // on devices: sums in the library's own order (cuda/nccl/group.h), for many machines
  double stage_mb = 64;       // on devices: memory for other ranks' numbers that are summed at a time
  int max_blocks = 16;        // on devices: blocks of threads that the library's kernels may occupy, so that others run beside
};

class ProcessGroup {
 public:
  ProcessGroup(int rank, int size) : rank_(rank), size_(size) {}
  virtual ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  virtual std::string describe() const = 0;  // the transport: "Open MPI v4.1.4"
  virtual void set_timeout(double seconds) = 0;
  // Returns whether operations can be part of a recording (Backend::begin_recording): those on tensors of a device with a library
  // can.
  virtual bool can_record() const { return false; }

  // Work in place on contiguous tensors of one dtype, as if they were one tensor. The tensors must live, and must not be read,
  // until wait(). Throw ValueError for other tensors, and PeerLostError once the group is broken.
  virtual Ticket all_reduce(const Tensors& tensors, ReduceOp op = ReduceOp::sum, Wire wire = Wire::as_is) = 0;
  virtual Ticket broadcast(const Tensors& tensors, int root) = 0;
  // Computes to = part rank() of the sum of `from`, which consists of size() parts of to's size.
  virtual Ticket reduce_scatter(const Tensor& from, const Tensor& to) = 0;
  // Computes to = the ranks' `from`, concatenated.
  virtual Ticket all_gather(const Tensor& from, const Tensor& to) = 0;
  virtual Ticket barrier() = 0;
  // Waits until the operation has ended. Throws PeerLostError, which names the ranks that do not answer.
  virtual void wait(Ticket ticket) = 0;
  // Leaves the job together with all other ranks. A group destroyed without close() ends alone, as after an error.
  virtual void close() = 0;
  // Must be called after each replay of recorded work. A group on a device then waits, within the timeout, until only a few replays
  // are queued; others do nothing.
  virtual void replayed() {}

  double wait_seconds() const { return wait_seconds_; }  // total time spent in wait()

  // Return the texts or numbers of all ranks, by rank; wait for them.
  std::vector<std::string> gather(const std::string& mine);
  std::vector<std::vector<double>> gather(const std::vector<double>& mine);  // lists of equal lengths

 protected:
  double wait_seconds_ = 0;

 private:
  int rank_, size_;
};

// Opens a group as the launcher in the environment says (framework/comm/launcher.h); null without a launcher, and for one rank.
// Throws ConfigError if the ranks cannot be brought together.
std::unique_ptr<ProcessGroup> open_process_group(const GroupOptions& options = {});

// Returns the group for layers that reach across ranks (BatchNorm with `sync`) while a scope lives; else null.
ProcessGroup* current_group();
class GroupScope : public OrderedGuard<GroupScope> {
 public:
  [[nodiscard]] explicit GroupScope(ProcessGroup* group);
  ~GroupScope();

 private:
  ProcessGroup* saved_;
};

}  // namespace halfstep
