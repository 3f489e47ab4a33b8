// SPDX-License-Identifier: Apache-2.0
// ChunkDataset: a data set that is read in chunks, such as files, by threads of its own while a program trains.
#pragma once

#include <condition_variable>
#include <deque>

#include "torch/data/datasets.h"
#include "torch/data/samplers.h"

namespace torch::data::datasets {

// What a program derives from: it reads one chunk after another. Several threads may call read_chunk at once.
template <class Single, class Chunk = std::vector<Single>>
class ChunkDataReader {
 public:
  using ExampleType = Single;
  using ChunkType = Chunk;
  using BatchType = Chunk;
  virtual ~ChunkDataReader() = default;
  virtual Chunk read_chunk(size_t chunk_index) = 0;
  virtual size_t chunk_count() = 0;
  virtual void reset() = 0;
};

struct ChunkDatasetOptions {
  ChunkDatasetOptions(size_t preloader_count, size_t batch_size, size_t cache_size = 2048, size_t cross_chunk_shuffle_count = 1)
      : preloader_count_(preloader_count),
        batch_size_(batch_size),
        cache_size_(cache_size),
        cross_chunk_shuffle_count_(cross_chunk_shuffle_count) {
    TORCH_CHECK(preloader_count > 0, "Preloader count is 0. At least one preloader needs to be specified.");
    TORCH_CHECK(batch_size > 0, "Batch size is 0. A positive batch size needs to be specified.");
    TORCH_CHECK(cache_size > 0, "Cache size is 0. A positive cache size needs to be specified.");
    TORCH_CHECK(cache_size >= batch_size,
                "Cache size is less than batch size. Cache needs to be large enough to hold at least one batch.");
    TORCH_CHECK(cross_chunk_shuffle_count > 0, "cross_chunk_shuffle_count needs to be greater than 0.");
  }
  TORCH_ARG(size_t, preloader_count);  // threads that read chunks
  TORCH_ARG(size_t, batch_size);
  TORCH_ARG(size_t, cache_size);                 // examples in memory from which on the threads wait
  TORCH_ARG(size_t, cross_chunk_shuffle_count);  // chunks that are shuffled together
};

namespace detail {

// The examples between the threads that read chunks and those that take batches.
template <class Batch>
class ExampleQueue {
 public:
  ExampleQueue(size_t capacity, size_t readers) : capacity_(capacity), readers_(readers) {}

