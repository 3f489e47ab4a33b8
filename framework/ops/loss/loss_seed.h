// A loss that knows beforehand which gradient its backward will start from may take its own in the pass that computes its value.
#pragma once

#include "framework/tensor/tensor.h"

namespace halfstep {

// While it lives, losses of this thread expect `seed`: backward called with that very tensor, unchanged, finds the gradient
// made. With any other it is computed then, as always.
class LossSeed {
 public:
  explicit LossSeed(Tensor seed);  // 0-dim; undefined: no expectation
  ~LossSeed();
  LossSeed(const LossSeed&) = delete;
  static const Tensor& expected();

 private:
  Tensor saved_;
};

}  // namespace halfstep
