// SPDX-License-Identifier: Apache-2.0
// The CPU's kernels, a free function for each row of framework/backend/kernels.def, defined in the file of its family.
#pragma once

#include "framework/backend/backend.h"

namespace halfstep::cpu {

#define HS_KERNEL(name, parameters, arguments) PlainFunction<void parameters>::type name;
#include "framework/backend/kernels.def"

AuxLayout packed_layout(int64_t k, int64_t n, DType dtype);
void pack(const TensorView& b, const TensorView& packed);
bool gains_by_packing(int64_t rows, int64_t k, int64_t n, DType dtype);
ConvWeightLayout laid_weight_layout(const ConvArgs& args);
void lay_weight(const ConvArgs& args, const TensorView& weight, const TensorView& laid);
void conv_laid(const ConvArgs& args, const TensorView& laid);
int64_t parallel_chunks(int64_t rows, int64_t multiplications, DType dtype);

int64_t check_targets(const TensorView& target, int64_t classes, int64_t ignore_index);
int64_t check_indices(const TensorView& index, int64_t size);

}  // namespace halfstep::cpu