  // Appends examples, once there is room for more.
  void push(Batch examples) {
    std::unique_lock lock(mutex_);
    has_room_.wait(lock, [&] { return examples_.size() < capacity_ || closed_; });
    if (closed_) return;
    pushed_ += examples.size();
    std::move(examples.begin(), examples.end(), std::back_inserter(examples_));
    has_examples_.notify_all();
  }
  void fail(std::exception_ptr exception) {
    const std::lock_guard lock(mutex_);
    failures_.push_back({std::move(exception), pushed_});
    has_examples_.notify_all();
  }
  void reader_ended() {
    const std::lock_guard lock(mutex_);
    if (--readers_ == 0) has_examples_.notify_all();
  }
  // Returns the next examples; fewer at the end of the set, and nothing after it. Throws a failure in place of the batch that has
  // examples from behind it.
  std::optional<Batch> pop(size_t count) {
    std::unique_lock lock(mutex_);
    has_examples_.wait(lock, [&] { return examples_.size() >= count || !failures_.empty() || readers_ == 0 || closed_; });
    if (!failures_.empty() && failures_.front().examples_before < popped_ + count) {
      const std::exception_ptr first = failures_.front().exception;
      failures_.pop_front();
      throw WorkerException(first);
    }
    if (examples_.empty()) return {};
    const auto end = examples_.begin() + std::ptrdiff_t(std::min(count, examples_.size()));
    popped_ += size_t(end - examples_.begin());
    Batch batch(std::make_move_iterator(examples_.begin()), std::make_move_iterator(end));
    examples_.erase(examples_.begin(), end);
    has_room_.notify_all();
    return batch;
  }
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    has_room_.notify_all();
    has_examples_.notify_all();
  }
  bool is_closed() {
    const std::lock_guard lock(mutex_);
    return closed_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable has_room_, has_examples_;
  std::deque<typename Batch::value_type> examples_;
  struct Failure {
    std::exception_ptr exception;
    size_t examples_before;
  };
  std::deque<Failure> failures_;
  size_t capacity_, readers_, pushed_ = 0, popped_ = 0;  // pushed, popped: examples so far
  bool closed_ = false;
};

}  // namespace detail

template <class Reader, class ChunkSampler = samplers::RandomSampler, class ExampleSampler = samplers::RandomSampler>
class ChunkDataset final
    : public StatefulDataset<ChunkDataset<Reader, ChunkSampler, ExampleSampler>, typename Reader::BatchType, size_t> {
 public:
  using UnwrappedBatchType = typename Reader::BatchType;
  using BatchType = std::optional<UnwrappedBatchType>;
  using ChunkSamplerType = ChunkSampler;
  using ExampleSamplerType = ExampleSampler;
  using Policy = std::function<void(UnwrappedBatchType&)>;  // changes the examples of the chunks that are shuffled together

  [[nodiscard]] ChunkDataset(Reader reader, ChunkSampler chunk_sampler, ExampleSampler example_sampler, ChunkDatasetOptions options,
                             Policy preprocessing_policy = {})
      : reader_(std::move(reader)),
        chunk_sampler_(std::move(chunk_sampler)),
        example_sampler_(std::move(example_sampler)),
        options_(options),
        policy_(std::move(preprocessing_policy)) {}
  ChunkDataset(const ChunkDataset&) = delete;
  ~ChunkDataset() override { stop(); }

  BatchType get_batch(size_t batch_size) override {
    TORCH_CHECK(queue_, "Dataset needs to call reset() before calling get_batch().");
    TORCH_CHECK(batch_size == options_.batch_size(), "The requested batch size does not match with the initialized batch size.\n",
                " The requested batch size is ", batch_size, ", while the dataset is created with batch size equal to ",
                options_.batch_size());
    return queue_->pop(batch_size);
  }
  BatchType get_batch() { return get_batch(options_.batch_size()); }

  // Begins an epoch: at the place that load() read, once, else with the first chunk.
  void reset() override {
    stop();
    if (!std::exchange(is_loaded_, false)) {
      reader_.reset();
      chunk_sampler_.reset(reader_.chunk_count());
    }
    queue_ = std::make_unique<detail::ExampleQueue<UnwrappedBatchType>>(options_.cache_size(), options_.preloader_count());
    for (size_t i = 0; i < options_.preloader_count(); ++i) threads_.emplace_back([this] { read_chunks(); });
  }
  std::optional<size_t> size() const override { return {}; }
  ChunkSamplerType& chunk_sampler() { return chunk_sampler_; }

  // The place: chunks that were read count as used.
  void save(serialize::OutputArchive& archive) const override {
    const std::lock_guard lock(sampler_mutex_);
    chunk_sampler_.save(archive);
  }
  void load(serialize::InputArchive& archive) override {
    const std::lock_guard lock(sampler_mutex_);
    chunk_sampler_.load(archive);
    is_loaded_ = true;
  }

 private:
  void stop() {
    if (queue_) queue_->close();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  std::optional<std::vector<size_t>> next_chunks() {
    const std::lock_guard lock(sampler_mutex_);
    return chunk_sampler_.next(options_.cross_chunk_shuffle_count());
  }
  void read_chunks() {
    while (!queue_->is_closed()) {
      try {
        const auto chunks = next_chunks();
        if (!chunks) break;
        UnwrappedBatchType examples;
        for (size_t index : *chunks) {
          UnwrappedBatchType chunk = reader_.read_chunk(index);
          std::move(chunk.begin(), chunk.end(), std::back_inserter(examples));
        }
        if (policy_) policy_(examples);
        if (!examples.empty()) queue_->push(shuffled(std::move(examples)));
      } catch (...) { queue_->fail(std::current_exception()); }
    }
    queue_->reader_ended();
  }
  // Returns examples in the order of their sampler.
  UnwrappedBatchType shuffled(UnwrappedBatchType examples) {
    const std::lock_guard lock(example_mutex_);
    const size_t count = examples.size();
    example_sampler_.reset(count);
    UnwrappedBatchType out;
    out.reserve(count);
    while (out.size() < count) {
      const auto places = example_sampler_.next(std::min(options_.batch_size(), count - out.size()));
      TORCH_CHECK(places && places->size() > 0, "the sampler of examples ended after ", out.size(), " of ", count);
      for (size_t place : *places) {
        TORCH_CHECK(place < count, "Index out of range");
        out.push_back(std::move(examples[place]));
      }
    }
    return out;
  }

  Reader reader_;
  ChunkSampler chunk_sampler_;
  ExampleSampler example_sampler_;
  const ChunkDatasetOptions options_;
  Policy policy_;
  std::unique_ptr<detail::ExampleQueue<UnwrappedBatchType>> queue_;
  std::vector<std::thread> threads_;
  mutable std::mutex sampler_mutex_;
  std::mutex example_mutex_;
  bool is_loaded_ = false;
};

}  // namespace torch::data::datasets
