// SPDX-License-Identifier: Apache-2.0
// Data-parallel training in a loop that you write yourself. Start it by
//   mpirun -np 4 ddp_train   or   torchrun --no-python --nproc-per-node 4 ddp_train
//
// Every process has the whole model and computes its part of each batch, on a GPU of its own where there is one; backward() makes
// the mean of their gradients. Without a launcher it is the same loop in one process, on the whole batch.
#include <cstdio>
#include <memory>
#include <utility>

#include "examples/claim.h"
#include "framework/comm/device_group.h"
#include "halfstep.h"

using namespace halfstep;

namespace {

std::shared_ptr<Sequential> make_model() {
  return std::make_shared<Sequential>(Linear(8, 64), Tanh(), Dropout(0.1),
                                      Linear(64, 1));
}

}  // namespace

int main() {
  const Device device = has_backend(Device::Type::cuda) ? Device::cuda : Device::cpu;
  std::unique_ptr<ProcessGroup> group = open_process_group();  // null without a launcher
  if (group) group = for_device(std::move(group), device, "auto");  // NCCL, where each rank has a GPU
  const int rank = group ? group->rank() : 0, ranks = group ? group->size() : 1;
  constexpr int64_t kBatch = 64, kSteps = 150;

  manual_seed(1);
  const std::shared_ptr<Sequential> model = make_model();
  model->to(device);
  std::unique_ptr<DistributedDataParallel> parallel;
  if (group) parallel = std::make_unique<DistributedDataParallel>(model, *group);
  Module& net = group ? static_cast<Module&>(*parallel) : *model;
  AdamW optimizer(model->parameters(), {.lr = 3e-3});

  Generator data(2);  // every rank draws the whole batch, and takes its rows
  double first = 0, last = 0;
  for (int step = 0; step < kSteps; ++step) {
    const Tensor x = randn({kBatch, 8}, {}, &data).to(device), y = (x * x).sum({1}, true) * 0.1;
    const BatchRows mine = part_of(kBatch, rank, ranks);
    optimizer.zero_grad();
    const Tensor loss = mse_loss(net(x.narrow(0, mine.first, mine.rows)), y.narrow(0, mine.first, mine.rows));
    loss.backward();
    optimizer.step();
    const Tensor sum = loss.detach().clone();
    if (group) group->wait(group->all_reduce({sum}));
    const double mean = sum.item<double>() / ranks;
    (step == 0 ? first : last) = mean;
    if (rank == 0 && step % 30 == 0) std::printf("step %3d  loss %.4f\n", step, mean);
  }
  claim(last < first / 3, "the loss falls to a third");

  // Every rank has the same weights, to the bit.
  bool same = true;
  for (const Tensor& p : model->parameters()) {
    const Tensor theirs = p.detach().clone();
    if (group) group->wait(group->broadcast({theirs}, 0));
    same = same && equal(theirs, p.detach());
  }
  claim(same, "all ranks have rank 0's weights");
  if (group) group->close();
  return failed_claims;
}
