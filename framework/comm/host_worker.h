// SPDX-License-Identifier: Apache-2.0
// The thread of a HostGroup, and the state that it shares with the group. Only host_group.cpp includes this.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "framework/comm/host_group.h"
#include "framework/comm/launcher.h"
#include "framework/comm/rank_sum.h"

namespace halfstep {
namespace comm {

using Clock = std::chrono::steady_clock;

inline constexpr int64_t kPiece = int64_t(1) << 28;            // bytes of one exchange, because counts of MPI are ints
inline constexpr int kEagerTests = 100;                        // before the thread sleeps, so that its core computes
inline constexpr auto kSleep = std::chrono::microseconds(50);  // after each further test
inline constexpr int kTestsPerAnswer = 64;                     // tests between two answers to roll calls and checks of the timeout
inline constexpr auto kRollCallTime = std::chrono::milliseconds(700);    // time for the ranks to answer a roll call
inline constexpr auto kRollCallPause = std::chrono::milliseconds(10);    // between two calls of roll_call
inline constexpr auto kAnswerInterval = std::chrono::milliseconds(100);  // time between two answers of an idle rank

// Returns the seconds since `t`.
inline double since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

// The parts of the ranks of a buffer, in bytes.
struct Parts {
  std::vector<int> counts, offsets;
  int64_t mine = 0;  // elements in this rank's part

  // Splits n elements of `bytes` each into nearly equal parts.
  Parts(int64_t n, size_t bytes, int rank, int size) {
    for (int r = 0; r < size; ++r) {
      const int64_t from = n * r / size, to = n * (r + 1) / size;
      counts.push_back(int((to - from) * int64_t(bytes)));
      offsets.push_back(int(from * int64_t(bytes)));
      if (r == rank) mine = to - from;
    }
  }
};

// `size` parts of `bytes` each.
struct EqualParts {
  std::vector<int> counts, offsets;
  EqualParts(int64_t bytes, int size) {
    for (int r = 0; r < size; ++r) counts.push_back(int(bytes)), offsets.push_back(int(bytes * r));
  }
};

// Uses of a worker's memory: numbers that other ranks sent, numbers rounded for sending, and tensors joined to one.
enum class Scratch : uint8_t { received, rounded, joined };
inline constexpr size_t kScratches = 3;

}  // namespace comm

// State shared by the group and its thread. The thread owns the transport.
class HostGroup::Worker {
  using Clock = comm::Clock;

 public:
  explicit Worker(const GroupOptions& options) : timeout(options.timeout_s) {}

  // ---- in the group's thread

  // Opens the transport, then runs the operations in order until stop(), or until one fails.
  void run(const std::function<std::unique_ptr<Transport>()>& open) {
    try {
      transport_ = open();
    } catch (...) { error_ = std::current_exception(); }
    {
      const std::lock_guard lock(mutex_);
      opened_ = true;
    }
    changed_.notify_all();
    if (error_) return;
    for (;;) {
      Operation operation;
      {
        std::unique_lock lock(mutex_);
        while (!wake_.wait_for(lock, comm::kAnswerInterval, [&] { return must_stop_ || !operations_.empty(); })) answer();
        if (operations_.empty()) return;
        operation = std::move(operations_.front());
        operations_.pop_front();
      }
      began_ = Clock::now();
      what_ = operation.what;
      std::exception_ptr error;
      try {
        operation.work(*this);
      } catch (const TransportFault& fault) { error = std::make_exception_ptr(lost_error(fault.what())); } catch (...) {
        error = std::current_exception();
      }
      {
        const std::lock_guard lock(mutex_);
        done_ = operation.ticket;
        if (error) error_ = error, failed_ = operation.ticket;
      }
      changed_.notify_all();
      if (error) return;
    }
  }
  Transport& transport() { return *transport_; }

  // Waits until the operation has ended.
  void complete() {
    for (int i = 0; !transport_->test(); ++i) {
      // Yields the core: while the caller computes, it needs the core more than a transfer that takes longer than a few tests.
      if (i < comm::kEagerTests || waited_for_.load(std::memory_order_relaxed))
        sched_yield();
      else
        std::this_thread::sleep_for(comm::kSleep);
      const bool is_last_of_block = i % comm::kTestsPerAnswer == comm::kTestsPerAnswer - 1;
      if (is_last_of_block) answer();
      if (is_last_of_block && comm::since(began_) > timeout.load()) throw lost_error();
    }
  }

  // Combines n numbers with those of all ranks, in place: exchanges parts, combines this rank's, and gathers the results.
  template <class T>
  void reduce(T* data, int64_t n, ReduceOp op) {
    const int rank = transport_->rank(), size = transport_->size();
    const int64_t piece = comm::kPiece / int64_t(sizeof(T));
    for (int64_t from = 0; from < n; from += piece) {
      const int64_t count = std::min(piece, n - from);
      // This rank's part stays in place: it is summed with the others' there, and sent from there.
      comm::Parts parts(count, sizeof(T), rank, size);
      comm::EqualParts others_parts(parts.mine * int64_t(sizeof(T)), size);
      T* const own = data + from + parts.offsets[size_t(rank)] / int64_t(sizeof(T));
      const int own_bytes = std::exchange(parts.counts[size_t(rank)], 0);
      others_parts.counts[size_t(rank)] = 0;
      T* const received = scratch<T>(comm::Scratch::received, parts.mine * size);
      transport_->all_to_all(data + from, parts.counts, parts.offsets, received, others_parts.counts, others_parts.offsets);
      complete();
      std::vector<const T*> numbers_of_rank;
      for (int r = 0; r < size; ++r) numbers_of_rank.push_back(r == rank ? own : received + r * parts.mine);
      reduce_ranks<T>(numbers_of_rank, own, size_t(parts.mine), op);
      parts.counts[size_t(rank)] = own_bytes;
      transport_->all_gather(own, own_bytes, data + from, parts.counts, parts.offsets);
      complete();
    }
  }

