// The parameters of a recurrent network in one tensor, where the device's library wants each of them.
#pragma once

#include <span>

#include "framework/backend/recurrent_library.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

// Parameter i of `space`, a tensor [spaces.weights].
Tensor part_of(const Tensor& space, const RecurrentSpaces& spaces, size_t i, const Shape& shape);

// [spaces.weights]: the memory that the parameters lie in where each is in its place there, else a copy of them. `given`: the
// parameters before a region cast them to 16 bits. Their kept copies (Shadow) move into the new tensor, so that the next call finds
// them in place, and the optimizer, which writes each with its parameter, keeps the whole up to date.
Tensor weight_space(const RecurrentSpaces& spaces, std::span<const Tensor> parameters, std::span<const Tensor> given);

}  // namespace halfstep
