// SPDX-License-Identifier: Apache-2.0
// A process group over a transport of bytes: a thread runs the operations, and sums follow the order of the ranks.
//
// all_reduce sends each rank its part of all ranks' numbers, adds them there, and gathers the sums. Each rank sends and receives no
// more than in a ring all-reduce, 2 (size - 1) / size of the bytes, and the order of a sum does not depend on the transport's own
// algorithm.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "framework/comm/process_group.h"
#include "framework/comm/transport.h"

namespace halfstep {

class HostGroup final : public ProcessGroup {
 public:
  // Opens a group. `open` runs in the group's thread, which makes all calls of the transport; its exceptions are rethrown.
  static std::unique_ptr<HostGroup> open(const std::function<std::unique_ptr<Transport>()>& open, const GroupOptions& options);
  ~HostGroup() override;

  std::string describe() const override;
  void set_timeout(double seconds) override;
  Ticket all_reduce(const Tensors& tensors, ReduceOp op, Wire wire) override;
  Ticket broadcast(const Tensors& tensors, int root) override;
  Ticket reduce_scatter(const Tensor& from, const Tensor& to) override;
  Ticket all_gather(const Tensor& from, const Tensor& to) override;
  Ticket barrier() override;
  void wait(Ticket ticket) override;
  void close() override;

 private:
  class Worker;
  HostGroup(std::shared_ptr<Worker> worker, int rank, int size);
  // Returns `t`, or a copy of it on the host, and keeps that until the operation to be submitted next has been waited for. reads:
  // the operation reads it, so a copy has its values. writes: the operation writes it, so wait() copies a copy back.
  Tensor on_host(const Tensor& t, bool reads, bool writes);
  // Queues an operation, which then owns the memory that on_host() returned. what: its name in errors.
  Ticket submit(std::string what, std::function<void(Worker&)> work);

  std::shared_ptr<Worker> worker_;
  struct Copy {
    Tensor from, to;  // a result on the host, and its destination on a device
  };
  struct OperationMemory;
  std::unique_ptr<OperationMemory> memory_;
};

}  // namespace halfstep
