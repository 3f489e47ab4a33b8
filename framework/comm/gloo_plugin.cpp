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

constexpr std::chrono::hours kForever(24 * 365);   // the caller checks deadlines
constexpr std::chrono::milliseconds kTestWait(1);  // longest wait in test()
constexpr std::chrono::seconds kProbeInterval(1);  // time between two checks for a connection that broke unnoticed
constexpr uint64_t kRollSlot = 0, kProbeSlot = 1;  // message numbers in the mesh of the roll call
constexpr int kNoAddress = -1;

// A send to `rank`, or a receive from it, that has begun.
struct PendingTransfer {
  int rank;
  bool receives;
  Buffer buffer;
};

// This rank's part in the job: its connections, the operation under way, and the thread that waits for it.
struct Job {
  int rank = 0, size = 1;
  Mesh data, roll;         // for operations, and for the roll call while one hangs
  uint64_t operation = 0;  // number of the operation, by which Gloo matches sends and receives
  std::vector<PendingTransfer> pending;
  std::vector<char> barrier_bytes;  // received in a barrier, by rank
  std::chrono::steady_clock::time_point next_probe;

  std::vector<std::atomic<char>> heard;  // by rank; Gloo writes here when the rank's byte arrives
  std::vector<char> sign_sent;           // by rank: whether it was sent this rank's sign of life
  char alive = 1;                        // the sign of life, one byte
  std::vector<Buffer> roll_buffers;

  std::thread waiter;
  std::mutex mutex;
  std::condition_variable changed;
  // Guarded by `mutex`:
  bool under_way = false, must_stop = false;
  int error_code = 0;
};
Job* g_job = nullptr;  // kept if an operation never ended, because Gloo still writes to it

// Error codes, which error_text() explains: kNoAddress, and a number for each rank.
int lost_code(int rank) { return 1 + rank; }
int unreachable_code(int rank) { return -2 - rank; }

// Runs in the waiting thread: waits until all operations have ended, or until a connection fails.
void wait_for_operations() {
  Job& job = *g_job;
  std::unique_lock<std::mutex> lock(job.mutex);
  for (;;) {
    job.changed.wait(lock, [&] { return job.under_way || job.must_stop; });
    if (job.must_stop) return;
    lock.unlock();
    int code = 0;
    for (const PendingTransfer& transfer : job.pending) {
      try {
        if (transfer.receives)
          transfer.buffer->waitRecv(nullptr, kForever);
        else
          transfer.buffer->waitSend(nullptr, kForever);
      } catch (const std::exception&) {
        code = lost_code(transfer.rank);
        break;
      }
    }
    lock.lock();
    job.error_code = code;
    job.under_way = false;
    job.changed.notify_all();
  }
}

// Connects this rank with each other one, over addresses that all ranks exchange. Returns an error code.
int connect(const HalfstepMeeting& meeting, const std::shared_ptr<gloo::transport::Device>& device, Mesh& mesh) {
  // A rank sends, for each other rank, the address of its end of their connection: a length and the bytes.
  constexpr int kSlot = gloo::transport::Address::kMaxByteSize + int(sizeof(int));
  const int size = meeting.size;
  mesh = device->createContext(meeting.rank, size);
  mesh->setTimeout(std::chrono::milliseconds(static_cast<int64_t>(meeting.timeout_s * 1000)));
  std::vector<char> mine(size_t(size) * kSlot), all(mine.size() * size_t(size));
  for (int r = 0; r < size; ++r) {
    if (r == meeting.rank) continue;
    const std::vector<char> address = mesh->createPair(r)->address().bytes();
    const int length = int(address.size());
    memcpy(&mine[size_t(r) * kSlot], &length, sizeof length);
    memcpy(&mine[size_t(r) * kSlot + sizeof length], address.data(), address.size());
  }
  if (const int error = meeting.gather(meeting.self, mine.data(), int(mine.size()), all.data())) return error;
  for (int r = 0; r < size; ++r) {
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
  gloo::transport::tcp::attr place(meeting->address);
  if (const char* name = getenv("GLOO_SOCKET_IFNAME"); name && *name) place.hostname.clear(), place.iface = name;
  std::shared_ptr<gloo::transport::Device> device;
  try {
    device = gloo::transport::tcp::CreateDevice(place);
  } catch (const std::exception&) { return kNoAddress; }
  auto* const job = new Job;
  job->rank = meeting->rank;
  job->size = meeting->size;
  for (Mesh* mesh : {&job->data, &job->roll}) {
    if (const int error = connect(*meeting, device, *mesh)) return error;
  }
  job->heard = std::vector<std::atomic<char>>(size_t(job->size));
  job->sign_sent.resize(size_t(job->size));
  job->barrier_bytes.resize(size_t(job->size));
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
    job->must_stop = true;
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
      const Transfer transfer = part(other);
      const int bytes = receives ? transfer.receive_bytes : transfer.send_bytes;
      if (bytes == 0) continue;
      try {
        Buffer buffer =
            job.data->createUnboundBuffer(receives ? transfer.receive : const_cast<void*>(transfer.send), size_t(bytes));
        if (receives)
          buffer->recv(other, job.operation);
        else
          buffer->send(other, job.operation);
        job.pending.push_back({other, receives, std::move(buffer)});
      } catch (const std::exception&) { return lost_code(other); }
    }
  }
  job.next_probe = std::chrono::steady_clock::now() + kProbeInterval;
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
  return exchange([](int r) { return Transfer{&g_job->alive, 1, &g_job->barrier_bytes[size_t(r)], 1}; });
}

// Returns an error code if the operation needs a broken connection, else 0. Gloo forgets a send if its connection breaks at the
// wrong moment, and then nothing wakes the waiting thread. But it refuses new operations on a broken connection, so this offers a
// byte that no rank receives.
int broken_connection() {
  for (const PendingTransfer& transfer : g_job->pending) {
    try {
      g_job->roll->createUnboundBuffer(&g_job->alive, 1)->send(transfer.rank, kProbeSlot);
    } catch (const std::exception&) { return lost_code(transfer.rank); }
  }
  return 0;
}

int test(int* done) {
  Job& job = *g_job;
  std::unique_lock<std::mutex> lock(job.mutex);
  *done = job.changed.wait_for(lock, kTestWait, [&] { return !job.under_way; });
  if (*done) return job.error_code;
  lock.unlock();
  if (std::chrono::steady_clock::now() < job.next_probe) return 0;
  job.next_probe += kProbeInterval;
  return broken_connection();
}

// Sends a rank the sign of life, once.
void send_sign(int rank) {
  Job& job = *g_job;
  if (rank == job.rank || job.sign_sent[size_t(rank)]) return;
  job.sign_sent[size_t(rank)] = 1;
  try {
    job.roll_buffers.push_back(job.roll->createUnboundBuffer(&job.alive, 1));
    job.roll_buffers.back()->send(rank, kRollSlot);
  } catch (const std::exception&) {}  // the rank is gone
}

int answer_roll() {
  for (int r = 0; r < g_job->size; ++r) {
    if (g_job->heard[size_t(r)].load(std::memory_order_relaxed)) send_sign(r);
  }
  return 0;
}

int roll_call(char* heard) {
  for (int r = 0; r < g_job->size; ++r) {
    send_sign(r);
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
             unreachable_code(code));
  else
    snprintf(text, room, "the connection to rank %d is closed", code - lost_code(0));
}

void describe(char* text, size_t room) {
  snprintf(text, room, "Gloo %d.%d.%d", GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH);
}

}  // namespace

HALFSTEP_EXPORT_TRANSPORT
