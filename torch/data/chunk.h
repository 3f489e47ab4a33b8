// SPDX-License-Identifier: Apache-2.0
// A data set that is read in chunks, such as files that do not fit into memory together. Threads read chunks ahead in the order
// of one sampler, another sampler orders the examples of what was read at once, and batches are taken from the examples so far.
// A random order of examples is drawn from the default generator in those threads: a program that draws numbers besides gives the
// same result again only with samplers that draw nothing, and one thread.
#pragma once

#include <deque>

#include "torch/data/loader.h"

namespace torch::data::datasets {

// Reads chunks for ChunkDataset. read_chunk is called from several threads at once.
template <class Example_, class Chunk_ = std::vector<Example_>>
class ChunkDataReader {
 public:
  using ChunkType = Chunk_;
  using ExampleType = Example_;
  using BatchType = Chunk_;
  using DataType = Example_;
  virtual ~ChunkDataReader() = default;
  virtual ChunkType read_chunk(size_t chunk_index) = 0;
  virtual size_t chunk_count() = 0;
  virtual void reset() = 0;  // called before each pass
};

struct ChunkDatasetOptions {
  ChunkDatasetOptions() = delete;
  ChunkDatasetOptions(size_t preloader_count, size_t batch_size, size_t cache_size = 2048, size_t cross_chunk_shuffle_count = 1)
      : preloader_count_(preloader_count),
        batch_size_(batch_size),
        cache_size_(cache_size),
        cross_chunk_shuffle_count_(cross_chunk_shuffle_count) {
    TORCH_CHECK(preloader_count_ > 0, "Preloader count is 0. At least one preloader needs to be specified.");
    TORCH_CHECK(batch_size_ > 0, "Batch size is 0. A positive batch size needs to be specified.");
    TORCH_CHECK(cache_size_ > 0, "Cache size is 0. A positive cache size needs to be specified.");
    TORCH_CHECK(cache_size_ >= batch_size_,
                "Cache size is less than batch size. Cache needs to be large enough to hold at least "
                "one batch.");
    TORCH_CHECK(cross_chunk_shuffle_count_ > 0, "cross_chunk_shuffle_count needs to be greater than 0.");
  }
  TORCH_ARG(size_t, preloader_count);            // threads that read
  TORCH_ARG(size_t, batch_size);                 // examples
  TORCH_ARG(size_t, cache_size);                 // examples that are read ahead, at least
  TORCH_ARG(size_t, cross_chunk_shuffle_count);  // chunks that are read at once, and whose examples are ordered together
};

namespace detail {
// Batches that threads fill and readers take. `Batch` is a list of examples.
template <class Batch, class Sampler>
class BatchDataBuffer {
 public:
  BatchDataBuffer(size_t batch_size, Sampler& order, size_t capacity)
      : batch_size_(batch_size), capacity_(capacity), order_(order) {}

  // Adds the examples of a chunk in the sampler's order; waits while the buffer is full.
  void add(Batch chunk) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!wait_for_room(lock)) return;
    order_.reset(chunk.size());
    while (const auto indices = order_.next(batch_size_))
      for (const size_t i : *indices) push(std::move(chunk[i]));
    readable_.notify_all();
  }
  void add(std::exception_ptr error) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!wait_for_room(lock)) return;
    queue_.push_back({{}, std::move(error)});
    readable_.notify_all();
  }
  // Returns the next batch; nothing after the last one.
  std::optional<Batch> take() {
    std::unique_lock<std::mutex> lock(mutex_);
    readable_.wait(lock, [this] { return ended_ || (!queue_.empty() && (queue_.front().error || is_full(queue_.front()))); });
    if (queue_.empty()) return {};
    Slot slot = std::move(queue_.front());
    queue_.pop_front();
    examples_ -= slot.batch.size();
    writable_.notify_all();
    lock.unlock();
    if (slot.error) throw WorkerException(slot.error);
    return std::move(slot.batch);
  }
  // Nothing is added any more: take() gives what is there.
  void end() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
    readable_.notify_all();
    writable_.notify_all();
  }

 private:
  struct Slot {
    Batch batch;
    std::exception_ptr error;
  };
  bool is_full(const Slot& s) const { return s.batch.size() >= batch_size_; }
  bool wait_for_room(std::unique_lock<std::mutex>& lock) {
    writable_.wait(lock, [this] { return ended_ || (examples_ < capacity_ && queue_.size() < capacity_); });  // errors count, too
    return !ended_;
  }
  void push(typename Batch::value_type example) {
    if (queue_.empty() || queue_.back().error || is_full(queue_.back())) queue_.emplace_back();
    queue_.back().batch.push_back(std::move(example));
    ++examples_;
  }
  size_t batch_size_, capacity_, examples_ = 0;
  Sampler& order_;
  std::deque<Slot> queue_;
  std::mutex mutex_;
  std::condition_variable readable_, writable_;
  bool ended_ = false;
};
}  // namespace detail

