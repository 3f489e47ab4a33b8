// SPDX-License-Identifier: Apache-2.0
// A call of a module with other tensors in place of parameters and buffers: torch.func.functional_call.
//
//   Tensor y = functional_call(net, {{"fc.weight", w}, {"fc.bias", b}}, x);
//   auto [out, state] = functional_call(lstm, params, x, state);   // params: named_parameters(), a StateDict or a map
#pragma once

#include <concepts>
#include <memory>
#include <utility>
#include <vector>

#include "layers/module/parametrize.h"
#include "layers/module/part.h"

namespace halfstep {

// The module has these tensors in place of its own while it lives.
class Substitution {
 public:
  [[nodiscard]] Substitution(Module& module, const NamedTensors& tensors);
  ~Substitution();
  Substitution(const Substitution&) = delete;

 private:
  std::vector<std::pair<std::shared_ptr<TensorSlot>, Tensor>> before_;
};

// module(arguments), where parameters and buffers of these names are the given tensors, and a tensor that the module has under
// several names is replaced under all of them. Results have gradients for the given tensors, also when those were computed. Of
// parameters with parametrizations the originals can be given. Afterwards, also after an exception, the module is as it was;
// buffers that forward writes in place are written in the given tensors. Threads must not call the same module meanwhile. Throws
// ValueError for a name that the module does not have, for an undefined tensor and for two tensors in place of one; and for modules
// that recompute in backward, where the tensors would be the module's own again. For the same reason forward must not use
// checkpoint().
template <class M, class... Args>
auto functional_call(M&& module, const NamedTensors& tensors, Args&&... arguments) {
  const Substitution given(module_in(module), tensors);
  return module(std::forward<Args>(arguments)...);
}

}  // namespace halfstep
