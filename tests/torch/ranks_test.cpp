// SPDX-License-Identifier: Apache-2.0
// Process groups with libtorch's names, and what refuses TorchScript.
#include <doctest/doctest.h>

#include "tests/comm/local_ranks.h"
#include "tests/torch/support.h"

using Group = c10d::ProcessGroupMPI;

namespace {
void with_groups(int ranks, const std::function<void(Group&)>& f) {
  halfstep::testing::with_ranks(ranks, [&](std::unique_ptr<halfstep::ProcessGroup> own) {
    Group group(std::move(own));
    f(group);
  });
}
}  // namespace

TEST_CASE("sums, means, smallest and largest numbers over ranks are in place when a call returns") {
  with_groups(3, [](Group& group) {
    const double r = group.getRank();
    CHECK(group.getSize() == 3);
    const auto reduced = [&](c10d::ReduceOp op) {
      std::vector<torch::Tensor> t{torch::full({2}, r + 1), torch::full({1, 3}, 10 * r)};
      const auto version = t[0]._version();
      const auto work = group.allreduce(t, {op});
      CHECK(work->isCompleted());
      CHECK(work->wait());
      CHECK(t[0]._version() > version);
      return std::pair(t[0][1].item<double>(), t[1][0][2].item<double>());
    };
    CHECK(reduced(c10d::ReduceOp::SUM) == std::pair(6.0, 30.0));
    CHECK(reduced(c10d::ReduceOp::AVG) == std::pair(2.0, 10.0));
    CHECK(reduced(c10d::ReduceOp::MIN) == std::pair(1.0, 0.0));
    CHECK(reduced(c10d::ReduceOp::MAX) == std::pair(3.0, 20.0));
    std::vector<torch::Tensor> whole{torch::full({2}, int64_t(r), torch::kInt64)};
    group.allreduce(whole)->wait();
    CHECK(whole[0][0].item<int64_t>() == 3);
  });
}

TEST_CASE("broadcast and allgather") {
  with_groups(2, [](Group& group) {
    std::vector<torch::Tensor> t{torch::full({2, 2}, double(group.getRank() + 5))};
    group.broadcast(t, {.rootRank = 1})->wait();
    CHECK(t[0][1][0].item<double>() == 6);
    std::vector<torch::Tensor> mine{torch::full({2}, double(group.getRank()))};
    std::vector<std::vector<torch::Tensor>> all{{torch::empty({2}), torch::empty({2})}};
    group.allgather(all, mine)->wait();
    CHECK(all[0][0][0].item<double>() == 0);
    CHECK(all[0][1][1].item<double>() == 1);
    CHECK(group.barrier()->wait());
  });
}

TEST_CASE("a process without launcher is a group of one rank, whose operations change nothing") {
  const auto group = Group::createProcessGroupMPI();
  CHECK(group->getRank() == 0);
  CHECK(group->getSize() == 1);
  std::vector<torch::Tensor> t{torch::full({2}, 3.0)};
  CHECK(group->allreduce(t, {c10d::ReduceOp::AVG})->wait());
  CHECK(t[0][0].item<double>() == 3);
  std::vector<std::vector<torch::Tensor>> all{{torch::empty({2})}};
  group->allgather(all, t)->wait();
  CHECK(all[0][0].equal(t[0]));
  CHECK(group->getBackendName() == "mpi");
}

TEST_CASE("what a group does not do is refused") {
  const auto group = Group::createProcessGroupMPI();
  std::vector<torch::Tensor> none, columns{torch::zeros({2, 3}).t()}, whole{torch::zeros({2}, torch::kInt64)};
  CHECK(has(message_of([&] { group->allreduce(none); }), "[allreduce] requires at least one tensor"));
  CHECK(has(message_of([&] { group->allreduce(columns); }), "[allreduce] tensors must be contiguous"));
  CHECK(has(message_of([&] { group->allreduce(whole, {c10d::ReduceOp::AVG}); }), "AVG requires floating tensors"));
  CHECK(has(message_of([&] { group->broadcast(whole, {.rootRank = 1}); }), "rootRank must be within [0, 1), got 1"));
  CHECK(has(message_of([&] { group->broadcast(whole, {.rootTensor = 1}); }), "rootTensor must be 0"));
  std::vector<std::vector<torch::Tensor>> two{{whole[0], whole[0]}};
  CHECK(has(message_of([&] { group->allgather(two, whole); }), "as many outputs as ranks, which are 1"));
  CHECK(has(message_of([] { Group::createProcessGroupMPI({0, 1}); }), "a group has all 1 ranks of the job, got 2"));
}

TEST_CASE("programs of TorchScript are refused with what to do instead") {
  const std::string text = message_of([] { torch::jit::load("model.pt"); });
  CHECK(has(text, "[torch::jit::load] programs of TorchScript are not run, got \"model.pt\""));
  CHECK(has(text, "torch::load(model, \"model.pt\")"));
  torch::jit::script::Module module;
  CHECK(has(message_of([&] { module.forward({torch::ones({1})}); }), "torch::load(model, \"FILE\")"));
  CHECK(has(message_of([&] { module.eval(); }), "[torch::jit::Module::eval]"));
}
