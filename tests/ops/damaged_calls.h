// SPDX-License-Identifier: Apache-2.0
// Calls every op by name, with its cases' arguments damaged systematically and at random. HALFSTEP_OP=part restricts it to some
// ops, HALFSTEP_FUZZ_RANDOM=N makes N random calls for each op.
#pragma once

#include <sys/resource.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "framework/ops/core/registry.h"
#include "halfstep.h"

namespace halfstep::testing {

struct Call {
  std::string op;
  std::vector<TensorArgument> tensors;
  nlohmann::json attrs = nlohmann::json::object();

  std::string str() const;
};

// Returns every tensor of a call, list members included.
std::vector<Tensor*> slots(Call& c);

// Makes damaged and undamaged calls, the same in every run.
void for_damaged_calls(const std::function<void(const Call& call, bool with_gradient)>& make);

// Makes the calls of all cases with an empty dimension: of one input, of all inputs, or all dimensions.
void for_empty_calls(const std::function<void(const Call& call)>& make);

// Returns the outputs of a call; with_gradient: followed by the gradients of its floating inputs, all of them leaves (undefined if
// there is none).
Tensors run(const Call& call, bool with_gradient);

// Makes tensors that would exceed current memory by a gibibyte throw MemoryError while it lives. The system limits other memory,
// or, if a sanitizer reserves terabytes for itself, the sanitizer: blocks above 1280 MiB, by its options in ctest.
class MemoryLimit {
 public:
  MemoryLimit();
  ~MemoryLimit();
  bool bounds_all() const { return bounds_all_; }  // false: of the allocator's memory only, as QEMU's user mode has no such limit
  MemoryLimit(const MemoryLimit&) = delete;

 private:
  rlimit saved_;
  bool bounds_all_ = true;
};

}  // namespace halfstep::testing
