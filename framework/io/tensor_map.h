// SPDX-License-Identifier: Apache-2.0
// Tensors by name, as files and checkpoints hold them.
#pragma once

#include <map>
#include <string>

#include "framework/tensor/tensor.h"

namespace halfstep {

using TensorMap = std::map<std::string, Tensor>;

// `t` itself when it is contiguous on the host, else a contiguous host copy. No autograd.
Tensor host_contiguous(const Tensor& t);

}  // namespace halfstep
