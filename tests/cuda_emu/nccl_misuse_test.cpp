// Every misuse of NCCL that the library which stands in for it must find.
#include <array>

#include "cuda/nccl/nccl.h"
#include "framework/comm/device_group.h"
#include "halfstep.h"
#include "tests/comm/local_ranks.h"
#include "tests/cuda_emu/misuse.h"

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
  void reduce(size_t rank, size_t count, ncclDataType_t type = ncclFloat32, ncclRedOp_t op = ncclSum) {
    ncclAllReduce(memory[rank], memory[rank], count, type, op, comm[rank], stream[rank]);
    settle(comm[rank]);
  }
};

}  // namespace

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
