// SPDX-License-Identifier: Apache-2.0
// The backend's matrix products (GemmArgs of framework/backend/backend.h): by cuBLASLt if it has code, else by our own kernels.
// HALFSTEP_CUDA_BLAS=plain in the environment disables the library.
#pragma once

#include <string>
#include <vector>

#include "cuda/kernels/kernels.h"
#include "framework/backend/reports.h"

namespace halfstep::cuda {

// Returns each kind of product used since the last call, with its rung. Call it only in the thread of gemm().
std::vector<ProductReport> product_reports();

// Returns the layout of aux. ReLU: a bit for each element of c that is above 0 or NaN (there the gradient passes, as in PyTorch),
// u8 [rows, columns / 8] with columns rounded up to 128: bit column % 8 of byte column / 8. GELU: z in `dtype`, [rows, columns
// rounded up to 8]. Bits and elements past the last column are undefined.
AuxLayout activation_aux(Activation activation, int64_t rows, int64_t columns, DType dtype);

// Returns whether a ReLU before the last layer should write its mask. If not, the derivative reads the layer's output, which the
// next layer's weight gradient needs anyway. In 16 bits no version of the library that was measured writes a mask by our rule at 0,
// so that it took a pass of its own; float32 has the derivative in the epilogue of a product, which needs the mask.
bool wants_relu_mask(DType dtype);

// Returns the rows' length of Backend::product_row.
int64_t product_row(int64_t m, int64_t n, int64_t k, DType dtype);

// Returns "cuBLASLt 13.1.0", or why there is none.
std::string describe_blas();

// Makes the first product of each kind (shapes, dtypes, epilogue) of more than `gflop` GFLOP measure the library's candidates,
// fused and unfused. The fastest overrides the table of fusion.h, and tuning_cache.h stores it for later runs. 0: nothing is
// measured. Until the first call, the number in the environment's HALFSTEP_TUNE holds (1 suits most programs), or 0. Two runs
// that measure may choose differently, and then differ in the last bits.
void set_gemm_tuning(double gflop);

}  // namespace halfstep::cuda
