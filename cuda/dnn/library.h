// SPDX-License-Identifier: Apache-2.0
// Runs work by cuDNN: its handle, the plans made so far, and the choice among them.
//
// A kind of work is found by its key. The first call of a kind makes the plans, or finds that the library declines; a recording
// cannot do that, so unprepared work throws NotPrepared. A recording keeps the plans whose kernels it replays, which may have been
// compiled for them. With DnnOptions::benchmark the first call of a kind also times the first
// few plans and the alternative without the library, and keeps the fastest; cuda/blas/tuning_cache.h stores it for later runs. If
// the device has no memory for a plan's workspace, plans that need less are used from then on; if there are none, the library
// declines.
#pragma once

#include <functional>
#include <mutex>

#include "cuda/dnn/cache.h"
#include "cuda/dnn/plan.h"
#include "cuda/kernels/kernels.h"

namespace halfstep::cuda::dnn {

// A piece of work for the library.
struct Work {
  const char* name;  // for the log
  PlanKey key;       // everything on which its graph depends, including the name
  Rules rules;
  std::function<std::unique_ptr<OpGraph>()> graph;
  std::vector<void*> memory;            // of the graph's tensors, in their order
  std::function<void()> alternative{};  // the same work in another way, to be timed; null: nothing is timed
  std::function<void()> copies{};       // what has run before for the library's way alone, timed with it
  bool is_only_way = false;             // whether nothing else can do it, so that a lack of memory is an error
};

// slower: nothing was computed, because the library's way took longer than the alternative.
enum class Outcome : uint8_t { computed, declined, slower };

class Library {
 public:
  // Returns the library, or null if there is none that works on this device, which the log says once. Throws NotPrepared if a
  // recording would be its first use.
  static Library* find(const Queue& q);

  // Makes the plans for the work, and returns whether there is one; it may still be refused when it runs. Throws NotPrepared.
  bool prepares(const Queue& q, const Work& work);
  // Runs the work. Does nothing unless the result is `computed`. Throws NotPrepared, and MemoryError for work that nothing else can
  // do.
  Outcome run(const Queue& q, const Work& work);

  // Returns the handle, set to the queue's stream, for calls that are not graphs. Hold the mutex.
  cudnnHandle_t handle(const Queue& q);
  std::recursive_mutex mutex;

 private:
  struct Entry {
    std::shared_ptr<Plans> plans;  // null: declined; recordings keep those whose work they replay
    bool slower = false;
  };
  explicit Library(cudnnHandle_t handle) : handle_(handle), target_(Target::of(handle)) {}
  static Library* create();
  Entry& prepare(const Queue& q, const Work& work);
  void tune(const Queue& q, const Work& work, Entry& entry);
  bool restrict_workspace(const Work& work, Entry& entry, int64_t workspace);
  cudnnStatus_t execute(const Queue& q, const Work& work, const Entry& entry, const Plan& plan);

  cudnnHandle_t handle_;
  Target target_;
  Cache<Entry> cache_;
};

// Returns whether another plan may work after this one returned such a status.
bool is_refusal(cudnnStatus_t status);

}  // namespace halfstep::cuda::dnn
