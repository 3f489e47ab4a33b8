// SPDX-License-Identifier: Apache-2.0
// cuDNN at work: its handle, the plans that it has made, and the choice among them.
//
// A kind of work is found by its key. The first of its kind makes the plans, or finds that the library declines; in a recording
// that cannot be done, so that what is not prepared throws NotPrepared. With DnnOptions::benchmark the first of its kind also times
// the first few plans beside the way that is taken where the library declines, and the fastest is kept; cuda/blas/verdicts.h says
// where it is kept for later runs. A plan for whose workspace the device has no memory is left for those that take less, from then
// on; where there is none, the library declines.
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
  Key key;           // all that its graph depends on, the name too
  Rules rules;
  std::function<std::unique_ptr<Graph>()> graph;
  std::vector<void*> memory;          // of the graph's tensors, in their order
  std::function<void()> otherwise{};  // the same done without the library, to be timed; null: nothing is timed
  bool must = false;                  // nothing else can do it: a lack of memory is an error
};

// slower: the library would, but the other way was found faster.
enum class Done : uint8_t { yes, declined, slower };

class Library {
 public:
  // Null where there is none, or none that works on this device: a line of the log says so, once. Throws NotPrepared where it is
  // not at work yet.
  static Library* find(const Queue& q);

  // Whether the library takes it, as far as is known before it runs. Throws NotPrepared.
  bool prepares(const Queue& q, const Work& work);
  // Unless the result is `yes`, nothing is done. Throws NotPrepared, and MemoryError for work that must be done here.
  Done run(const Queue& q, const Work& work);

  // With the queue's stream, for calls that are not graphs. Hold the mutex.
  cudnnHandle_t handle(const Queue& q);
  std::recursive_mutex mutex;

 private:
  struct Entry {
    std::unique_ptr<Plans> plans;  // null: declined
    bool slower = false;
  };
  explicit Library(cudnnHandle_t handle) : handle_(handle), target_(Target::of(handle)) {}
  static Library* create();
  Entry& prepare(const Queue& q, const Work& work);
  void tune(const Queue& q, const Work& work, Entry& entry);
  bool narrow(const Work& work, Entry& entry, int64_t workspace);
  cudnnStatus_t execute(const Queue& q, const Work& work, const Entry& entry, const Plan& plan);

  cudnnHandle_t handle_;
  Target target_;
  Cache<Entry> cache_;
};

// Whether another plan may do where this one gave such a status.
bool is_refusal(cudnnStatus_t status);

}  // namespace halfstep::cuda::dnn
