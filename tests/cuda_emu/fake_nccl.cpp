// A library with the functions of NCCL that cuda/nccl calls, for ranks that are threads of one program on the emulator's device.
// A call is put into its stream and copies what it sends when the stream comes to it; the stream then stands still until all
// ranks have come so far. Nothing is done in a call that returns ncclInProgress before the caller has asked how it went, twice.
//
// It ends the program where the real one would hang or compute garbage: calls of ranks that do not fit each other, memory that is
// not the device's or too small, a communicator that is used while its last call is in progress, or after its end.
//   HALFSTEP_FAKE_NCCL_ERROR=r   rank r's operations fail with ncclRemoteError, reported by ncclCommGetAsyncError
//   HALFSTEP_FAKE_NCCL_VERSION=n what ncclGetVersion says
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cuda/nccl/nccl.h"
#include "framework/base/dtype.h"
#include "hooks.h"
#include "runtime.h"

using namespace emu;

namespace {

constexpr int kTurns = 2;  // questions until a call that is in progress is done

enum Kind { kAllReduce, kReduceScatter, kAllGather, kBroadcast };
constexpr const char* kNames[] = {"ncclAllReduce", "ncclReduceScatter", "ncclAllGather", "ncclBroadcast"};
constexpr size_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};  // of ncclDataType_t

struct Call {
  Kind kind;
  const void* send;
  void* receive;
  size_t count;
  int type, op, root;
  cudaStream_t stream;
  std::vector<char> sent = {};  // what was there when the stream came to it
  bool here = false;            // it has come

  bool same(const Call& o) const { return kind == o.kind && count == o.count && type == o.type && op == o.op && root == o.root; }
  std::string text() const {
    return std::string(kNames[kind]) + " of " + std::to_string(count) + " elements of type " + std::to_string(type) +
           ", operation " + std::to_string(op) + ", root " + std::to_string(root);
  }
};
using Calls = std::vector<std::shared_ptr<Call>>;

struct Clique {
  int size = 0;
  std::map<int, Calls> calls;  // by rank, in their order
};

std::map<std::string, std::shared_ptr<Clique>> cliques;  // by their id
int ids = 0;

}  // namespace

struct ncclComm {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  bool blocking = true, aborted = false, finalized = false;
  int turns = 0;                 // until what is in progress is done
  std::vector<Call> given = {};  // not yet in the stream
};

