// SPDX-License-Identifier: Apache-2.0
// Restores what a forward changes besides gradients if the step is skipped:
// Buffers, such as running statistics, get back their values from before the step. (PyTorch keeps the infinite activations of a
// skipped step in them.) The states of stateful recurrent layers advance with the data, also if only the backward overflowed; one
// that is not finite gets back its value from before the step, since it would make every later step overflow.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "framework/base/guard.h"
#include "layers/module/module.h"
#include "layers/sequences/recurrent.h"

namespace halfstep {

class StateRollback {
 public:
  explicit StateRollback(Module& module) : module_(module) {}  // must outlive it

  void save();  // call before a step's first forward
  // Call after the step. Restores the buffers if it was skipped, and in any case states that are not finite, by selects on the
  // device. found_inf: the step was skipped if it is not 0; undefined: it was applied.
  void restore_after_step(const Tensor& found_inf);

  // Restores the state of the last save() while it lives, for code that computes the step again.
  class Rewound : LocalGuard {
   public:
    [[nodiscard]] explicit Rewound(StateRollback& states) : states_(states) { states_.exchange(); }
    ~Rewound() { states_.exchange(); }

   private:
    StateRollback& states_;
  };

 private:
  void exchange();  // swaps current and saved values
  // `before` is kept from step to step, so that only buffers that have changed since are copied, and a buffer that changes again
  // after steps in which it did not, such as frozen statistics, is noticed.
  struct Buffer {
    Tensor tensor;
    Tensor before = {};                    // values before the step
    uint64_t version = 0;                  // and its version
    std::shared_ptr<Storage> memory = {};  // memory to which the version belongs
    bool moves = true;                     // the last step wrote to it: a recording of steps then copies it at any version
    bool changed() const { return tensor.version() != version || tensor.storage() != memory || memory->is_exposed(); }
  };
  struct LayerState {
    RecurrentLayer* layer;
    RecurrentLayer::KeptState before;
  };
  Module& module_;
  std::optional<std::vector<Buffer>> buffers_;  // since the first save()
  bool has_stateful_layers_ = false;
  std::vector<LayerState> layer_states_;  // of the step in progress
  bool open_ = false;                     // a step is in progress
};

}  // namespace halfstep
