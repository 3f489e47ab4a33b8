// SPDX-License-Identifier: Apache-2.0
#include "framework/data/loader.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "framework/backend/backend.h"
#include "framework/base/check.h"
#include "framework/data/permutation.h"
#include "framework/tensor/storage.h"

namespace halfstep {
namespace {

// Batches of one epoch: the state of the loader and its threads, with shared ownership so that threads never see the loader.
struct Plan {
  std::shared_ptr<const Dataset> dataset;
  std::shared_ptr<const std::vector<int64_t>> order;
  int64_t batch_size, epoch;
  int rank, ranks;
  Device device;
  std::shared_ptr<UploadLane> lane;

  BatchRows part(int64_t batch) const {
    return part_of(std::min(batch_size, int64_t(order->size()) - batch * batch_size), rank, ranks);
  }
  Batch make(int64_t batch) const {
    const MemoryScope scope(MemoryTag::data);
    const BatchRows rows = part(batch);
    if (rows.rows == 0) return {};
    return dataset->batch(std::span<const int64_t>(order->data() + batch * batch_size + rows.first, size_t(rows.rows)), epoch);
  }
};

// A batch on the device, whose bytes may still be on their way. It is received before it is used or dropped.
struct Sent {
  Batch batch;
  std::vector<uint64_t> copies;

  void receive(UploadLane& lane) {
    for (const uint64_t copy : std::exchange(copies, {})) lane.receive(copy);
  }
};

Sent send(const Batch& batch, Device device, UploadLane* lane) {
  const MemoryScope scope(MemoryTag::data);
  Sent sent;
  const auto move = [&](const Tensor& from) {
    if (!from.defined()) return from;
    if (!lane || !from.device().is_cpu()) return from.to(device);
    const Tensor packed = from.contiguous(), to = Tensor::empty(from.shape(), {.dtype = from.dtype(), .device = device});
    sent.copies.push_back(lane->send(packed.data_ptr(), to.data_ptr(), packed.nbytes()));
    return to;
  };
  try {
    sent.batch.input = move(batch.input);
    sent.batch.target = move(batch.target);
  } catch (...) {
    if (lane) sent.receive(*lane);
    throw;
  }
  return sent;
}

}  // namespace

// Threads that make the batches [first, end) of one epoch, each batch by the first thread that is free, at most `ahead` more
// than were taken.
class DataLoader::Prefetcher {
 public:
  Prefetcher(Plan plan, int64_t first, int64_t end, int threads, int ahead)
      : plan_(std::move(plan)), ahead_(ahead), claimed_(first), taken_(first), end_(end) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  }
  ~Prefetcher() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    room_.notify_all();
    for (std::thread& t : threads_) t.join();
    try {
      for (auto& [batch, made] : ready_) {
        if (plan_.lane) made.sent.receive(*plan_.lane);
      }
    } catch (const Error&) {  // the device failed: its next use throws
    }
  }

  // The batches in order. Rethrows an exception thrown while making the batch.
  Batch take() {
    Made made;
    {
      std::unique_lock lock(mutex_);
      filled_.wait(lock, [&] { return ready_.count(taken_) > 0; });
      made = std::move(ready_.extract(taken_).mapped());
      ++taken_;
    }
    room_.notify_all();
    if (made.error) std::rethrow_exception(made.error);
    if (plan_.lane) made.sent.receive(*plan_.lane);
    return std::move(made.sent.batch);
  }

 private:
  struct Made {
    Sent sent;
    std::exception_ptr error;
  };

  void work() {
    for (;;) {
      int64_t mine;
      {
        std::unique_lock lock(mutex_);
        room_.wait(lock, [&] { return stop_ || claimed_ >= end_ || claimed_ < taken_ + ahead_; });
        if (stop_ || claimed_ >= end_) return;
        mine = claimed_++;
      }
      Made made;
      try {
        made.sent = send(plan_.make(mine), plan_.device, plan_.lane.get());
      } catch (...) { made.error = std::current_exception(); }
      {
        const std::lock_guard lock(mutex_);
        ready_[mine] = std::move(made);
      }
      filled_.notify_one();
    }
  }

  const Plan plan_;
  const int64_t ahead_;
  std::mutex mutex_;
  std::condition_variable room_, filled_;
  std::map<int64_t, Made> ready_;
  int64_t claimed_, taken_, end_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

