// SPDX-License-Identifier: Apache-2.0
// Loaders, and the iterator over their batches.
#pragma once

#include "torch/data/datasets.h"
#include "torch/data/queue.h"
#include "torch/data/samplers.h"

namespace torch::data {

template <class Batch>
class Iterator {
 public:
  using difference_type = std::ptrdiff_t;
  using value_type = Batch;
  using pointer = Batch*;
  using reference = Batch&;
  using iterator_category = std::input_iterator_tag;
  using Next = std::function<std::optional<Batch>()>;
  Iterator() = default;  // the end
  explicit Iterator(Next next) : state_(std::make_shared<State>()) { state_->next = std::move(next); }
  Iterator& operator++() {
    TORCH_CHECK(state_, "Incrementing the DataLoader's past-the-end iterator is not allowed");
    TORCH_CHECK(!at_end(), "Attempted to increment iterator past the end");
    fetch();
    state_->now = state_->next();
    return *this;
  }
  Batch& operator*() {
    TORCH_CHECK(state_, "Dereferencing the DataLoader's past-the-end iterator is not allowed");
    fetch();
    TORCH_CHECK(state_ && state_->now, "Attempted to dereference iterator that was past the end");
    return *state_->now;
  }
  Batch* operator->() { return &**this; }
  bool operator==(const Iterator& o) const {
    return (at_end() && o.at_end()) || (state_ == o.state_ && state_ != nullptr && !at_end());
  }

 private:
  struct State {
    Next next;
    std::optional<Batch> now;
    bool begun = false;
  };
  void fetch() const {
    if (state_ && !state_->begun) state_->begun = true, state_->now = state_->next();
  }
  bool at_end() const {
    fetch();
    return !state_ || !state_->now;
  }
  std::shared_ptr<State> state_;
};

template <class D, class S>
class StatelessDataLoader {
 public:
  using BatchType = typename D::BatchType;
  using Request = typename S::BatchRequestType;
  [[nodiscard]] StatelessDataLoader(D dataset, S sampler, DataLoaderOptions o)
      : options_(std::move(o)), sampler_(std::move(sampler)) {
    for (size_t w = 0; w < options_.workers; ++w) workers_.emplace_back([this, dataset]() mutable { work(dataset); });
    if (options_.workers == 0) dataset_ = std::make_unique<D>(std::move(dataset));
    new_sequencer();
  }
  StatelessDataLoader(const StatelessDataLoader&) = delete;
  ~StatelessDataLoader() { join(); }
  Iterator<BatchType> begin() {
    TORCH_CHECK(shuttle_.in_flight_jobs() == 0,
                "Attempted to get a new DataLoader iterator while another iterator is not yet exhausted");
    reset();
    return Iterator<BatchType>([this] { return next(); });
  }
  Iterator<BatchType> end() { return {}; }
  void join() {
    if (joined_) return;
    shuttle_.drain();
    for (size_t w = 0; w < options_.workers; ++w) shuttle_.push_job(Job{});
    for (auto& t : workers_) t.join();
    joined_ = true;
  }
  const FullDataLoaderOptions& options() const noexcept { return options_; }

