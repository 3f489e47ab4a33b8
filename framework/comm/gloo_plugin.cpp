// SPDX-License-Identifier: Apache-2.0
// The only file that includes Gloo; see transport_plugin.h. It is not part of halfstep's library.
//
// Uses Gloo's connections and buffers directly: a buffer is sent to, or received from, one rank, so a failure shows whose
// connection broke. Gloo offers only blocking waits, so a thread waits, and test() checks whether it is done.
#include <gloo/config.h>
#include <gloo/transport/address.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "framework/comm/transport_plugin.h"

namespace {

using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;
using Mesh = std::shared_ptr<gloo::transport::Context>;  // one connection to each other rank

constexpr std::chrono::hours kForever(24 * 365);  // the caller checks deadlines
constexpr std::chrono::milliseconds kLook(1);
constexpr std::chrono::seconds kProbe(1);
constexpr uint64_t kRollSlot = 0, kProbeSlot = 1;  // slots of the second mesh
constexpr int kNoAddress = -1;

struct Pending {
  int rank;
  bool receives;
  Buffer buffer;
};

struct Job {
  int rank = 0, size = 1;
  Mesh data, roll;  // for operations, and for the roll call while one hangs
  uint64_t operation = 0;
  std::vector<Pending> pending;
  std::vector<char> bytes;  // for a barrier
  std::chrono::steady_clock::time_point probe;

  std::vector<std::atomic<char>> heard;  // by rank; Gloo writes here when the rank's byte arrives
  std::vector<char> signed_to;
  char alive = 1;
  std::vector<Buffer> roll_buffers;

