// SPDX-License-Identifier: Apache-2.0
// One rank of a job that does not run, for steps on Device::meta: it makes the tensors of a real rank, and exchanges nothing.
#pragma once

#include <string>

#include "framework/comm/process_group.h"

namespace halfstep {

class MetaGroup final : public ProcessGroup {
 public:
  // can_record: whether the planned group can record.
  MetaGroup(int rank, int size, bool can_record = false) : ProcessGroup(rank, size), can_record_(can_record) {}

  std::string describe() const override { return "planned"; }
  void set_timeout(double) override {}
  bool can_record() const override { return can_record_; }
  // Take tensors on Device::meta. Throw ValueError for others, and for whatever other groups refuse.
  Ticket all_reduce(const Tensors& tensors, ReduceOp op, Wire wire) override;
  Ticket broadcast(const Tensors& tensors, int root) override;
  Ticket reduce_scatter(const Tensor& from, const Tensor& to) override;
  // Also takes host tensors, and fills in this rank's part for every rank.
  Ticket all_gather(const Tensor& from, const Tensor& to) override;
  Ticket barrier() override { return ++begun_; }
  void wait(Ticket) override {}
  void close() override {}

  // Returns the bytes of meta tensors that this rank would have sent so far, if HostGroup or NCCL sent them.
  double sent_bytes() const { return sent_bytes_; }

 private:
  // Counts an operation in which this rank would send `bytes`.
  Ticket begin_sending(double bytes);
  const bool can_record_;
  Ticket begun_ = 0;
  double sent_bytes_ = 0;
};

}  // namespace halfstep
