// SPDX-License-Identifier: Apache-2.0
// A library with the functions of NCCL that cuda/nccl calls, for ranks that are threads of one program on the emulator's device.
// A call is put into its stream and copies what it sends when the stream comes to it; the stream is then blocked until all
// ranks have come so far. Nothing is done in a call that returns ncclInProgress before the caller has asked how it went, twice.
// A group of sends and receives is one call, which all ranks take part in, as here every rank exchanges with every other. In a
// stream that is captured calls become part of the graph, and of every launch of it.
//
// It ends the program where the real one would hang or compute garbage: calls of ranks that do not fit each other, of which one
// rank's is captured and another's not, sends that nobody receives alike, memory that is not the device's or too small, a
// communicator that is used while its last call is in progress, or after its end, or that ends before the graphs with its calls.
//   HALFSTEP_FAKE_NCCL_ERROR=r   rank r's operations fail with ncclRemoteError, reported by ncclCommGetAsyncError; r:c: with the
//                                ncclResult_t c; r:c:open: rank r cannot open its communicator
//   HALFSTEP_FAKE_NCCL_VERSION=n the result of ncclGetVersion
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/nccl/nccl.h"
#include "tests/emulators/fake_nccl/sum.h"
#include "tests/emulators/source/hooks.h"
#include "tests/emulators/source/runtime.h"

using namespace emu;

namespace {

constexpr int kTurns = 2;  // questions until a call that is in progress is done

enum Kind { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kExchange };
constexpr const char* kNames[] = {"ncclAllReduce", "ncclReduceScatter", "ncclAllGather", "ncclBroadcast",
                                  "a group of ncclSend and ncclRecv"};
constexpr size_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};  // of ncclDataType_t

struct Message {  // of a kExchange
  bool received;
  int peer;
  void* memory;
  size_t count;
  int type;
  size_t bytes() const { return count * kBytes[type]; }
};
struct Call {
  Kind kind;
  const void* send;
  void* receive;
  size_t count;
  int type, op, root;
  cudaStream_t stream;
  std::vector<Message> messages = {};
  bool captured = false;
  std::vector<char> sent = {};  // what was there when the stream came to it; of a kExchange, one message after the other
  int taken = 0;                // by so many ranks

  bool same(const Call& o) const {
    return kind == o.kind && count == o.count && type == o.type && op == o.op && root == o.root && captured == o.captured;
  }
  std::string text() const {
    if (kind == kExchange) return std::string(kNames[kind]) + (captured ? ", captured" : "");
    return std::string(kNames[kind]) + " of " + std::to_string(count) + " elements of type " + std::to_string(type) +
           ", operation " + std::to_string(op) + ", root " + std::to_string(root) + (captured ? ", captured" : "");
  }
};
using Calls = std::vector<std::shared_ptr<Call>>;

struct Clique {
  int size = 0;
  std::map<int, Calls> calls;  // by rank, in the order in which its streams came to them
};

std::map<std::string, std::shared_ptr<Clique>> cliques;  // by their id
int ids = 0;
int last_max_ctas = 0, last_priority = 0;

}  // namespace

struct ncclComm {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  bool blocking = true, aborted = false, finalized = false;
  int turns = 0;                 // until the call in progress is done
  std::vector<Call> given = {};  // not yet in the stream
  bool called = false;
  std::shared_ptr<int> recorded = std::make_shared<int>();  // shared with what is in graphs
};

