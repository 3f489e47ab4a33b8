// SPDX-License-Identifier: Apache-2.0
// Calls of every op by name, with its cases' arguments damaged one after the other and at random. HALFSTEP_OP=part restricts them
// to some ops, HALFSTEP_FUZZ_RANDOM=N makes N random calls an op.
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

// Every tensor of a call, list members included.
std::vector<Tensor*> slots(Call& c);

// The same calls in every run, the undamaged ones among them.
void for_damaged_calls(const std::function<void(const Call& call, bool with_gradient)>& make);

// The calls of all cases with nothing along a dimension: of one input, of all inputs, or all dimensions of that size.
void for_empty_calls(const std::function<void(const Call& call)>& make);

// The outputs of a call; with_gradient: then the gradients of its floating inputs, all of them leaves (undefined where there is
// none).
Tensors run(const Call& call, bool with_gradient);

// Tensors that would hold a gibibyte more than now get a MemoryError while this lives. Other memory is refused by the system, or,
// where a sanitizer maps terabytes for itself, by the sanitizer: a block of more than 1280 MiB, as its options in ctest say.
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
