// SPDX-License-Identifier: Apache-2.0
// Every misuse of NCCL that the fake library must find.
#include <array>
#include <functional>

#include "cuda/nccl/nccl.h"
#include "framework/comm/device_group.h"
#include "halfstep.h"
#include "tests/comm/local_ranks.h"
#include "tests/emulators/fake_nccl/rank_gpus.h"
#include "tests/emulators/source/runtime.h"
#include "tests/emulators/source/misuse.h"

extern "C" int fake_nccl_max_ctas();
extern "C" int fake_nccl_priority();

using namespace halfstep;
using namespace halfstep::testing;

namespace {

// Two ranks of one thread, with memory of 64 floats each.
struct Pair {
  std::array<ncclComm_t, 2> comm{};
  std::array<float*, 2> memory{};
  std::array<cudaStream_t, 2> stream{};

  Pair() {
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    for (int r = 0; r < 2; ++r) {
      cudaStreamCreateWithFlags(&stream[size_t(r)], cudaStreamNonBlocking);
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      ncclCommInitRankConfig(&comm[size_t(r)], 2, id, r, &config);
      cudaMalloc(reinterpret_cast<void**>(&memory[size_t(r)]), 64 * sizeof(float));
    }
    for (ncclComm_t c : comm) settle(c);
  }
  static void settle(ncclComm_t c) {
    for (ncclResult_t state = ncclInProgress; state == ncclInProgress;) ncclCommGetAsyncError(c, &state);
  }
  void exchange(size_t rank, int to, size_t sent, size_t received, ncclDataType_t type = ncclFloat32) {
    ncclGroupStart();
    if (sent > 0) ncclSend(memory[rank], sent, type, to, comm[rank], stream[rank]);
    if (received > 0) ncclRecv(memory[rank] + 32, received, type, to, comm[rank], stream[rank]);
    ncclGroupEnd();
    settle(comm[rank]);
  }
  // The graph of that work.
  cudaGraphExec_t captured(size_t rank, const std::function<void()>& work) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t out = nullptr;
    cudaStreamBeginCapture(stream[rank], cudaStreamCaptureModeThreadLocal);
    work();
    cudaStreamEndCapture(stream[rank], &graph);
    cudaGraphInstantiate(&out, graph, 0);
    cudaGraphDestroy(graph);
    return out;
  }
  void reduce(size_t rank, size_t count, ncclDataType_t type = ncclFloat32, ncclRedOp_t op = ncclSum) {
    ncclAllReduce(memory[rank], memory[rank], count, type, op, comm[rank], stream[rank]);
    settle(comm[rank]);
  }
};

}  // namespace

TEST_CASE("nccl: a rank that is none is refused") {
  Pair p;
  ncclGroupStart();
  CHECK(ncclSend(p.memory[0], 4, ncclFloat32, 2, p.comm[0], p.stream[0]) == ncclInvalidArgument);
  CHECK(ncclRecv(p.memory[0], 4, ncclFloat32, -1, p.comm[0], p.stream[0]) == ncclInvalidArgument);
  ncclGroupEnd();
}

TEST_CASE("nccl: exchanges have the highest priority, and as many blocks as they were given") {
  for (const int blocks : {16, 5}) {
    on_gpus(
        2,
        [&](ProcessGroup& group) {
          const Tensor t = ones({8}).to(Device::cuda);
          group.wait(group.all_reduce({t}));
          group.close();
        },
        {.max_blocks = blocks});
    CHECK(fake_nccl_max_ctas() == blocks);
    CHECK(fake_nccl_priority() == emu::kHighestPriority);
  }
}