DataLoader::DataLoader(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options)
    : dataset_(std::move(dataset)), options_(options) {
  check<ValueError>(dataset_ != nullptr, "DataLoader", "needs a data set");
  check<ValueError>(options_.batch_size >= 1, "DataLoader", "batch_size must be at least 1, got ", options_.batch_size);
  check<ValueError>(options_.num_workers >= 0, "DataLoader", "num_workers must not be negative, got ", options_.num_workers);
  check<ValueError>(options_.num_workers == 0 || options_.prefetch >= 1, "DataLoader", "prefetch must be at least 1, got ",
                    options_.prefetch);
  check<ValueError>(!options_.sampler || options_.sampler->of() == dataset_->size(), "DataLoader",
                    "the sampler must be made for the data set's ", dataset_->size(), " samples, got one for ",
                    options_.sampler ? options_.sampler->of() : 0);
  const int64_t streams = dataset_->streams();
  const bool in_order = !options_.shuffle && !options_.sampler;
  check<ValueError>(streams == 0 || (in_order && options_.batch_size == streams), "DataLoader", "a data set of ", streams,
                    " streams must be read in order with batch_size ", streams, ", got batch_size ", options_.batch_size,
                    options_.shuffle ? " and shuffle" : options_.sampler ? " and a sampler" : "");
  check<ValueError>(options_.ranks >= 1 && options_.rank >= 0 && options_.rank < options_.ranks, "DataLoader",
                    "rank must lie in [0, ranks), got ", options_.rank, " of ", options_.ranks);
  check<ValueError>(streams == 0 || options_.ranks == 1, "DataLoader", "a data set of streams cannot be read by ", options_.ranks,
                    " ranks: each stream continues where its last batch ended, in one process");
  check<ValueError>(size() > 0, "DataLoader", "the data set gives no batch: it has ", samples(), " samples, batch_size is ",
                    options_.batch_size, options_.drop_last ? " and drop_last is set" : "");
}

DataLoader::~DataLoader() = default;
DataLoader::DataLoader(DataLoader&&) noexcept = default;
DataLoader& DataLoader::operator=(DataLoader&&) noexcept = default;

int64_t DataLoader::size() const {
  const int64_t n = samples(), b = options_.batch_size;
  return n / b + (!options_.drop_last && n % b != 0 ? 1 : 0);
}

void DataLoader::set_state(LoaderState state) {
  check<ValueError>(state.epoch >= 0 && state.next_batch >= 0 && state.next_batch <= size(), "DataLoader",
                    "a state must have epoch >= 0 and next_batch in [0, ", size(), "], got ", state.epoch, " and ",
                    state.next_batch);
  prefetcher_.reset();
  state_ = state;
  resumed_ = true;
}

std::optional<Batch> DataLoader::next() {
  if (state_.next_batch == size()) {
    prefetcher_.reset();
    state_ = {state_.epoch + 1, 0};
    resumed_ = true;
    return {};
  }
  prepare_order();
  const auto start = std::chrono::steady_clock::now();
  if (options_.num_workers > 0 && !lane_ && !options_.device.is_cpu()) lane_ = backend_for(options_.device).open_upload_lane();
  const Plan plan{dataset_, order_, options_.batch_size, state_.epoch, options_.rank, options_.ranks, options_.device, lane_};
  Batch batch;
  if (options_.num_workers == 0) {
    batch = send(plan.make(state_.next_batch), options_.device, nullptr).batch;
  } else {
    if (!prefetcher_) {
      prefetcher_ = std::make_unique<Prefetcher>(plan, state_.next_batch, size(), options_.num_workers, options_.prefetch);
    }
    try {
      batch = prefetcher_->take();
    } catch (...) {
      prefetcher_.reset();
      throw;
    }
  }
  wait_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  part_ = plan.part(state_.next_batch);
  ++state_.next_batch;
  resumed_ = false;
  return batch;
}

DataLoader::Iterator DataLoader::begin() {
  if (!resumed_ && state_.next_batch > 0) {
    prefetcher_.reset();
    state_ = {state_.epoch + 1, 0};
  }
  return Iterator(this);
}

BatchRows part_of(int64_t total, int rank, int ranks) {
  const int64_t each = total / ranks, longer = total % ranks;
  return {rank * each + std::min<int64_t>(rank, longer), each + (rank < longer ? 1 : 0), total};
}

void DataLoader::prepare_order() {
  if (order_epoch_ == state_.epoch || (order_ && !options_.shuffle && !options_.sampler)) return;
  std::vector<int64_t> order;
  if (options_.sampler) {
    order = options_.sampler->order(options_.seed, state_.epoch);
  } else if (options_.shuffle) {
    order = permutation(dataset_->size(), options_.seed, uint64_t(state_.epoch));
  } else {
    order.resize(size_t(dataset_->size()));
    for (size_t i = 0; i < order.size(); ++i) order[i] = int64_t(i);
  }
  order_ = std::make_shared<const std::vector<int64_t>>(std::move(order));
  order_epoch_ = state_.epoch;
}

}  // namespace halfstep
