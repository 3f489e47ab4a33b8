// SPDX-License-Identifier: Apache-2.0
// What computing a step changes, and its way back: for code that computes a step again and must leave nothing behind.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "framework/base/dtype.h"
#include "framework/base/generator.h"
#include "layers/module/module.h"
#include "layers/sequences/recurrent.h"

namespace halfstep {

// The buffers of a module, the states that its recurrent layers keep, and the default generator, as they are now.
class StepStates {
 public:
  explicit StepStates(Module& module);
  void put_back() const;  // of layers that were given other memory for their kept states since
  // With kept states in the dtype of the layers that will read them (nothing: float32), and in memory of their own.
  void put_back_for(std::optional<DType> low) const;

 private:
  void put_back_all_but_kept() const;
  Generator::State random_;
  std::vector<std::pair<Tensor, Tensor>> buffers_;  // and their values
  struct Kept {
    RecurrentLayer* layer;
    RecurrentLayer::Kept handles, values;  // a layer writes its next state where the last one is
  };
  std::vector<Kept> kept_;
};

// While it lives, a module has no gradients, its kept states are as put_back_for(low) leaves them, and the default generator is at
// `random`. Afterwards all of that is as it was.
class StateGuard {
 public:
  [[nodiscard]] StateGuard(Module& module, std::optional<DType> low, const Generator::State& random);
  ~StateGuard();
  StateGuard(const StateGuard&) = delete;

 private:
  StepStates states_;
  struct Gradient {
    Tensor parameter, values;
    bool scaled, mixed;  // by a loss scale (framework/autograd/scaled_backward.h)
  };
  std::vector<Gradient> gradients_;
};

}  // namespace halfstep
