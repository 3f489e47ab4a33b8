// SPDX-License-Identifier: Apache-2.0
// What a forward changes beside the gradients, and what becomes of it where the gradient scaler skips the step:
//   Buffers, such as running statistics, get back the values that they had before the step. PyTorch lets infinite activations of a
//   skipped step into them.
//   The states that stateful recurrent layers keep move on with the data, also when only the backward overflowed. One that is not
//   finite gets back its values from before the step: it would make every later step overflow.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "layers/module/module.h"
#include "layers/sequences/recurrent.h"

namespace halfstep {

class StateRollback {
 public:
  explicit StateRollback(Module& module) : module_(module) {}  // which must outlive it

  void save();  // before a step's first forward
  // After the step, by selects on the device. `found_inf`: not 0 where the step was skipped; undefined: it was applied.
  void settle(const Tensor& found_inf);

  // While it lives, all is as it was at the last save(): for what computes the step again.
  class Rewound {
   public:
    [[nodiscard]] explicit Rewound(StateRollback& states) : states_(states) { states_.exchange(); }
    ~Rewound() { states_.exchange(); }
    Rewound(const Rewound&) = delete;

   private:
    StateRollback& states_;
  };

 private:
  void exchange();  // what is for what was
  // `before` stays from step to step, so that only buffers that have changed since it was made are copied, and one that moves again
  // after steps in which it did not, such as statistics that were frozen, is known.
  struct Buffer {
    Tensor tensor;
    Tensor before = {};    // its values before the step
    uint64_t version = 0;  // and its version
    std::shared_ptr<Storage> memory = {};  // which the version is of
    bool moves = true;  // did the last step write to it? A recording of steps copies it then, whatever its version
    bool changed() const { return tensor.version() != version || tensor.storage() != memory || memory->is_exposed(); }
  };
  struct Kept {
    RecurrentLayer* layer;
    RecurrentLayer::Kept before;
  };
  Module& module_;
  std::optional<std::vector<Buffer>> buffers_;  // since the first save()
  bool any_stateful_ = false;
  std::vector<Kept> kept_;  // of the step that is under way
  bool open_ = false;       // is there one?
};

}  // namespace halfstep
