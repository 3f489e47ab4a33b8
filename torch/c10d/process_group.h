// SPDX-License-Identifier: Apache-2.0
// Process groups with libtorch's names (c10d::ProcessGroupMPI), over halfstep's ranks, which a launcher such as mpirun starts and
// connects (docs/distributed.md). A call returns when its result is there; wait() throws if a rank was lost. Sums are added in the
// order of the ranks, in float32, so all ranks get the same bits.
#pragma once

#include <exception>

#include "torch/autograd/autograd.h"

namespace halfstep {
class ProcessGroup;
}
namespace c10 {
template <class T>
using intrusive_ptr = std::shared_ptr<T>;
template <class T, class... A>
intrusive_ptr<T> make_intrusive(A&&... a) {
  return std::make_shared<T>(std::forward<A>(a)...);
}
}  // namespace c10

namespace c10d {

inline constexpr std::chrono::milliseconds kUnsetTimeout{-1};  // the group's: GroupOptions::timeout_s

struct ReduceOp {
  enum RedOpType : uint8_t { SUM, AVG, MIN = 3, MAX };  // other operations of libtorch are not provided
  ReduceOp(RedOpType op = SUM) : op_(op) {}
  operator RedOpType() const { return op_; }
  RedOpType op_;
};
struct AllreduceOptions {
  ReduceOp reduceOp = ReduceOp::SUM;
  std::chrono::milliseconds timeout = kUnsetTimeout;  // here and below: also of later operations
};
struct BroadcastOptions {
  int64_t rootRank = 0, rootTensor = 0;
  std::chrono::milliseconds timeout = kUnsetTimeout;
};
struct AllgatherOptions {
  std::chrono::milliseconds timeout = kUnsetTimeout;
};
struct BarrierOptions {
  std::chrono::milliseconds timeout = kUnsetTimeout;
};

// The outcome of an operation, which has ended.
class Work {
 public:
  Work(std::vector<torch::Tensor> result, std::exception_ptr error) : result_(std::move(result)), error_(std::move(error)) {}
  bool isCompleted() const { return true; }
  bool isSuccess() const { return !error_; }
  std::exception_ptr exception() const { return error_; }
  bool wait(std::chrono::milliseconds = kUnsetTimeout) const {  // throws the operation's error
    if (error_) std::rethrow_exception(error_);
    return true;
  }
  std::vector<torch::Tensor> result() const { return result_; }

 private:
  std::vector<torch::Tensor> result_;
  std::exception_ptr error_;
};

class ProcessGroup {
 public:
  using Work = c10d::Work;
  explicit ProcessGroup(std::unique_ptr<halfstep::ProcessGroup> ranks);  // null: one rank
  virtual ~ProcessGroup();                                               // leaves the job together with all other ranks
  ProcessGroup(const ProcessGroup&) = delete;

  int getRank() const;
  int getSize() const;
  virtual std::string getBackendName() const = 0;

  // Work in place on contiguous tensors of one dtype.
  c10::intrusive_ptr<Work> allreduce(std::vector<torch::Tensor>& tensors, const AllreduceOptions& options = {});
  c10::intrusive_ptr<Work> broadcast(std::vector<torch::Tensor>& tensors, const BroadcastOptions& options = {});
  // Copies the one tensor of each rank's `inputs` to outputs[0][rank].
  c10::intrusive_ptr<Work> allgather(std::vector<std::vector<torch::Tensor>>& outputs, std::vector<torch::Tensor>& inputs,
                                     const AllgatherOptions& options = {});
  c10::intrusive_ptr<Work> barrier(const BarrierOptions& options = {});

 private:
  template <class F>
  c10::intrusive_ptr<Work> run(const std::vector<torch::Tensor>& written, std::chrono::milliseconds timeout, const F& begin);
  std::unique_ptr<halfstep::ProcessGroup> ranks_;
};

class ProcessGroupMPI : public ProcessGroup {
 public:
  using ProcessGroup::ProcessGroup;
  // Opens the group of this process's job. `ranks`: all of them; a part is not provided.
  static c10::intrusive_ptr<ProcessGroupMPI> createProcessGroupMPI(std::vector<int> ranks = {});
  std::string getBackendName() const override { return "mpi"; }
  [[noreturn]] void abort();  // ends this process with status 1; the other ranks' operations then fail
};

}  // namespace c10d
