// SPDX-License-Identifier: Apache-2.0
// Batches without their C++ type, as the engine of DataLoader reads them. loader.h has the sources of each kind of data set.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "framework/tensor/tensor.h"

namespace halfstep {

// One pass over a stream of samples.
class BatchStream {
 public:
  struct StreamBatch {
    std::shared_ptr<void> batch;  // null: the stream has ended
    int64_t rows = 0;
  };
  virtual ~BatchStream() = default;
  // Returns a batch of the next `samples` samples; at the end, of fewer, or with full_only of none.
  virtual StreamBatch next(int64_t samples, bool full_only) = 0;
  // Reads the next `samples` samples and drops them.
  virtual void skip(int64_t samples) = 0;
};

// A data set whose batches have no C++ type. Const functions are thread-safe.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual int64_t size() const = 0;  // samples; 0 for a stream
  virtual bool is_stream() const { return false; }
  virtual int64_t parallel_streams() const { return 0; }  // as Dataset::streams
  virtual bool draws_numbers() const { return false; }    // whether batches depend on the seed of Draw
  virtual bool may_give_views() const { return false; }   // whether batches may share memory with the data set
  // Seed, epoch and repeats (Dataset::batch): besides the samples, the random numbers of a batch depend on these.
  struct Draw {
    uint64_t seed;
    int64_t epoch;
    std::span<const int64_t> repeats;
    // Returns how often the sample of a row was drawn before in the epoch.
    int64_t before(size_t row) const { return repeats.empty() ? 0 : repeats[row]; }
  };
  // Returns the batch of these samples, a pure function of the arguments.
  virtual std::shared_ptr<void> make(std::span<const int64_t> indices, const Draw& draw) const = 0;
  // Returns a batch without samples: its tensors are undefined.
  virtual std::shared_ptr<void> empty() const = 0;
  // Opens the stream of an epoch; null for a data set that is no stream.
  virtual std::unique_ptr<BatchStream> open(uint64_t /*seed*/, int64_t /*epoch*/) const { return nullptr; }
  // Calls f with each tensor of a batch.
  virtual void visit(void* batch, const std::function<void(Tensor&)>& f) const = 0;
  virtual bool can_visit() const { return true; }  // false for the user's own batch type
};

}  // namespace halfstep