namespace {

// What HALFSTEP_FAKE_NCCL_ERROR asks for.
struct Failure {
  int rank = -1;
  ncclResult_t result = ncclRemoteError;
  bool opening = false;
  static Failure wanted() {
    const char* const given = std::getenv("HALFSTEP_FAKE_NCCL_ERROR");
    Failure f;
    if (!given) return f;
    f.rank = std::atoi(given);
    if (const char* const code = std::strchr(given, ':')) {
      f.result = ncclResult_t(std::atoi(code + 1));
      f.opening = std::strstr(code, ":open") != nullptr;
    }
    return f;
  }
};

std::set<ncclComm*> comms;
thread_local int depth = 0;
thread_local std::vector<std::pair<ncclComm*, Call>> grouped;

ncclComm& comm_of(const char* call, ncclComm_t comm) {
  if (!comms.contains(comm)) fail("%s: %p is not a live communicator", call, static_cast<void*>(comm));
  if (comm->turns > 0) fail("%s: the communicator's last call is still in progress", call);
  if (comm->finalized) fail("%s: the communicator is finalized", call);
  return *comm;
}

size_t bytes_sent(const Call& c, int size) { return c.count * kBytes[c.type] * size_t(c.kind == kReduceScatter ? size : 1); }
size_t bytes_received(const Call& c, int size) { return c.count * kBytes[c.type] * size_t(c.kind == kAllGather ? size : 1); }

// The messages between two ranks, in their order, and where each begins in what was sent.
std::vector<std::pair<Message, size_t>> messages(const Call& c, bool received, int peer) {
  std::vector<std::pair<Message, size_t>> out;
  size_t at = 0;
  for (const Message& m : c.messages) {
    if (m.received == received && m.peer == peer) out.emplace_back(m, at);
    if (!m.received) at += m.bytes();
  }
  return out;
}
void receive_messages(const Clique& clique, int rank, size_t index) {
  const Call& mine = *clique.calls.at(rank)[index];
  for (int peer = 0; peer < clique.size; ++peer) {
    const Call& theirs = *clique.calls.at(peer)[index];
    const auto sent = messages(theirs, false, rank), wanted = messages(mine, true, peer);
    if (sent.size() != wanted.size())
      fail("NCCL: rank %d sends %zu messages to rank %d, which receives %zu", peer, sent.size(), rank, wanted.size());
    for (size_t i = 0; i < sent.size(); ++i) {
      const auto& [m, at] = sent[i];
      const Message& to = wanted[i].first;
      if (m.count != to.count || m.type != to.type)
        fail("NCCL: rank %d sends %zu elements of type %d to rank %d, which receives %zu of type %d", peer, m.count, m.type, rank,
             to.count, to.type);
      check_device_memory("ncclRecv", to.memory, to.bytes());
      const OpenDeviceMemory open;
      std::memcpy(to.memory, theirs.sent.data() + at, m.bytes());
    }
  }
}

void receive(const Clique& clique, int rank, size_t index) {
  const Call& mine = *clique.calls.at(rank)[index];
  if (mine.kind == kExchange) return receive_messages(clique, rank, index);
  std::vector<const char*> sent;
  const size_t part = mine.count * kBytes[mine.type];
  for (const auto& [r, calls] : clique.calls)
    sent.push_back(calls[index]->sent.data() + (mine.kind == kReduceScatter ? size_t(rank) * part : 0));
  check_device_memory(kNames[mine.kind], mine.receive, bytes_received(mine, clique.size));
  const OpenDeviceMemory open;
  char* const to = static_cast<char*>(mine.receive);
  if (mine.kind == kBroadcast) {
    std::memcpy(to, sent[size_t(mine.root)], part);
  } else if (mine.kind == kAllGather) {
    for (size_t r = 0; r < sent.size(); ++r) std::memcpy(to + r * part, sent[r], part);
  } else {
    reduce(mine.type, sent, to, mine.count, mine.op);
  }
}

// The stream has reached it: its place among the rank's calls, with the data it sends.
size_t come(Clique& clique, int rank, const Call& given) {
  const auto call = std::make_shared<Call>(given);
  Calls& mine = clique.calls[rank];
  const size_t index = mine.size();
  for (const auto& [other, calls] : clique.calls) {
    if (index < calls.size() && !calls[index]->same(*call))
      fail("NCCL: call %zu of rank %d is %s, but of rank %d %s", index, rank, call->text().c_str(), other,
           calls[index]->text().c_str());
  }
  const auto add = [&](const char* what, const void* memory, size_t bytes) {
    check_device_memory(what, memory, bytes);
    const OpenDeviceMemory open;
    call->sent.insert(call->sent.end(), static_cast<const char*>(memory), static_cast<const char*>(memory) + bytes);
  };
  if (given.kind == kExchange) {
    for (const Message& m : given.messages) {
      if (!m.received) add("ncclSend", m.memory, m.bytes());
    }
  } else {
    add(kNames[given.kind], given.send, bytes_sent(given, clique.size));
  }
  mine.push_back(call);
  return index;
}

void put_in_stream(ncclComm* comm, const Call& given) {
  const auto clique = comm->clique;
  const int rank = comm->rank;
  Call call = given;
  call.captured = stream_of(call.stream).capture != nullptr;
  last_priority = stream_of(call.stream).priority;
  const auto turn = std::make_shared<size_t>();  // its index, of the launch that is under way
  const auto held = call.captured ? comm->recorded : nullptr;
  submit(call.stream, {.work = [=, held = held] { *turn = come(*clique, rank, call); }, .what = "nccl"});
  const auto ended = [=] { return !comms.contains(comm) || comm->aborted; };
  const auto ready = [=] {
    return ended() ||
           (int(clique->calls.size()) == clique->size &&
            std::all_of(clique->calls.begin(), clique->calls.end(), [&](const auto& c) { return *turn < c.second.size(); }));
  };
  const auto take = [=] {
    if (ended()) return;
    receive(*clique, rank, *turn);
    for (auto& [r, calls] : clique->calls) {
      if (++calls[*turn]->taken == clique->size) calls[*turn]->sent = {};
    }
  };
  submit_when(call.stream, {.work = take, .what = nullptr}, ready);
}

ncclResult_t flush() {
  ncclResult_t result = ncclSuccess;
  for (auto& [comm, call] : std::exchange(grouped, {})) {
    comm->called = true;
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

ncclResult_t take(const Message& m, ncclComm_t handle, cudaStream_t stream) {
  const Lock lock(runtime_mutex());
  const char* const name = m.received ? "ncclRecv" : "ncclSend";
  ncclComm& comm = comm_of(name, handle);
  if (depth == 0) fail("%s outside a group waits for ever where ranks send to each other", name);
  if (m.type < 0 || m.type > ncclBfloat16) fail("%s: no such type: %d", name, m.type);
  if (m.peer < 0 || m.peer >= comm.clique->size) return ncclInvalidArgument;
  check_device_memory(name, m.memory, m.bytes());
  for (const auto& [other, call] : grouped) {
    for (const Message& o : call.messages) {
      const char *a = static_cast<char*>(m.memory), *b = static_cast<char*>(o.memory);
      if ((m.received || o.received) && a < b + o.bytes() && b < a + m.bytes())
        fail("%s: what is received overlaps what else is exchanged", name);
    }
  }
  if (grouped.empty() || grouped.back().first != &comm || grouped.back().second.stream != stream) {
    if (!grouped.empty()) fail("%s: a group here has sends and receives of one communicator in one stream, and nothing else", name);
    grouped.emplace_back(&comm, Call{kExchange, nullptr, nullptr, 0, 0, 0, 0, stream});
  }
  grouped.back().second.messages.push_back(m);
  return ncclSuccess;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  const char* said = std::getenv("HALFSTEP_FAKE_NCCL_VERSION");
  *version = said ? std::atoi(said) : NCCL_VERSION(2, 99, 1);
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError          ? "remote process exited or there was a network error"
         : result == ncclUnhandledCudaError ? "unhandled cuda error"
         : result == ncclSystemError        ? "unhandled system error"
         : result == ncclInternalError      ? "internal error"
         : result == ncclInvalidArgument    ? "invalid argument"
         : result == ncclInvalidUsage       ? "invalid usage"
                                            : "an error";
}
const char* ncclGetLastError(ncclComm_t) {
  const char* failing = std::getenv("HALFSTEP_FAKE_NCCL_ERROR");
  return failing && std::strchr(failing, ':') ? "Call to posix_fallocate failed: No space left on device\n" : "";
}
// For tests: of the communicator that was opened last, and of the stream of the last call.
int fake_nccl_max_ctas() { return last_max_ctas; }
int fake_nccl_priority() { return last_priority; }
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
  last_max_ctas = config->maxCTAs;
  if (const Failure f = Failure::wanted(); f.rank == rank && f.opening) return f.result;
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
  const Failure f = Failure::wanted();
  *result = f.rank == handle->rank && !f.opening && handle->called ? f.result : ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  const Lock lock(runtime_mutex());
  ncclComm& comm = comm_of("ncclCommFinalize", handle);
  if (comm.recorded.use_count() > 1) fail("ncclCommFinalize: waits for ever, as graphs with calls of the communicator still live");
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
  {
    const Lock lock(runtime_mutex());
    if (!comms.contains(handle)) fail("ncclCommAbort: %p is not a live communicator", static_cast<void*>(handle));
    handle->aborted = true;
    comms.erase(handle);  // and stays, since streams still look at it
  }
  for (;;) {  // until no graph has calls of it
    {
      const Lock lock(runtime_mutex());
      if (handle->recorded.use_count() <= 1) return ncclSuccess;
    }
    std::this_thread::yield();
  }
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

ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return take(Message{false, peer, const_cast<void*>(send), count, type}, comm, stream);
}
ncclResult_t ncclRecv(void* receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return take(Message{true, peer, receive, count, type}, comm, stream);
}

}  // extern "C"
