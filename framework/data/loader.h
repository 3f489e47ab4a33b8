// SPDX-License-Identifier: Apache-2.0
// Batches of a data set, epoch after epoch, in a seeded order that can be saved and taken up again at any batch.
#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "framework/base/draws.h"
#include "framework/data/dataset.h"
#include "framework/data/sampler.h"

namespace halfstep {

class UploadLane;  // framework/backend/backend.h

struct LoaderOptions {
  int64_t batch_size = 1;
  bool shuffle = false;
  std::shared_ptr<const Sampler> sampler = {};  // decides on the order in place of shuffle
  bool drop_last = false;  // leave out a last batch that is not full
  uint64_t seed = 0;       // of the order
  int num_workers = 0;     // background threads that make batches; 0: made when asked for
  int prefetch = 2;        // batches made ahead at most, when there are workers
  int rank = 0, ranks = 1;  // of several processes that read the same batches: this one gets its part of each
  Device device = Device::cpu;  // where batches are handed out. Workers bring them there themselves, beside the device's work
};

// The position: batches [0, next_batch) of `epoch` were handed out.
struct LoaderState {
  int64_t epoch = 0;
  int64_t next_batch = 0;
  bool operator==(const LoaderState&) const = default;
};

// One pass of a range-for is one epoch:
//   for (auto& [x, target] : loader) ...
// The order of an epoch is permutation(size, seed, epoch), or the sampler's, whatever the workers. A pass begins where set_state
// put the loader; otherwise at the start of an epoch, the next one when the last pass was left early. Not thread-safe itself.
//
// With `ranks`, batch_size is that of the whole batch, and rank r hands out rows part_of(rows of the batch, r, ranks): all ranks
// together read the batches of one process. A part may be empty; then the batch has undefined tensors. Positions are those of whole
// batches, so that a saved one fits any number of ranks.
class DataLoader {
 public:
  // Throws ValueError for options out of range and for a data set that gives no batch.
  explicit DataLoader(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options = {});
  ~DataLoader();
  DataLoader(DataLoader&&) noexcept;
  DataLoader& operator=(DataLoader&&) noexcept;

  int64_t size() const;  // batches an epoch
  const Dataset& dataset() const { return *dataset_; }
  const LoaderOptions& options() const { return options_; }

  // The next batch of the epoch, or nothing when it is over: then the state is {epoch + 1, 0}. Rethrows an exception of the data
  // set for this batch; the next call tries the same batch again.
  std::optional<Batch> next();

  // Which rows of the whole batch the last one is.
  const BatchRows& part() const { return part_; }

  // Counts batches handed out, not those made ahead. After the last batch of an epoch: {epoch, size()}, until the end is seen.
  LoaderState state() const { return state_; }
  void set_state(LoaderState state);  // throws ValueError unless 0 <= next_batch <= size()

  double wait_seconds() const { return wait_seconds_; }  // time spent waiting for batches so far

  struct Sentinel {};
  class Iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using iterator_category = std::input_iterator_tag;
    explicit Iterator(DataLoader* loader) : loader_(loader) { ++*this; }
    Batch& operator*() { return *current_; }
    Batch* operator->() { return &*current_; }
    Iterator& operator++() {
      current_.reset();  // gives its memory back before the next batch takes some
      current_ = loader_->next();
      return *this;
    }
    bool operator==(Sentinel) const { return !current_; }

   private:
    DataLoader* loader_;
    std::optional<Batch> current_;
  };
  Iterator begin();
  Sentinel end() { return {}; }

 private:
  class Prefetcher;
  int64_t samples() const { return options_.sampler ? options_.sampler->size() : dataset_->size(); }  // an epoch
  void prepare_order();

  std::shared_ptr<const Dataset> dataset_;
  LoaderOptions options_;
  LoaderState state_;
  bool resumed_ = true;                                // the state was set from outside since the last batch
  std::shared_ptr<const std::vector<int64_t>> order_;  // of epoch order_epoch_
  int64_t order_epoch_ = -1;
  std::shared_ptr<UploadLane> lane_;  // of the workers, where the device has one
  std::unique_ptr<Prefetcher> prefetcher_;
  BatchRows part_;
  double wait_seconds_ = 0;
};

// Nearly equal parts of `total` rows, the larger ones first.
BatchRows part_of(int64_t total, int rank, int ranks);

}  // namespace halfstep
