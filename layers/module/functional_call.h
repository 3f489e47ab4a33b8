// SPDX-License-Identifier: Apache-2.0
// Calls a module with other tensors in place of its parameters and buffers: torch.func.functional_call.
//
//   Tensor y = functional_call(net, {{"fc.weight", w}, {"fc.bias", b}}, x);
//   auto [out, state] = functional_call(lstm, params, x, state);   // params: named_parameters(), a StateDict or a map
#pragma once

#include <concepts>
#include <memory>
#include <utility>
#include <vector>

#include "framework/base/guard.h"
#include "layers/module/parametrize.h"
#include "layers/module/part.h"

namespace halfstep {

// Replaces tensors of the module while it lives.
class Substitution : LocalGuard {
 public:
  [[nodiscard]] Substitution(Module& module, const NamedTensors& tensors);
  ~Substitution();

 private:
  std::vector<std::pair<std::shared_ptr<TensorSlot>, Tensor>> before_;  // slots, and the module's own tensors
};

// Computes module(arguments) with the given tensors in place of the parameters and buffers of these names; a tensor that has
// several names in the module is replaced under all of them. Gradients flow to the given tensors. For a parameter with
// parametrizations, its originals can be given. Afterwards, also after an exception, the module is as before; buffers that forward
// writes in place are written in the given tensors. Threads must not call the same module meanwhile. Throws ValueError for an
// unknown name, for an undefined tensor, for two tensors in place of one, and for modules that recompute in backward, where the
// module's own tensors would be used again. For the same reason forward must not use checkpoint().
template <class M, class... Args>
auto functional_call(M&& module, const NamedTensors& tensors, Args&&... arguments) {
  const Substitution given(module_in(module), tensors);
  return module(std::forward<Args>(arguments)...);
}

}  // namespace halfstep