template <class Reader, class ChunkSampler = samplers::RandomSampler, class ExampleSampler = samplers::RandomSampler>
class ChunkDataset final
    : public StatefulDataset<ChunkDataset<Reader, ChunkSampler, ExampleSampler>, typename Reader::BatchType, size_t> {
 public:
  using BatchType = std::optional<typename Reader::BatchType>;
  using UnwrappedBatchType = typename Reader::BatchType;
  using BatchRequestType = size_t;
  using ChunkSamplerType = ChunkSampler;
  using ExampleSamplerType = ExampleSampler;

  // `preprocessing`: called with the examples that were read at once, before they are ordered, in the thread that read them.
  ChunkDataset(Reader reader, ChunkSampler chunks, ExampleSampler examples, ChunkDatasetOptions options,
               std::function<void(UnwrappedBatchType&)> preprocessing = {})
      : reader_(std::move(reader)),
        chunks_(std::move(chunks)),
        examples_(std::move(examples)),
        options_(std::move(options)),
        preprocessing_(std::move(preprocessing)) {}
  ~ChunkDataset() override { stop(); }

  BatchType get_batch(size_t batch_size) override {
    TORCH_CHECK(buffer_, "Dataset needs to call reset() before calling get_batch().");
    TORCH_CHECK(batch_size == options_.batch_size(), "The requested batch size does not match with the initialized batch size.\n",
                " The requested batch size is ", batch_size, ", while the dataset is created with batch size equal to ",
                options_.batch_size());
    return buffer_->take();
  }
  BatchType get_batch() { return get_batch(options_.batch_size()); }

  // Begins a pass, from the first chunk, or after load() from where save() was.
  void reset() override {
    stop();
    reader_.reset();
    if (!std::exchange(loaded_, false)) chunks_.reset(reader_.chunk_count());
    buffer_ = std::make_unique<Buffer>(options_.batch_size(), examples_, options_.cache_size());
    stopping_ = false;
    reading_ = options_.preloader_count();
    for (size_t i = 0; i < options_.preloader_count(); ++i) preloaders_.emplace_back([this] { read(); });
  }
  std::optional<size_t> size() const override { return std::nullopt; }  // not known before everything was read
  ChunkSampler& chunk_sampler() { return chunks_; }
  // Save and load the place among the chunks. A chunk that was begun is not read again.
  void save(serialize::OutputArchive& archive) const override {
    const std::lock_guard<std::mutex> lock(chunks_mutex_);
    chunks_.save(archive);
  }
  void load(serialize::InputArchive& archive) override {
    const std::lock_guard<std::mutex> lock(chunks_mutex_);
    chunks_.load(archive);
    loaded_ = true;
  }

 private:
  using Buffer = detail::BatchDataBuffer<UnwrappedBatchType, ExampleSampler>;
  std::optional<std::vector<size_t>> next_chunks() {
    const std::lock_guard<std::mutex> lock(chunks_mutex_);
    return chunks_.next(options_.cross_chunk_shuffle_count());
  }
  // Reads chunks until there are no more; the last thread to end closes the buffer.
  void read() {
    while (!stopping_) {
      try {
        const auto indices = next_chunks();
        if (!indices) break;
        UnwrappedBatchType all;
        for (const size_t i : *indices) {
          UnwrappedBatchType chunk = reader_.read_chunk(i);
          std::move(chunk.begin(), chunk.end(), std::back_inserter(all));
        }
        if (preprocessing_) preprocessing_(all);
        if (!all.empty()) buffer_->add(std::move(all));
      } catch (...) { buffer_->add(std::current_exception()); }
    }
    if (--reading_ == 0) buffer_->end();
  }
  void stop() {
    stopping_ = true;
    if (buffer_) buffer_->end();
    for (auto& t : preloaders_) t.join();
    preloaders_.clear();
  }

  Reader reader_;
  ChunkSampler chunks_;
  ExampleSampler examples_;
  ChunkDatasetOptions options_;
  std::function<void(UnwrappedBatchType&)> preprocessing_;
  std::unique_ptr<Buffer> buffer_;
  std::vector<std::thread> preloaders_;
  mutable std::mutex chunks_mutex_;
  std::atomic<bool> stopping_ = false;
  std::atomic<size_t> reading_ = 0;
  bool loaded_ = false;
};

}  // namespace torch::data::datasets
