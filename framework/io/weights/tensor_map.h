// SPDX-License-Identifier: Apache-2.0
// Tensors by name, as files and checkpoints hold them.
#pragma once

#include <map>
#include <string>

#include "framework/tensor/tensor.h"

namespace halfstep {

using TensorMap = std::map<std::string, Tensor>;

// An entry of a file that halfstep cannot have.
struct UnreadTensor {
  std::string name;
  std::string what;   // "complex64", "a sparse tensor", "the Python object numpy.ndarray"
  std::string fault;  // why, and what helps, for an error
  Shape shape{};      // as far as it is known
  bool is_tensor = true;
};

// `t` itself when it is contiguous on the host, else a contiguous host copy. No autograd.
Tensor host_contiguous(const Tensor& t);

}  // namespace halfstep
