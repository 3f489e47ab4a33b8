// SPDX-License-Identifier: Apache-2.0
// Ranks that are threads of the test, with a transport that copies within their memory.
#pragma once

#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "framework/comm/host_group.h"

namespace halfstep::testing {

// State shared by the ranks. An operation is a round: every rank gives its data, then every rank takes its result.
struct Room {
  explicit Room(int ranks) : posted(size_t(ranks)), offsets(size_t(ranks)), counts(size_t(ranks)), calls(size_t(ranks), 0) {}
  std::mutex mutex;
  std::vector<const void*> posted;
  std::vector<std::vector<int>> offsets, counts;
  int here = 0, taken = 0, round = 0;
  std::vector<char> calls;  // operations called, for comparison
};

class LocalTransport final : public Transport {
 public:
  LocalTransport(std::shared_ptr<Room> room, int rank) : room_(std::move(room)), rank_(rank), size_(int(room_->posted.size())) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string describe() const override { return "threads of a test"; }

  void all_to_all(const void* send, std::span<const int> send_counts, std::span<const int> send_offsets, void* receive,
                  std::span<const int>, std::span<const int> receive_offsets) override {
    begin(send, send_counts, send_offsets);
    take_ = [=, this, to = std::vector<int>(receive_offsets.begin(), receive_offsets.end())] {
      for (int r = 0; r < size_; ++r) copy(receive, to[size_t(r)], r, rank_);
    };
  }
  void all_gather(const void* send, int bytes, void* receive, std::span<const int>, std::span<const int> offsets) override {
    const std::vector<int> counts(size_t(size_), bytes), zeros(size_t(size_), 0);
    begin(send, counts, zeros);
    take_ = [=, this, to = std::vector<int>(offsets.begin(), offsets.end())] {
      for (int r = 0; r < size_; ++r) copy(receive, to[size_t(r)], r, 0);
    };
  }
  void broadcast(void* data, int bytes, int root) override {
    const std::vector<int> counts(size_t(size_), bytes), zeros(size_t(size_), 0);
    begin(data, counts, zeros);
    take_ = [=, this] {
      if (rank_ != root) copy(data, 0, root, 0);
    };
  }
  void barrier() override {
    const std::vector<int> none(size_t(size_), 0);
    begin(nullptr, none, none);
    take_ = [] {};
  }
  bool test() override {
    const std::lock_guard lock(room_->mutex);
    if (!entered_) {
      if (room_->taken != 0) return false;  // others have not left the last round yet
      entered_ = true;
      room_->posted[size_t(rank_)] = send_;
      room_->counts[size_t(rank_)] = counts_;
      room_->offsets[size_t(rank_)] = offsets_;
      ++room_->here;
    }
    if (!took_ && room_->here == size_) {
      take_();
      took_ = true;
      ++room_->taken;
      round_ = room_->round;
      if (room_->taken == size_) room_->here = room_->taken = 0, ++room_->round;
    }
    return took_ && room_->round > round_;
  }
  void roll_call(std::vector<char>& heard) override {
    const std::lock_guard lock(room_->mutex);
    room_->calls[size_t(rank_)] = 1;
    heard = room_->calls;
  }
  void answer_roll() override {
    const std::lock_guard lock(room_->mutex);
    for (const char called : room_->calls) {
      if (called) room_->calls[size_t(rank_)] = 1;
    }
  }
  void close() override {}

 private:
  void begin(const void* send, std::span<const int> counts, std::span<const int> offsets) {
    send_ = send;
    counts_.assign(counts.begin(), counts.end());
    offsets_.assign(offsets.begin(), offsets.end());
    entered_ = took_ = false;
  }
  void copy(void* to, int at, int from, int part) const {
    const int n = room_->counts[size_t(from)][size_t(part)];
    char* const there = static_cast<char*>(to) + at;
    const char* const here = static_cast<const char*>(room_->posted[size_t(from)]) + room_->offsets[size_t(from)][size_t(part)];
    if (n > 0 && there != here) std::memcpy(there, here, size_t(n));
  }

  std::shared_ptr<Room> room_;
  int rank_, size_, round_ = 0;
  const void* send_ = nullptr;
  std::vector<int> counts_, offsets_;
  std::function<void()> take_;
  bool entered_ = false, took_ = false;
};

// Calls f(group) on each of `ranks` ranks, which owns the group. Rethrows an exception of rank 0.
inline void with_ranks(int ranks, const std::function<void(std::unique_ptr<ProcessGroup>)>& f, const GroupOptions& options = {}) {
  const auto room = std::make_shared<Room>(ranks);
  std::vector<std::thread> threads;
  std::exception_ptr error;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      try {
        f(HostGroup::open([&] { return std::make_unique<LocalTransport>(room, r); }, options));
      } catch (...) {
        if (r == 0) error = std::current_exception();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  if (error) std::rethrow_exception(error);
}

inline void on_ranks(int ranks, const std::function<void(ProcessGroup&)>& f, const GroupOptions& options = {}) {
  with_ranks(ranks, [&](const std::unique_ptr<ProcessGroup>& group) { f(*group); }, options);
}

}  // namespace halfstep::testing