  // Does the same for numbers of `dtype`; with Wire::bf16, float32 numbers are rounded to bfloat16 before and widened after.
  void reduce(void* data, DType dtype, int64_t n, ReduceOp op, Wire wire) {
    if (wire == Wire::bf16 && dtype == DType::f32) {
      auto* const values = static_cast<float*>(data);
      bf16* const rounded = scratch<bf16>(comm::Scratch::rounded, n);
      for (int64_t i = 0; i < n; ++i) rounded[i] = bf16(values[i]);
      reduce(rounded, n, op);
      for (int64_t i = 0; i < n; ++i) values[i] = float(rounded[i]);
      return;
    }
    dispatch(dtype, [&](auto zero) { reduce(static_cast<decltype(zero)*>(data), n, op); });
  }

  // Returns memory for n numbers, whose content the next call with the same `use` overwrites.
  template <class T>
  T* scratch(comm::Scratch use, int64_t n) {
    std::vector<std::byte>& memory = scratch_[size_t(use)];
    if (memory.size() < size_t(n) * sizeof(T)) memory.resize(size_t(n) * sizeof(T));
    return reinterpret_cast<T*>(memory.data());
  }

  // ---- in the caller's thread
  void wait_until_open() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return opened_; });
    if (error_) std::rethrow_exception(error_);
  }
  Ticket submit(std::string what, std::function<void(Worker&)> work) {
    Ticket ticket;
    {
      const std::lock_guard lock(mutex_);
      if (error_) std::rethrow_exception(error_);
      ticket = ++submitted_;
      operations_.push_back({ticket, std::move(what), std::move(work)});
    }
    wake_.notify_one();
    return ticket;
  }
  void wait(Ticket ticket) {
    std::unique_lock lock(mutex_);
    waited_for_ = true;
    changed_.wait(lock, [&] { return done_ >= ticket || error_; });
    waited_for_ = false;
    if (error_ && ticket >= failed_) std::rethrow_exception(error_);
  }
  // Ends the thread when it has run the operations that were submitted.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      must_stop_ = true;
    }
    wake_.notify_one();
  }
  // Returns whether no operation is waiting or under way.
  bool idle() {
    const std::lock_guard lock(mutex_);
    return error_ || done_ == submitted_;
  }

  std::thread thread;
  std::atomic<double> timeout;

 private:
  struct Operation {
    Ticket ticket = 0;
    std::string what;  // name in errors
    std::function<void(Worker&)> work;
  };

  // Answers roll calls: a rank that computes, or waits for another one, is not lost. The next operation reports errors.
  void answer() {
    try {
      transport_->answer_roll();
    } catch (const TransportFault&) {}
  }
  // Returns an error with the ranks that do not answer any more; `broken`: the transport's error, unless it only hangs.
  PeerLostError lost_error(const std::string& broken = "") {
    std::vector<char> heard(size_t(transport_->size()), 0);
    std::vector<int> silent;
    const auto start = Clock::now();
    try {
      do {
        transport_->roll_call(heard);
        if (std::find(heard.begin(), heard.end(), 0) == heard.end()) break;
        std::this_thread::sleep_for(comm::kRollCallPause);
      } while (Clock::now() - start < comm::kRollCallTime);
      // Runs the progress engine once more, so that the last answers leave this process.
      transport_->roll_call(heard);
    } catch (const TransportFault&) {}  // ranks heard so far are alive
    for (size_t r = 0; r < heard.size(); ++r)
      if (!heard[r]) silent.push_back(int(r));
    std::string text = joined("[distributed] ", what_, " on rank ", transport_->rank(), ' ');
    text += broken.empty() ? joined("did not end within ", timeout.load(), " s: ") : "failed: ";
    if (!silent.empty())
      text += listed(silent) + (silent.size() == 1 ? " does" : " do") + " not answer";
    else
      text += broken.empty() ? "all ranks live, but one of them is late or does something else" : broken;
    return PeerLostError(
        joined(text, Help{"a rank ended, was stopped, is cut off, or needs longer than distributed.timeout_s for a step; the last "
                          "checkpoint is whole: start all ranks again with --resume auto"}));
  }

  std::unique_ptr<Transport> transport_;
  std::vector<std::byte> scratch_[comm::kScratches];
  Clock::time_point began_;  // start of the operation under way
  std::string what_;         // and its name
  std::atomic<bool> waited_for_{false};

  std::mutex mutex_;
  std::condition_variable wake_, changed_;
  std::deque<Operation> operations_;
  Ticket submitted_ = 0, done_ = 0, failed_ = 0;
  bool opened_ = false, must_stop_ = false;
  std::exception_ptr error_;
};

}  // namespace halfstep