namespace {

std::set<ncclComm*> comms;
thread_local int depth = 0;
thread_local std::vector<std::pair<ncclComm*, Call>> grouped;

ncclComm& comm_of(const char* call, ncclComm_t comm) {
  if (!comms.contains(comm)) fail("%s: %p is not a live communicator", call, static_cast<void*>(comm));
  if (comm->turns > 0) fail("%s: the communicator's last call is still in progress", call);
  if (comm->finalized) fail("%s: the communicator is finalized", call);
  return *comm;
}

template <class T>
void reduce(const std::vector<const char*>& from, char* to, size_t count, int op) {
  for (size_t i = 0; i < count; ++i) {
    T sum, next;
    std::memcpy(&sum, from[0] + i * sizeof(T), sizeof(T));
    for (size_t r = 1; r < from.size(); ++r) {
      std::memcpy(&next, from[r] + i * sizeof(T), sizeof(T));
      // One addition at a time, each rounded, as NCCL has it.
      sum = op == ncclSum ? T(sum + next) : op == ncclMax ? (sum < next ? next : sum) : (next < sum ? next : sum);
    }
    std::memcpy(to + i * sizeof(T), &sum, sizeof(T));
  }
}
void reduce(int type, const std::vector<const char*>& from, char* to, size_t count, int op) {
  switch (type) {
    case ncclInt8: return reduce<int8_t>(from, to, count, op);
    case ncclUint8: return reduce<uint8_t>(from, to, count, op);
    case ncclInt32: return reduce<int32_t>(from, to, count, op);
    case ncclInt64: return reduce<int64_t>(from, to, count, op);
    case ncclFloat16: return reduce<halfstep::f16>(from, to, count, op);
    case ncclFloat32: return reduce<float>(from, to, count, op);
    case ncclFloat64: return reduce<double>(from, to, count, op);
    case ncclBfloat16: return reduce<halfstep::bf16>(from, to, count, op);
    default: fail("NCCL: nothing here adds numbers of type %d", type);
  }
}

size_t bytes_sent(const Call& c, int size) { return c.count * kBytes[c.type] * size_t(c.kind == kReduceScatter ? size : 1); }
size_t bytes_received(const Call& c, int size) { return c.count * kBytes[c.type] * size_t(c.kind == kAllGather ? size : 1); }

void receive(const Clique& clique, int rank, size_t index) {
  const Call& mine = *clique.calls.at(rank)[index];
  std::vector<const char*> sent;
  const size_t part = mine.count * kBytes[mine.type];
  for (const auto& [r, calls] : clique.calls)
    sent.push_back(calls[index]->sent.data() + (mine.kind == kReduceScatter ? size_t(rank) * part : 0));
  check_device_memory(kNames[mine.kind], mine.receive, bytes_received(mine, clique.size));
  open_device_memory();
  char* const to = static_cast<char*>(mine.receive);
  if (mine.kind == kBroadcast) {
    std::memcpy(to, sent[size_t(mine.root)], part);
  } else if (mine.kind == kAllGather) {
    for (size_t r = 0; r < sent.size(); ++r) std::memcpy(to + r * part, sent[r], part);
  } else {
    reduce(mine.type, sent, to, mine.count, mine.op);
  }
  close_device_memory();
}

void put_in_stream(ncclComm* comm, const Call& given) {
  const auto clique = comm->clique;
  const int rank = comm->rank;
  const auto call = std::make_shared<Call>(given);
  Calls& mine = clique->calls[rank];
  const size_t index = mine.size();
  for (const auto& [other, calls] : clique->calls) {
    if (index < calls.size() && !calls[index]->same(*call))
      fail("NCCL: call %zu of rank %d is %s, but of rank %d %s", index, rank, call->text().c_str(), other,
           calls[index]->text().c_str());
  }
  mine.push_back(call);
  submit(call->stream, {.work =
                            [=] {
                              check_device_memory(kNames[call->kind], call->send, bytes_sent(*call, clique->size));
                              open_device_memory();
                              const auto* from = static_cast<const char*>(call->send);
                              call->sent.assign(from, from + bytes_sent(*call, clique->size));
                              close_device_memory();
                              call->here = true;
                            },
                        .what = "nccl"});
  const auto ended = [=] { return !comms.contains(comm) || comm->aborted; };
  const auto ready = [=] {
    return ended() || (int(clique->calls.size()) == clique->size &&
                       std::all_of(clique->calls.begin(), clique->calls.end(),
                                   [&](const auto& c) { return index < c.second.size() && c.second[index]->here; }));
  };
  submit_when(call->stream,
              {.work =
                   [=] {
                     if (!ended()) receive(*clique, rank, index);
                   },
               .what = nullptr},
              ready);
}

ncclResult_t flush() {
  ncclResult_t result = ncclSuccess;
  for (auto& [comm, call] : std::exchange(grouped, {})) {
    if (comm->blocking) {
      put_in_stream(comm, call);
    } else {
      comm->given.push_back(call);
      comm->turns = kTurns;
      result = ncclInProgress;
    }
  }
  return result;
}

ncclResult_t take(const Call& call, ncclComm_t handle) {
  const Lock lock(runtime_mutex());
  const char* const name = kNames[call.kind];
  ncclComm& comm = comm_of(name, handle);
  if (call.type < 0 || call.type > ncclBfloat16) fail("%s: no such type: %d", name, call.type);
  if (call.op < 0 || call.op > ncclMin) fail("%s: nothing here does operation %d", name, call.op);
  if (call.root < 0 || call.root >= comm.clique->size) return ncclInvalidArgument;
  check_device_memory(name, call.send, bytes_sent(call, comm.clique->size));
  check_device_memory(name, call.receive, bytes_received(call, comm.clique->size));
  if (stream_of(call.stream).capture) fail("%s: the stream is captured, which the emulator cannot have for several ranks", name);
  const auto* from = static_cast<const char*>(call.send);
  const auto* to = static_cast<const char*>(call.receive);
  const bool in_place = call.kind == kAllReduce || call.kind == kBroadcast ? from == to
                        : call.kind == kAllGather                          ? from == to + size_t(comm.rank) * bytes_sent(call, 1)
                                                  : to == from + size_t(comm.rank) * bytes_received(call, 1);
  if (!in_place && from < to + bytes_received(call, comm.clique->size) && to < from + bytes_sent(call, comm.clique->size))
    fail("%s: what is sent and what is received overlap", name);
  grouped.emplace_back(&comm, call);
  return depth > 0 ? ncclSuccess : flush();
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  const char* said = std::getenv("HALFSTEP_FAKE_NCCL_VERSION");
  *version = said ? std::atoi(said) : NCCL_VERSION(2, 99, 1);
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError       ? "remote process exited or there was a network error"
         : result == ncclInvalidArgument ? "invalid argument"
                                         : "an error";
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const Lock lock(runtime_mutex());
  *id = {};
  std::snprintf(id->internal, sizeof id->internal, "clique %d", ++ids);
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  const Lock lock(runtime_mutex());
  const std::string name(id.internal, sizeof id.internal);
  if (name.rfind("clique ", 0) != 0) fail("ncclCommInitRankConfig: the id is none that ncclGetUniqueId gave");
  const ncclConfig_t right = NCCL_CONFIG_INITIALIZER;
  if (config->size != right.size || config->magic != right.magic) fail("ncclCommInitRankConfig: the config is not initialised");
  if (rank < 0 || rank >= size) return ncclInvalidArgument;
  std::shared_ptr<Clique>& clique = cliques[name];
  if (!clique) clique = std::make_shared<Clique>();
  if (clique->size != 0 && clique->size != size)
    fail("ncclCommInitRankConfig: %d ranks here, but %d on another one", size, clique->size);
  clique->size = size;
  if (!clique->calls.emplace(rank, Calls{}).second) fail("ncclCommInitRankConfig: rank %d comes twice", rank);
  *comm = *comms.insert(new ncclComm{.clique = clique, .rank = rank, .blocking = config->blocking != 0}).first;
  if ((*comm)->blocking) fail("ncclCommInitRankConfig: only communicators that do not block are emulated");
  (*comm)->turns = kTurns;
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* result) {
  const Lock lock(runtime_mutex());
  if (!comms.contains(handle)) fail("ncclCommGetAsyncError: %p is not a live communicator", static_cast<void*>(handle));
  *result = ncclInProgress;
  if (int(handle->clique->calls.size()) < handle->clique->size) return ncclSuccess;  // not all have come
  if (handle->turns > 0 && --handle->turns > 0) return ncclSuccess;
  for (const Call& call : std::exchange(handle->given, {})) put_in_stream(handle, call);
  const char* failing = std::getenv("HALFSTEP_FAKE_NCCL_ERROR");
  const bool fails = failing && std::atoi(failing) == handle->rank && !handle->clique->calls[handle->rank].empty();
  *result = fails ? ncclRemoteError : ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  const Lock lock(runtime_mutex());
  ncclComm& comm = comm_of("ncclCommFinalize", handle);
  comm.finalized = true;
  comm.turns = kTurns;
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  const Lock lock(runtime_mutex());
  if (!comms.contains(handle)) fail("ncclCommDestroy: %p is not a live communicator", static_cast<void*>(handle));
  if (!handle->finalized || handle->turns > 0) fail("ncclCommDestroy: the communicator is not finalized");
  comms.erase(handle);
  delete handle;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t handle) {
  const Lock lock(runtime_mutex());
  if (!comms.contains(handle)) fail("ncclCommAbort: %p is not a live communicator", static_cast<void*>(handle));
  handle->aborted = true;
  comms.erase(handle);  // and stays, since streams still look at it
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  const Lock lock(runtime_mutex());
  if (depth == 0) fail("ncclGroupEnd: there is no group");
  return --depth > 0 ? ncclSuccess : flush();
}

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
  return take({kAllReduce, send, receive, count, type, op, 0, stream}, comm);
}
ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
  return take({kReduceScatter, send, receive, count, type, op, 0, stream}, comm);
}
ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return take({kAllGather, send, receive, count, type, 0, 0, stream}, comm);
}
ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return take({kBroadcast, send, receive, count, type, 0, root, stream}, comm);
}

}  // extern "C"
