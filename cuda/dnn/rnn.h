// SPDX-License-Identifier: Apache-2.0
// Recurrent networks by cuDNN. The contracts are those of RecurrentLibrary (framework/backend/recurrent_library.h).
//
// The first call of a kind also creates what the library keeps for it, such as its own streams; in a recording that throws
// NotPrepared.
#pragma once

#include "cuda/kernels/kernels.h"
#include "framework/backend/recurrent_library.h"

namespace halfstep::cuda::dnn {

std::optional<RecurrentSpaces> recurrent_spaces(const Queue& q, const RecurrentArgs& args);
bool recurrent(const Queue& q, const RecurrentArgs& args, const RecurrentTensors& tensors);
bool recurrent_backward(const Queue& q, const RecurrentArgs& args, const RecurrentTensors& tensors,
                        const RecurrentGradients& grads);

}  // namespace halfstep::cuda::dnn
