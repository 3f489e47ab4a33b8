// SPDX-License-Identifier: Apache-2.0
// What a module's forward depends on besides its input and the values of its tensors.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "layers/module/module.h"

namespace halfstep {

class RunningNorm;

// For recordings, which run no code of the module: its modules and tensors, and of each module the mode, the precision, whether it
// is recomputed, and of normalisations what their setters change. A module whose own members change its forward, and that
// describe() does not show, is not seen.
class ModuleSettings {
 public:
  // Notes what the module has now. Only the last module that was noted may be passed to have_changed; it must live.
  void note(const Module& module);
  // Returns whether anything differs from what was noted. Makes no lists unless modules or tensors were assigned somewhere.
  bool have_changed(const Module& module);

 private:
  struct State {
    bool training, recomputes, syncs;
    std::optional<DType> precision;
    std::optional<double> momentum;
    bool operator==(const State&) const = default;
  };
  struct Noted {
    const Module* module;
    std::weak_ptr<const Module> life;  // empty for the root; else no other module may have its address
    const RunningNorm* norm;           // the module, if it is one
    State state;
  };
  static State state_of(const Module& module, const RunningNorm* norm);
  static std::vector<Tensor> tensors_of(const Module& module);

  std::vector<Noted> modules_;  // in the order of visit()
  uint64_t assignments_ = 0;    // when this was noted:
  std::string text_;            // the options, as describe() shows them
  std::vector<Tensor> tensors_;
};

}  // namespace halfstep
