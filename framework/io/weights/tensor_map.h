// SPDX-License-Identifier: Apache-2.0
// Tensors by name, as in files and checkpoints.
#pragma once

#include <map>
#include <string>

#include "framework/tensor/tensor.h"

namespace halfstep {

using TensorMap = std::map<std::string, Tensor>;

// An entry of a file that halfstep cannot represent.
struct UnreadTensor {
  std::string name;
  std::string what;   // "complex64", "a sparse tensor", "the Python object numpy.ndarray"
  std::string fault;  // reason and remedy, for an error
  Shape shape{};      // as far as known
  bool is_tensor = true;
};

// Returns `t` itself if it is contiguous on the host, else a contiguous host copy, without autograd.
Tensor host_contiguous(const Tensor& t);

}  // namespace halfstep
