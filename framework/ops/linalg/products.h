// SPDX-License-Identifier: Apache-2.0
// Products of matrices for other ops: unrecorded with product(), recorded with dot_rows().
#pragma once

#include "framework/backend/backend.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

class OpContext;  // framework/ops/core/call.h

// Returns the row-wise dot products of [B, N] -> [B], or that of two vectors [N] -> []; recorded, autocast low.
Tensor dot_rows(const Tensor& a, const Tensor& b);

// Throws DTypeError unless all have one dtype other than bool.
void check_product_dtypes(std::string_view op, const Tensors& in);

// Throws ValueError unless beta and alpha are whole for a dtype of integers.
void check_factors(std::string_view op, DType dtype, double beta, double alpha);

// A sum that is computed along with a product, in `dtype`, or in the product's own if a kernel cannot write that.
struct ProductSum {
  Tensor* out = nullptr;  // null: not requested
  DType dtype = DType::f32;
};

// The further arguments of a product; GemmArgs (framework/backend/backend.h) describes them.
struct ProductExtras {
  Tensor bias = {};
  Activation activation = Activation::none;
  Tensor aux = {};
  bool derivative = false;
  bool b_is_weight = false;  // whether b returns in later calls: in InferenceMode it may be packed for them (packed_weights.h)
  ProductSum column_sum = {}, a_row_sum = {}, b_column_sum = {};
  bool aligned_rows = false;  // whether the rows of a matrix without activation may be as long as Backend::product_row says
};

// Returns a [B?, M, K] b [B?, K, N] in `out_dtype`.
Tensor product(const Tensor& a, const Tensor& b, DType out_dtype, const ProductExtras& extras = {});

// Returns x, or a contiguous copy if products cannot take its strides.
Tensor gemm_ready(const Tensor& x);

enum : size_t { kFirstFactor, kSecondFactor, kFactors };  // indices of the saved factors
// Saves the factors of a product for backward: each wanted gradient reads the other factor.
void save_factors(OpContext& ctx, const Tensor& a, const Tensor& b);

// Makes a matrix whose rows lie `row` elements apart.
Tensor empty_rows(const Shape& shape, int64_t row, const TensorOptions& options);

// Computes out = g f'(saved) of matrices, and the sums of out's columns if they are requested and the device adds them up there.
void activation_gradient(Unary op, const Tensor& g, const Tensor& saved, const Tensor& out, const ProductSum& sums);

// Returns the sums of the columns of x [M, N], [N], in `dtype`.
Tensor column_sums(const Tensor& x, DType dtype);

}  // namespace halfstep
