// SPDX-License-Identifier: Apache-2.0
// Products without recording, for the ops that are made of them.
#pragma once

#include "framework/backend/backend.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

class OpContext;  // framework/ops/core/call.h

// The sums a b of the rows of [B, N] -> [B], or of two vectors [N] -> []: recorded, autocast low.
Tensor dot_rows(const Tensor& a, const Tensor& b);

// Products take one dtype for all, and not bool.
void check_product_dtypes(std::string_view op, const Tensors& in);

// Integer tensors take whole factors only.
void check_factors(std::string_view op, DType dtype, double beta, double alpha);

// A sum that comes with a product: made in `dtype`, or in the product's own where a kernel cannot write that.
struct ProductSum {
  Tensor* out = nullptr;  // null: not wanted
  DType dtype = DType::f32;
};

// As in GemmArgs.
struct ProductExtras {
  Tensor bias = {};
  Activation activation = Activation::none;
  Tensor aux = {};
  bool derivative = false;
  bool b_is_weight = false;  // b comes again in later calls: in InferenceMode it may be packed for them (packed_weights.h)
  ProductSum column_sum = {}, a_row_sum = {}, b_column_sum = {};
};

// a [B?, M, K] b [B?, K, N] in `out_dtype`.
Tensor product(const Tensor& a, const Tensor& b, DType out_dtype, const ProductExtras& extras = {});

// x, or a contiguous copy where its strides are not for products.
Tensor gemm_ready(const Tensor& x);

// Saves the factors of a product for its backward: each gradient reads the other factor, where it is wanted.
enum : size_t { kFirstFactor, kSecondFactor, kFactors };  // their places
void save_factors(OpContext& ctx, const Tensor& a, const Tensor& b);

// [N]: the sums of the columns of x [M, N], in `dtype`.
Tensor column_sums(const Tensor& x, DType dtype);

}  // namespace halfstep
