// SPDX-License-Identifier: Apache-2.0
#include "torch/c10d/process_group.h"

#include "framework/comm/process_group.h"

namespace c10d {

using torch::Tensor;

namespace {

std::vector<halfstep::Tensor> contiguous(std::string_view op, const std::vector<Tensor>& tensors) {
  TORCH_CHECK(!tensors.empty(), "[", op, "] requires at least one tensor, got none");
  std::vector<halfstep::Tensor> out;
  for (const Tensor& t : tensors) {
    TORCH_CHECK(t.is_contiguous(), "[", op, "] tensors must be contiguous, got one of sizes ", t.sizes(), " and strides ",
                t.strides(), "; call contiguous()");
    out.push_back(t.h().detach());
  }
  return out;
}

halfstep::ReduceOp core_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::SUM:
    case ReduceOp::AVG: return halfstep::ReduceOp::sum;
    case ReduceOp::MIN: return halfstep::ReduceOp::min;
    case ReduceOp::MAX: return halfstep::ReduceOp::max;
  }
  torch::detail::fail("[allreduce] the operations are SUM, AVG, MIN and MAX, got number ", int(op.op_));
}

}  // namespace

ProcessGroup::ProcessGroup(std::unique_ptr<halfstep::ProcessGroup> ranks) : ranks_(std::move(ranks)) {}
ProcessGroup::~ProcessGroup() {
  if (ranks_ && std::uncaught_exceptions() == 0) {
    try {
      ranks_->close();
    } catch (const std::exception&) {}  // a peer is gone: its loss was an error of the last operation, or nobody waited
  }
}

int ProcessGroup::getRank() const { return ranks_ ? ranks_->rank() : 0; }
int ProcessGroup::getSize() const { return ranks_ ? ranks_->size() : 1; }

// Runs an operation that `begin` begins; a single rank has nothing to do.
template <class F>
c10::intrusive_ptr<Work> ProcessGroup::run(const std::vector<Tensor>& written, std::chrono::milliseconds timeout, const F& begin) {
  std::exception_ptr error;
  if (ranks_) {
    try {
      if (timeout != kUnsetTimeout) ranks_->set_timeout(std::chrono::duration<double>(timeout).count());
      ranks_->wait(begin(*ranks_));
    } catch (const halfstep::PeerLostError&) { error = std::current_exception(); }
    for (const Tensor& t : written) t.h().bump_version();
  }
  return std::make_shared<Work>(written, error);
}

c10::intrusive_ptr<Work> ProcessGroup::allreduce(std::vector<Tensor>& tensors, const AllreduceOptions& options) {
  const std::vector<halfstep::Tensor> all = contiguous("allreduce", tensors);
  const halfstep::ReduceOp op = core_op(options.reduceOp);
  const bool mean = options.reduceOp == ReduceOp::AVG;
  for (const Tensor& t : tensors)
    TORCH_CHECK(!mean || t.is_floating_point(), "[allreduce] AVG requires floating tensors, got ", t.dtype());
  auto work = run(tensors, options.timeout, [&](halfstep::ProcessGroup& ranks) { return ranks.all_reduce(all, op); });
  const torch::NoGradGuard off;
  if (mean && work->isSuccess())
    for (const Tensor& t : tensors) t.div_(getSize());
  return work;
}

c10::intrusive_ptr<Work> ProcessGroup::broadcast(std::vector<Tensor>& tensors, const BroadcastOptions& options) {
  const std::vector<halfstep::Tensor> all = contiguous("broadcast", tensors);
  TORCH_CHECK(options.rootRank >= 0 && options.rootRank < getSize(), "[broadcast] rootRank must be within [0, ", getSize(),
              "), got ", options.rootRank);
  TORCH_CHECK(options.rootTensor == 0, "[broadcast] rootTensor must be 0: a rank has one device, got ", options.rootTensor);
  return run(tensors, options.timeout, [&](halfstep::ProcessGroup& ranks) { return ranks.broadcast(all, int(options.rootRank)); });
}

c10::intrusive_ptr<Work> ProcessGroup::allgather(std::vector<std::vector<Tensor>>& outputs, std::vector<Tensor>& inputs,
                                                 const AllgatherOptions& options) {
  const std::vector<halfstep::Tensor> mine = contiguous("allgather", inputs);
  TORCH_CHECK(inputs.size() == 1 && outputs.size() == 1 && outputs[0].size() == size_t(getSize()),
              "[allgather] requires one input, and one list of as many outputs as ranks, which are ", getSize());
  for (const Tensor& t : outputs[0])
    TORCH_CHECK(t.sizes() == inputs[0].sizes() && t.scalar_type() == inputs[0].scalar_type(),
                "[allgather] outputs must have the input's sizes ", inputs[0].sizes(), " and dtype, got ", t.sizes());
  const Tensor all = torch::empty({getSize(), inputs[0].numel()}, inputs[0].options().requires_grad(false));
  if (!ranks_) all.copy_(inputs[0].detach().reshape({1, -1}));
  auto work = run({}, options.timeout, [&](halfstep::ProcessGroup& ranks) { return ranks.all_gather(mine[0], all.h()); });
  const torch::NoGradGuard off;
  if (work->isSuccess())
    for (int r = 0; r < getSize(); ++r) outputs[0][size_t(r)].copy_(all[r].reshape(inputs[0].sizes()));
  return std::make_shared<Work>(outputs[0], work->exception());
}

c10::intrusive_ptr<Work> ProcessGroup::barrier(const BarrierOptions& options) {
  return run({}, options.timeout, [](halfstep::ProcessGroup& ranks) { return ranks.barrier(); });
}

c10::intrusive_ptr<ProcessGroupMPI> ProcessGroupMPI::createProcessGroupMPI(std::vector<int> ranks) {
  auto group = std::make_shared<ProcessGroupMPI>(halfstep::open_process_group());
  bool all = ranks.empty() || ranks.size() == size_t(group->getSize());
  for (size_t i = 0; all && i < ranks.size(); ++i) all = ranks[i] == int(i);
  TORCH_CHECK(all, "[createProcessGroupMPI] a group has all ", group->getSize(), " ranks of the job, got ", ranks.size(),
              " of them; leave the list out");
  return group;
}

void ProcessGroupMPI::abort() {
  std::cerr << "rank " << getRank() << ": c10d::ProcessGroupMPI::abort() ends the process\n" << std::flush;
  std::_Exit(1);
}

}  // namespace c10d
