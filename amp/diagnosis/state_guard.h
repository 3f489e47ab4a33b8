// SPDX-License-Identifier: Apache-2.0
// Saves and restores the state that computing a step changes, for code that computes a step again.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "framework/base/dtype.h"
#include "framework/base/generator.h"
#include "framework/base/guard.h"
#include "layers/module/module.h"
#include "layers/sequences/recurrent.h"

namespace halfstep {

// A snapshot of a module's buffers, of the states that its recurrent layers keep, and of the default generator.
class StepStates {
 public:
  explicit StepStates(Module& module);
  void put_back() const;  // also into layers whose kept states have moved to other memory
  // Restores them with kept states in the dtype of the layers that will read them (unset: float32), and in separate memory.
  void put_back_for(std::optional<DType> low) const;

 private:
  void put_back_all_but_kept() const;
  Generator::State random_;
  std::vector<std::pair<Tensor, Tensor>> buffers_;  // with their values
  struct LayerState {
    RecurrentLayer* layer;
    RecurrentLayer::KeptState handles, values;  // both, as a layer writes its next state in place of the last
  };
  std::vector<LayerState> kept_;
};

// Gives a module, while it lives, no gradients, the kept states of put_back_for(low), and the default generator at `random`.
// Restores all of that afterwards.
class StateGuard : LocalGuard {
 public:
  [[nodiscard]] StateGuard(Module& module, std::optional<DType> low, const Generator::State& random);
  ~StateGuard();

 private:
  StepStates states_;
  struct SavedGradient {
    Tensor parameter, values;
    bool scaled, mixed;  // by a loss scale (framework/autograd/scaled_backward.h)
  };
  std::vector<SavedGradient> gradients_;
};

}  // namespace halfstep
