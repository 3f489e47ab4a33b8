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

// What both loaders do: workers compute the batches of requests ahead of their use; without workers, the caller does.
template <class D, class Batch, class Request>
class DataLoaderBase {
 public:
  using BatchType = Batch;
  DataLoaderBase(const DataLoaderBase&) = delete;
  virtual ~DataLoaderBase() { join(); }
  Iterator<Batch> begin() {
    TORCH_CHECK(shuttle_.in_flight_jobs() == 0,
                "Attempted to get a new DataLoader iterator while another iterator is not yet exhausted");
    shuttle_.drain();
    restart();
    sequence_ = 0;
    if (options_.enforce_ordering)
      sequencer_ = std::make_unique<detail::sequencers::OrderedSequencer<Result>>(std::max<size_t>(options_.max_jobs, 1));
    else
      sequencer_ = std::make_unique<detail::sequencers::NoSequencer<Result>>();
    for (size_t j = 0; j < options_.max_jobs; ++j) prefetch();
    return Iterator<Batch>([this] { return next(); });
  }
  Iterator<Batch> end() { return {}; }
  void join() {
    if (joined_) return;
    shuttle_.drain();
    for (size_t w = 0; w < workers_.size(); ++w) shuttle_.push_job(Job{});
    for (auto& t : workers_) t.join();
    joined_ = true;
  }
  const FullDataLoaderOptions& options() const noexcept { return options_; }

 protected:
  DataLoaderBase(D dataset, DataLoaderOptions o) : options_(std::move(o)), dataset_(std::make_unique<D>(std::move(dataset))) {}
  virtual void restart() = 0;                    // called before each pass
  virtual std::optional<Request> request() = 0;  // returns the next batch's request; nothing at the end of a pass
  // Starts the workers. Each has a data set of its own if `copies`.
  void start(bool copies) {
    for (size_t w = 0; w < options_.workers; ++w) {
      if (copies) {
        if constexpr (std::is_copy_constructible_v<D>) workers_.emplace_back([this, own = *dataset_]() mutable { work(own); });
      } else {
        workers_.emplace_back([this] { work(*dataset_); });
      }
    }
  }

  FullDataLoaderOptions options_;
  std::unique_ptr<D> dataset_;

 private:
  struct Job {
    std::optional<Request> request;
    size_t sequence_number = 0;
  };
  struct Result {
    std::optional<Batch> batch;
    std::exception_ptr exception;
    size_t sequence_number = 0;
  };
  void prefetch() {
    if (options_.workers == 0) return;
    if (auto r = request()) shuttle_.push_job(Job{std::move(r), sequence_++});
  }
  std::optional<Batch> next() {
    if (options_.workers == 0) {
      auto r = request();
      if (!r) return {};
      return dataset_->get_batch(std::move(*r));
    }
    while (auto result = sequencer_->next([this] { return shuttle_.pop_result(options_.timeout); })) {
      if (result->exception) throw WorkerException(result->exception);
      if (!result->batch) continue;  // a stateful data set is at its end
      prefetch();
      return std::move(result->batch);
    }
    return {};
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
  detail::DataShuttle<Job, Result> shuttle_;
  std::unique_ptr<detail::sequencers::Sequencer<Result>> sequencer_;
  std::vector<std::thread> workers_;
  size_t sequence_ = 0;
  bool joined_ = false;
};

template <class D, class S>
class StatelessDataLoader : public DataLoaderBase<D, typename D::BatchType, typename S::BatchRequestType> {
 public:
  [[nodiscard]] StatelessDataLoader(D dataset, S sampler, DataLoaderOptions o)
      : StatelessDataLoader::DataLoaderBase(std::move(dataset), std::move(o)), sampler_(std::move(sampler)) {
    this->start(/*copies=*/true);
  }

 private:
  void restart() override { sampler_.reset(std::optional<size_t>()); }
  std::optional<typename S::BatchRequestType> request() override {
    auto r = sampler_.next(this->options_.batch_size);
    if (!r || (r->size() < this->options_.batch_size && this->options_.drop_last)) return {};
    return r;
  }
  S sampler_;
};
// All workers read one data set, which must allow that.
template <class D>
class StatefulDataLoader : public DataLoaderBase<D, typename D::BatchType::value_type, typename D::BatchRequestType> {
 public:
  StatefulDataLoader(D dataset, DataLoaderOptions o) : StatefulDataLoader::DataLoaderBase(std::move(dataset), std::move(o)) {
    this->start(/*copies=*/false);
  }

 private:
  void restart() override { this->dataset_->reset(); }
  std::optional<typename D::BatchRequestType> request() override { return this->options_.batch_size; }
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
