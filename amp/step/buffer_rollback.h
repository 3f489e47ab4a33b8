// SPDX-License-Identifier: Apache-2.0
// Buffers that forward writes to, such as running statistics, move with applied steps only: where the gradient scaler skips a step,
// they get back the values that they had before it. PyTorch lets infinite activations of a skipped step into them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "layers/module.h"

namespace halfstep {

class BufferRollback {
 public:
  explicit BufferRollback(Module& module) : module_(module) {}  // which must outlive it

  void save();  // before a step's first forward
  // After the step: puts the saved values back where `found_inf` is not 0, by a select on the device. Undefined: the step was
  // applied.
  void restore_if(const Tensor& found_inf);

 private:
  struct Buffer {
    Tensor tensor;
    Tensor before = {};    // its values before the step
    uint64_t version = 0;  // and its version
    bool moves = true;     // did the last step write to it? If not, the next one does not save it
  };
  Module& module_;
  std::optional<std::vector<Buffer>> buffers_;  // since the first save()
};

}  // namespace halfstep