  std::thread waiter;
  std::mutex mutex;
  std::condition_variable changed;
  bool under_way = false, leave = false;
  int code = 0;
};
Job* g_job = nullptr;  // kept if an operation never ended, because Gloo still writes to it

int lost_code(int rank) { return 1 + rank; }
int unreachable_code(int rank) { return -2 - rank; }

// Runs in the waiting thread: waits until all operations have ended, or until a connection fails.
void wait_for_operations() {
  Job& job = *g_job;
  std::unique_lock<std::mutex> lock(job.mutex);
  for (;;) {
    job.changed.wait(lock, [&] { return job.under_way || job.leave; });
    if (job.leave) return;
    lock.unlock();
    int code = 0;
    for (const Pending& p : job.pending) {
      try {
        if (p.receives)
          p.buffer->waitRecv(nullptr, kForever);
        else
          p.buffer->waitSend(nullptr, kForever);
      } catch (const std::exception&) {
        code = lost_code(p.rank);
        break;
      }
    }
    lock.lock();
    job.code = code;
    job.under_way = false;
    job.changed.notify_all();
  }
}

int connect(const HalfstepMeeting& meeting, const std::shared_ptr<gloo::transport::Device>& device, Mesh& mesh) {
  constexpr int kSlot = gloo::transport::Address::kMaxByteSize + int(sizeof(int));
  const int n = meeting.size;
  mesh = device->createContext(meeting.rank, n);
  mesh->setTimeout(std::chrono::milliseconds(static_cast<int64_t>(meeting.timeout_s * 1000)));
  std::vector<char> mine(size_t(n) * kSlot), all(mine.size() * size_t(n));
  for (int r = 0; r < n; ++r) {
    if (r == meeting.rank) continue;
    const std::vector<char> address = mesh->createPair(r)->address().bytes();
    const int length = int(address.size());
    memcpy(&mine[size_t(r) * kSlot], &length, sizeof length);
    memcpy(&mine[size_t(r) * kSlot + sizeof length], address.data(), address.size());
  }
  if (const int error = meeting.gather(meeting.self, mine.data(), int(mine.size()), all.data())) return error;
  for (int r = 0; r < n; ++r) {
    if (r == meeting.rank) continue;
    const char* slot = &all[size_t(r) * mine.size() + size_t(meeting.rank) * kSlot];
    int length = 0;
    memcpy(&length, slot, sizeof length);
    try {
      mesh->getPair(r)->connect(std::vector<char>(slot + sizeof length, slot + sizeof length + length));
    } catch (const std::exception&) { return unreachable_code(r); }
  }
  return 0;
}

int open(int* rank, int* size, const HalfstepMeeting* meeting) {
  *rank = meeting->rank;
  *size = meeting->size;
  gloo::transport::tcp::attr where(meeting->address);
  if (const char* name = getenv("GLOO_SOCKET_IFNAME"); name && *name) where.hostname.clear(), where.iface = name;
  std::shared_ptr<gloo::transport::Device> device;
  try {
    device = gloo::transport::tcp::CreateDevice(where);
  } catch (const std::exception&) { return kNoAddress; }
  auto* const job = new Job;
  job->rank = meeting->rank;
  job->size = meeting->size;
  for (Mesh* mesh : {&job->data, &job->roll}) {
    if (const int error = connect(*meeting, device, *mesh)) return error;
  }
  job->heard = std::vector<std::atomic<char>>(size_t(job->size));
  job->signed_to.resize(size_t(job->size));
  job->bytes.resize(size_t(job->size));
  for (int r = 0; r < job->size; ++r) {
    if (r == job->rank) continue;
    job->roll_buffers.push_back(job->roll->createUnboundBuffer(&job->heard[size_t(r)], 1));
    job->roll_buffers.back()->recv(r, kRollSlot);
  }
  g_job = job;
  job->waiter = std::thread(wait_for_operations);
  return 0;
}

int close() {
  Job* const job = g_job;
  {
    const std::lock_guard<std::mutex> lock(job->mutex);
    job->leave = true;
  }
  job->changed.notify_all();
  job->waiter.join();
  delete job;
  g_job = nullptr;
  return 0;
}

struct Transfer {
  const void* send;
  int send_bytes;
  void* receive;
  int receive_bytes;
};

// Begins an exchange with all other ranks; part(r): the bytes to send to rank r, and to receive from it. Skips empty parts.
template <class F>
int exchange(const F& part) {
  Job& job = *g_job;
  ++job.operation;
  job.pending.clear();
  for (const bool receives : {true, false}) {  // posts all receives before sending
    for (int k = 1; k < job.size; ++k) {
      const int other = receives ? (job.rank + job.size - k) % job.size : (job.rank + k) % job.size;
      const Transfer p = part(other);
      const int bytes = receives ? p.receive_bytes : p.send_bytes;
      if (bytes == 0) continue;
      try {
        Buffer buffer = job.data->createUnboundBuffer(receives ? p.receive : const_cast<void*>(p.send), size_t(bytes));
        if (receives)
          buffer->recv(other, job.operation);
        else
          buffer->send(other, job.operation);
        job.pending.push_back({other, receives, std::move(buffer)});
      } catch (const std::exception&) { return lost_code(other); }
    }
  }
  job.probe = std::chrono::steady_clock::now() + kProbe;
  {
    const std::lock_guard<std::mutex> lock(job.mutex);
    job.under_way = true;
  }
  job.changed.notify_all();
  return 0;
}

void copy(void* to, const void* from, int bytes) {
  if (bytes > 0 && to != from) memcpy(to, from, size_t(bytes));
}

int all_to_all(const void* send, const int* send_counts, const int* send_offsets, void* receive, const int* receive_counts,
               const int* receive_offsets) {
  const auto* from = static_cast<const char*>(send);
  auto* to = static_cast<char*>(receive);
  const int me = g_job->rank;
  copy(to + receive_offsets[me], from + send_offsets[me], send_counts[me]);
  return exchange([=](int r) {
    return Transfer{from + send_offsets[r], send_counts[r], to + receive_offsets[r], receive_counts[r]};
  });
}

int all_gather(const void* send, int bytes, void* receive, const int* counts, const int* offsets) {
  auto* to = static_cast<char*>(receive);
  copy(to + offsets[g_job->rank], send, bytes);
  return exchange([=](int r) { return Transfer{send, bytes, to + offsets[r], counts[r]}; });
}

int broadcast(void* data, int bytes, int root) {
  const bool sends = g_job->rank == root;
  return exchange([=](int r) { return Transfer{data, sends ? bytes : 0, data, r == root ? bytes : 0}; });
}

int barrier() {
  return exchange([](int r) { return Transfer{&g_job->alive, 1, &g_job->bytes[size_t(r)], 1}; });
}

// Returns an error code if the operation needs a broken connection, else 0. Gloo forgets a send if its connection breaks at the
// wrong moment, and then nothing wakes the waiting thread. But it refuses new operations on a broken connection, so this offers a
// byte that no rank takes.
int broken_connection() {
  for (const Pending& p : g_job->pending) {
    try {
      g_job->roll->createUnboundBuffer(&g_job->alive, 1)->send(p.rank, kProbeSlot);
    } catch (const std::exception&) { return lost_code(p.rank); }
  }
  return 0;
}

int test(int* done) {
  Job& job = *g_job;
  std::unique_lock<std::mutex> lock(job.mutex);
  *done = job.changed.wait_for(lock, kLook, [&] { return !job.under_way; });
  if (*done) return job.code;
  lock.unlock();
  if (std::chrono::steady_clock::now() < job.probe) return 0;
  job.probe += kProbe;
  return broken_connection();
}

void sign_to(int rank) {
  Job& job = *g_job;
  if (rank == job.rank || job.signed_to[size_t(rank)]) return;
  job.signed_to[size_t(rank)] = 1;
  try {
    job.roll_buffers.push_back(job.roll->createUnboundBuffer(&job.alive, 1));
    job.roll_buffers.back()->send(rank, kRollSlot);
  } catch (const std::exception&) {}  // the rank is gone
}

int answer_roll() {
  for (int r = 0; r < g_job->size; ++r) {
    if (g_job->heard[size_t(r)].load(std::memory_order_relaxed)) sign_to(r);
  }
  return 0;
}

int roll_call(char* heard) {
  for (int r = 0; r < g_job->size; ++r) {
    sign_to(r);
    heard[r] = r == g_job->rank || g_job->heard[size_t(r)].load(std::memory_order_relaxed);
  }
  return 0;
}

void error_text(int code, char* text, size_t room) {
  if (code == kNoAddress)
    snprintf(text, room,
             "no connection can be made from this machine's address, or from the interface that GLOO_SOCKET_IFNAME names");
  else if (code < 0)
    snprintf(text, room, "rank %d does not answer at its address; GLOO_SOCKET_IFNAME can name another network interface",
             -2 - code);
  else
    snprintf(text, room, "the connection to rank %d is closed", code - 1);
}

void describe(char* text, size_t room) {
  snprintf(text, room, "Gloo %d.%d.%d", GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH);
}

}  // namespace

HALFSTEP_EXPORT_TRANSPORT