TEST_CASE("nccl: misuse is found") {
  find_all({
      {"ranks that differ in the number", "call 0 of rank 1 is ncclAllReduce of 5 elements",
       [] {
         Pair p;
         p.reduce(0, 4);
         p.reduce(1, 5);
       }},
      {"ranks that differ in the dtype", "but of rank 0 ncclAllReduce of 4 elements of type 7",
       [] {
         Pair p;
         p.reduce(0, 4);
         p.reduce(1, 4, ncclInt32);
       }},
      {"ranks that differ in the operation", "operation 2",
       [] {
         Pair p;
         p.reduce(0, 4);
         p.reduce(1, 4, ncclFloat32, ncclMax);
       }},
      {"ranks that do different things", "call 1 of rank 1 is ncclBroadcast",
       [] {
         Pair p;
         p.reduce(0, 4);
         p.reduce(1, 4);
         p.reduce(0, 4);
         ncclBroadcast(p.memory[1], p.memory[1], 4, ncclFloat32, 0, p.comm[1], p.stream[1]);
         Pair::settle(p.comm[1]);
       }},
      {"memory of the host", "is not in device memory",
       [] {
         Pair p;
         float here[4] = {};
         ncclAllReduce(here, here, 4, ncclFloat32, ncclSum, p.comm[0], p.stream[0]);
       }},
      {"too little memory", "overrun an allocation", [] { Pair().reduce(0, 65); }},
      {"parts without room", "overrun an allocation",
       [] {
         Pair p;
         ncclAllGather(p.memory[0], p.memory[1], 40, ncclFloat32, p.comm[0], p.stream[0]);
       }},
      {"memory that overlaps", "overlap",
       [] {
         Pair p;
         ncclAllReduce(p.memory[0], p.memory[0] + 2, 4, ncclFloat32, ncclSum, p.comm[0], p.stream[0]);
       }},
      {"a call before the last one is done", "still in progress",
       [] {
         Pair p;
         for (int i = 0; i < 2; ++i) ncclAllReduce(p.memory[0], p.memory[0], 4, ncclFloat32, ncclSum, p.comm[0], p.stream[0]);
       }},
      {"messages of different lengths", "rank 0 sends 4 elements of type 7 to rank 1, which receives 5 of type 7",
       [] {
         Pair p;
         p.exchange(0, 1, 4, 4);
         p.exchange(1, 0, 4, 5);
       }},
      {"messages of different dtypes", "rank 0 sends 4 elements of type 2 to rank 1, which receives 4 of type 7",
       [] {
         Pair p;
         p.exchange(0, 1, 4, 4, ncclInt32);
         p.exchange(1, 0, 4, 4);
       }},
      {"a message that nobody receives", "rank 0 sends 1 messages to rank 1, which receives 0",
       [] {
         Pair p;
         p.exchange(0, 1, 4, 4);
         p.exchange(1, 0, 4, 0);
       }},
      {"a message to the wrong rank", "rank 0 sends 0 messages to rank 1, which receives 1",
       [] {
         Pair p;
         p.exchange(0, 0, 4, 4);
         p.exchange(1, 0, 4, 4);
       }},
      {"messages where another rank adds up", "call 0 of rank 1 is ncclAllReduce",
       [] {
         Pair p;
         p.exchange(0, 1, 4, 4);
         p.reduce(1, 4);
       }},
      {"a message outside a group", "ncclSend outside a group",
       [] {
         Pair p;
         ncclSend(p.memory[0], 4, ncclFloat32, 1, p.comm[0], p.stream[0]);
       }},
      {"a message into what is sent", "overlaps",
       [] {
         Pair p;
         ncclGroupStart();
         ncclSend(p.memory[0], 4, ncclFloat32, 1, p.comm[0], p.stream[0]);
         ncclRecv(p.memory[0] + 2, 4, ncclFloat32, 1, p.comm[0], p.stream[0]);
       }},
      {"a message beyond the memory", "overrun an allocation",
       [] {
         Pair p;
         ncclGroupStart();
         ncclRecv(p.memory[0] + 62, 4, ncclFloat32, 1, p.comm[0], p.stream[0]);
       }},
      {"captured on one rank only", "ncclAllReduce of 4 elements of type 7, operation 0, root 0, captured",
       [] {
         Pair p;
         cudaGraphLaunch(p.captured(0, [&] { p.reduce(0, 4); }), p.stream[0]);
         p.reduce(1, 4);
       }},
      {"ended before its graphs", "graphs with calls of the communicator still live",
       [] {
         Pair p;
         const cudaGraphExec_t graph = p.captured(0, [&] { p.reduce(0, 4); });
         CHECK(graph != nullptr);
         ncclCommFinalize(p.comm[0]);
       }},
      {"an aborted communicator", "not a live communicator",
       [] {
         Pair p;
         ncclCommAbort(p.comm[0]);
         p.reduce(0, 4);
       }},
      {"destroyed without an end", "is not finalized", [] { ncclCommDestroy(Pair().comm[0]); }},
      {"a stream that is destroyed while others are waited for", "waits for another rank",
       [] {
         Pair p;
         p.reduce(0, 4);
         cudaStreamDestroy(p.stream[0]);
       }},
      {"freed while it is exchanged", "not in a live allocation",
       [] {
         Pair p;
         p.reduce(0, 4);
         cudaFree(p.memory[0]);
         p.reduce(1, 4);
         cudaStreamSynchronize(p.stream[0]);
       }},
      {"ranks of the framework that do different things", "ncclBroadcast of 32 elements",
       [] {
         with_ranks(2, [](std::unique_ptr<ProcessGroup> host) {
           const auto group = dynamic_cast<DeviceGroups&>(backend_for(Device::cuda)).open_group(std::move(host), {});
           const Tensor t = ones({8}).to(Device::cuda);
           group->wait(group->rank() == 0 ? group->all_reduce({t}) : group->broadcast({t}, 0));
         });
       }},
  });
}