 private:
  struct Job {
    std::optional<Request> request;
    size_t sequence_number = 0;
  };
  struct Result {
    std::optional<BatchType> batch;
    std::exception_ptr exception;
    size_t sequence_number = 0;
  };
  void new_sequencer() {
    if (options_.enforce_ordering)
      sequencer_ = std::make_unique<detail::sequencers::OrderedSequencer<Result>>(std::max<size_t>(options_.max_jobs, 1));
    else
      sequencer_ = std::make_unique<detail::sequencers::NoSequencer<Result>>();
  }
  void reset() {
    shuttle_.drain();
    sampler_.reset(std::optional<size_t>());
    sequence_ = 0;
    new_sequencer();
    for (size_t j = 0; j < options_.max_jobs; ++j) prefetch();
  }
  std::optional<Request> request() {
    auto r = sampler_.next(options_.batch_size);
    if (!r || (r->size() < options_.batch_size && options_.drop_last)) return {};
    return r;
  }
  void prefetch() {
    if (options_.workers == 0) return;
    if (auto r = request()) shuttle_.push_job(Job{std::move(r), sequence_++});
  }
  std::optional<BatchType> next() {
    if (options_.workers == 0) {
      auto r = request();
      if (!r) return {};
      return dataset_->get_batch(std::move(*r));
    }
    auto result = sequencer_->next([this] { return shuttle_.pop_result(options_.timeout); });
    if (!result) return {};
    if (result->exception) throw WorkerException(result->exception);
    prefetch();
    return std::move(result->batch);
  }
  void work(D& dataset) {
    while (true) {
      Job job = shuttle_.pop_job();
      if (!job.request) return;
      Result r;
      r.sequence_number = job.sequence_number;
      try {
        r.batch = dataset.get_batch(std::move(*job.request));
      } catch (...) { r.exception = std::current_exception(); }
      shuttle_.push_result(std::move(r));
    }
  }
  FullDataLoaderOptions options_;
  S sampler_;
  std::unique_ptr<D> dataset_;
  detail::DataShuttle<Job, Result> shuttle_;
  std::unique_ptr<detail::sequencers::Sequencer<Result>> sequencer_;
  std::vector<std::thread> workers_;
  size_t sequence_ = 0;
  bool joined_ = false;
};
template <class D>
class StatefulDataLoader {
 public:
  using BatchType = typename D::BatchType::value_type;
  [[nodiscard]] StatefulDataLoader(D dataset, DataLoaderOptions o) : options_(std::move(o)), dataset_(std::move(dataset)) {
    if constexpr (D::is_shared) {
      for (size_t w = 0; w < options_.workers; ++w) workers_.emplace_back([this] { work(dataset_); });
    } else {
      TORCH_CHECK(options_.workers == 0, "a StatefulDataset with workers must be shared: call make_shared_dataset");
    }
  }
  StatefulDataLoader(const StatefulDataLoader&) = delete;
  ~StatefulDataLoader() { join(); }
  Iterator<BatchType> begin() {
    shuttle_.drain();
    dataset_.reset();
    is_exhausted_ = false;
    if (!workers_.empty())
      for (size_t j = 0; j < options_.max_jobs; ++j) shuttle_.push_job(Job{true});
    return Iterator<BatchType>([this] { return next(); });
  }
  Iterator<BatchType> end() { return {}; }
  void join() {
    shuttle_.drain();
    for (size_t w = 0; w < workers_.size(); ++w) shuttle_.push_job(Job{});
    for (auto& t : workers_) t.join();
    workers_.clear();
  }
  const FullDataLoaderOptions& options() const noexcept { return options_; }

 private:
  struct Job {
    bool takes_batch = false;  // false: the worker ends
  };
  struct Result {
    std::optional<BatchType> batch;
    std::exception_ptr exception;
  };
  // Returns a batch of any worker: which worker got an earlier one is not known.
  std::optional<BatchType> next() {
    if (workers_.empty()) return dataset_.get_batch(options_.batch_size);
    while (auto result = shuttle_.pop_result(options_.timeout)) {
      if (result->exception) throw WorkerException(result->exception);
      is_exhausted_ = is_exhausted_ || !result->batch;
      if (!is_exhausted_) shuttle_.push_job(Job{true});
      if (result->batch) return std::move(result->batch);
    }
    return {};
  }
  void work(D dataset) {
    while (shuttle_.pop_job().takes_batch) {
      Result result;
      try {
        result.batch = dataset.get_batch(options_.batch_size);
      } catch (...) { result.exception = std::current_exception(); }
      shuttle_.push_result(std::move(result));
    }
  }
  FullDataLoaderOptions options_;
  D dataset_;
  detail::DataShuttle<Job, Result> shuttle_;
  std::vector<std::thread> workers_;
  bool is_exhausted_ = false;
};
template <class D, class S>
requires(!D::is_stateful) std::unique_ptr<StatelessDataLoader<D, S>> make_data_loader(D dataset, S sampler, DataLoaderOptions o) {
  return std::make_unique<StatelessDataLoader<D, S>>(std::move(dataset), std::move(sampler), std::move(o));
}
template <class S = samplers::RandomSampler, class D>
requires(!D::is_stateful &&
         std::is_constructible_v<S, size_t>) std::unique_ptr<StatelessDataLoader<D, S>> make_data_loader(D dataset,
                                                                                                         DataLoaderOptions o = {}) {
  const std::optional<size_t> n = dataset.size();
  TORCH_CHECK(n.has_value(), "Expected the dataset to be sized in order to construct the Sampler");
  return make_data_loader(std::move(dataset), S(*n), std::move(o));
}
template <class D>
requires D::is_stateful std::unique_ptr<StatefulDataLoader<D>> make_data_loader(D dataset, DataLoaderOptions o = {}) {
  return std::make_unique<StatefulDataLoader<D>>(std::move(dataset), std::move(o));
}

}  // namespace torch::data
