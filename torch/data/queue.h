// SPDX-License-Identifier: Apache-2.0
// What a loader and its workers share.
#pragma once

#include <condition_variable>
#include <queue>

#include "torch/data/example.h"

namespace torch::data {

// ---- the loader
namespace detail {
using ::torch::detail::fail;
template <class T>
class Queue {
 public:
  void push(T v) {
    {
      std::lock_guard<std::mutex> l(mutex_);
      queue_.push(std::move(v));
    }
    cv_.notify_one();
  }
  T pop(std::optional<std::chrono::milliseconds> timeout = {}) {
    std::unique_lock<std::mutex> l(mutex_);
    auto ready = [&] { return !queue_.empty(); };
    if (timeout) {
      if (!cv_.wait_for(l, *timeout, ready))
        fail("Timeout in DataLoader queue while waiting for next batch (timeout was ", timeout->count(), " ms)");
    } else {
      cv_.wait(l, ready);
    }
    T v = std::move(queue_.front());
    queue_.pop();
    return v;
  }
  size_t clear() {
    std::lock_guard<std::mutex> l(mutex_);
    const size_t n = queue_.size();
    while (!queue_.empty()) queue_.pop();
    return n;
  }

 private:
  std::queue<T> queue_;
  std::mutex mutex_;
  std::condition_variable cv_;
};
template <class Job, class Result>
class DataShuttle {
 public:
  void push_job(Job j) {
    new_jobs_.push(std::move(j));
    ++in_flight_;
  }
  void push_result(Result r) { results_.push(std::move(r)); }
  Job pop_job() { return new_jobs_.pop(); }
  std::optional<Result> pop_result(std::optional<std::chrono::milliseconds> timeout = {}) {
    if (in_flight_ == 0) return {};
    auto r = results_.pop(timeout);
    --in_flight_;
    return r;
  }
  void drain() {
    in_flight_ -= new_jobs_.clear();
    while (in_flight_ > 0) pop_result();
  }
  size_t in_flight_jobs() const noexcept { return in_flight_; }

 private:
  Queue<Job> new_jobs_;
  Queue<Result> results_;
  size_t in_flight_ = 0;
};
namespace sequencers {
template <class R>
struct Sequencer {
  using ResultProducer = std::function<std::optional<R>()>;
  virtual ~Sequencer() = default;
  virtual std::optional<R> next(ResultProducer next_result) = 0;
};
template <class R>
struct NoSequencer final : Sequencer<R> {
  using typename Sequencer<R>::ResultProducer;
  std::optional<R> next(ResultProducer next_result) override { return next_result(); }
};
template <class R>
struct OrderedSequencer : Sequencer<R> {
  using typename Sequencer<R>::ResultProducer;
  explicit OrderedSequencer(size_t max_jobs) : buffer_(max_jobs) {}
  std::optional<R> next(ResultProducer next_result) override {
    if (auto& slot = buffer_[next_sequence_number_ % buffer_.size()]) {
      auto r = std::move(*slot);
      slot = std::nullopt;
      ++next_sequence_number_;
      return r;
    }
    while (true) {
      auto r = next_result();
      if (!r) return {};
      if (r->sequence_number == next_sequence_number_) {
        ++next_sequence_number_;
        return r;
      }
      buffer_[r->sequence_number % buffer_.size()] = std::move(r);
    }
  }
  size_t next_sequence_number_ = 0;
  std::vector<std::optional<R>> buffer_;
};
}  // namespace sequencers
}  // namespace detail

}  // namespace torch::data
