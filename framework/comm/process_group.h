// SPDX-License-Identifier: Apache-2.0
// The ranks of one job: processes that compute on parts of a batch and exchange tensors.
//
//   const std::unique_ptr<ProcessGroup> group = open_process_group();   // null for a process of its own
//   const Ticket sum = group->all_reduce({gradient});                   // begins; the caller continues computing
//   group->wait(sum);
//
// Every rank begins the same operations in the same order, with tensors of equal shapes and dtypes. Sums are taken in the order of
// the ranks, in float32 (float64 and integers as they are), and rounded once: all ranks get the same bits, and those that one
// process gets that adds the same numbers one after the other. Operations run one at a time, beside the thread that began them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/tensor/tensor.h"

namespace halfstep {

// An operation did not end in time, or the transport failed: a rank is gone, stopped or cut off. Nothing can be exchanged any more.
struct PeerLostError : Error {
  using Error::Error;
};

enum class ReduceOp : uint8_t { sum, max, min };
// What all_reduce sends: the numbers as they are, or float32 rounded to bfloat16, which halves the bytes. Sums are float32 either
// way.
enum class Wire : uint8_t { as_is, bf16 };

using Ticket = uint64_t;  // of an operation that has begun

struct GroupOptions {
  double timeout_s = 600;     // after which an operation that has not ended counts as lost
  bool library_sums = false;  // on devices: sums in the library's own order (cuda/nccl/group.h), for many machines
  double stage_mb = 64;       // of a device: of others' numbers that are summed at a time
};

class ProcessGroup {
 public:
  ProcessGroup(int rank, int size) : rank_(rank), size_(size) {}
  virtual ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  virtual std::string describe() const = 0;  // of the transport: "Open MPI v4.1.4"
  virtual void set_timeout(double seconds) = 0;
  // Can its operations be part of a recording (Backend::begin_recording)? Those on tensors of a device, where it has a library.
  virtual bool can_record() const { return false; }

  // In place, on contiguous tensors of one dtype, as if they were one. They must live, and not be read, until wait().
  // Throw ValueError for others, and PeerLostError once the group is broken.
  virtual Ticket all_reduce(const Tensors& tensors, ReduceOp op = ReduceOp::sum, Wire wire = Wire::as_is) = 0;
  virtual Ticket broadcast(const Tensors& tensors, int root) = 0;
  // to = part rank() of the sum of `from`, which is size() parts of to's size.
  virtual Ticket reduce_scatter(const Tensor& from, const Tensor& to) = 0;
  // to = the ranks' `from`, one after the other.
  virtual Ticket all_gather(const Tensor& from, const Tensor& to) = 0;
  virtual Ticket barrier() = 0;
  // Returns when the operation has ended. Throws PeerLostError, which names the ranks that do not answer.
  virtual void wait(Ticket ticket) = 0;
  // Leaves the job, together with all other ranks. A group that is destroyed without it ends alone, as after an error.
  virtual void close() = 0;

  double wait_seconds() const { return wait_seconds_; }  // time that wait() took so far

  // Texts and numbers of all ranks, by rank; waits.
  std::vector<std::string> gather(const std::string& mine);
  std::vector<std::vector<double>> gather(const std::vector<double>& mine);  // of equal lengths

 protected:
  double wait_seconds_ = 0;

 private:
  int rank_, size_;
};

// By the launcher that the environment names (framework/comm/launcher.h); null without one, and for one rank. Throws ConfigError
// where the ranks cannot be brought together.
std::unique_ptr<ProcessGroup> open_process_group(const GroupOptions& options = {});

// The group that layers use which reach across ranks (BatchNorm with `sync`), while a scope lives; else null.
ProcessGroup* current_group();
class GroupScope {
 public:
  [[nodiscard]] explicit GroupScope(ProcessGroup* group);
  ~GroupScope();
  GroupScope(const GroupScope&) = delete;

 private:
  ProcessGroup* saved_;
};

}  // namespace halfstep
