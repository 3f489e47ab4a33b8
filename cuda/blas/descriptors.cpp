// SPDX-License-Identifier: Apache-2.0
// Converts views to the library's descriptors.
#include <algorithm>

#include "cuda/blas/matmul.h"
#include "cuda/runtime.h"
#include "framework/base/check.h"

namespace halfstep::cuda {
namespace {

// Returns the alignment in bytes, at most 256, which null has.
int64_t alignment(const void* p) {
  const auto address = reinterpret_cast<uintptr_t>(p);
  return address == 0 ? 256 : std::min<int64_t>(256, int64_t(address & (~address + 1)));
}

std::optional<cudaDataType> type_of(DType t) {
  switch (t) {
    case DType::f16: return CUDA_R_16F;
    case DType::bf16: return CUDA_R_16BF;
    case DType::f32: return CUDA_R_32F;
    case DType::f64: return CUDA_R_64F;
    default: return {};
  }
}

// An operand's layout for the library, which reads memory column-major: to it, an operand that is dense by rows is the transpose.
struct OperandLayout {
  bool transposed;  // whether the operand is dense by columns, so that the library must transpose it
  int64_t ld, rows, columns, batch = 1, batch_stride = 0;
};

// Returns nothing if the operand is dense neither by rows nor by columns.
std::optional<OperandLayout> operand_layout(const TensorView& v) {
  const int rank = v.shape.size();
  const int64_t rows = v.shape[rank - 2], columns = v.shape[rank - 1];
  const int64_t row_stride = v.strides[rank - 2], column_stride = v.strides[rank - 1];
  OperandLayout out{false, 0, rows, columns};
  const bool one_column_dense = columns == 1 && rows > 1 && row_stride == 1;  // with ld 1 it could not be read in packs
  if ((column_stride == 1 || columns == 1) && (rows == 1 || row_stride >= columns) && !one_column_dense) {
    out.ld = rows == 1 ? columns : row_stride;
  } else if ((row_stride == 1 || rows == 1) && (columns == 1 || column_stride >= rows)) {
    out.transposed = true;
    out.ld = columns == 1 ? rows : column_stride;
  } else {
    return {};
  }
  if (rank == 3) {
    out.batch = v.shape[0];
    out.batch_stride = out.batch > 1 ? v.strides[0] : 0;
  }
  return out;
}

cublasLtEpilogue_t epilogue_of(const GemmArgs& g) {
  if (g.derivative) {
    if (g.activation == Activation::relu) return g.column_sum ? CUBLASLT_EPILOGUE_DRELU_BGRAD : CUBLASLT_EPILOGUE_DRELU;
    return g.column_sum ? CUBLASLT_EPILOGUE_DGELU_BGRAD : CUBLASLT_EPILOGUE_DGELU;
  }
  const bool aux = bool(g.aux), bias = bool(g.bias);
  if (g.activation == Activation::relu) {
    if (aux) return bias ? CUBLASLT_EPILOGUE_RELU_AUX_BIAS : CUBLASLT_EPILOGUE_RELU_AUX;
    return bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
  }
  if (g.activation == Activation::gelu) {
    if (aux) return bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    return bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  }
  if (bias) return CUBLASLT_EPILOGUE_BIAS;
  if (g.b_column_sum) return CUBLASLT_EPILOGUE_BGRADA;  // its A is our b
  return g.a_row_sum ? CUBLASLT_EPILOGUE_BGRADB : CUBLASLT_EPILOGUE_DEFAULT;
}

}  // namespace

MatmulPointers matmul_pointers(const GemmArgs& g) {
  const TensorView* vector = &g.bias;
  for (const TensorView* v : {&g.column_sum, &g.a_row_sum, &g.b_column_sum})
    if (*v) vector = v;
  return {g.b.data, g.a.data, g.c.data, vector->data, g.aux.data};
}

std::optional<MatmulKey> matmul_key(const GemmArgs& g, size_t workspace) {
  const auto in = type_of(g.a.dtype), out = type_of(g.c.dtype);
  if (!in || !out || g.a.dtype != g.b.dtype || (g.c.dtype != g.a.dtype && !(is_half(g.a.dtype) && g.c.dtype == DType::f32)))
    return {};
  std::optional<OperandLayout> a = operand_layout(g.a), b = operand_layout(g.b);
  if (!a || !b) return {};
  // The rows of a batch that shares b are the rows of one product.
  if (a->batch > 1 && b->batch_stride == 0 && !a->transposed && a->batch_stride == a->rows * a->ld) {
    a->rows *= a->batch;
    a->batch = 1;
    a->batch_stride = 0;
  }
  const MatmulPointers p = matmul_pointers(g);
  // The rows of c are dense, except in a padded matrix.
  const bool padded = g.c.shape.size() == 2 && g.c.shape[0] > 1;
  const int64_t d_ld = padded ? g.c.strides[0] : b->columns;
  const bool mask = g.aux && g.activation == Activation::relu;
  const bool tf32 = allow_tf32() && (capability() >= 80 || capability() == 0);  // needs Ampere or later; 0: no GPU
  return MatmulKey{.m = b->columns,
                   .n = a->rows,
                   .k = b->rows,
                   .batch = a->batch,
                   .a_transposed = b->transposed,
                   .b_transposed = a->transposed,
                   .a_ld = b->ld,
                   .b_ld = a->ld,
                   .d_ld = d_ld,
                   .a_batch = b->batch_stride,
                   .b_batch = a->batch_stride,
                   .in = *in,
                   .out = *out,
                   .compute = g.a.dtype == DType::f64           ? CUBLAS_COMPUTE_64F
                              : g.a.dtype == DType::f32 && tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                : CUBLAS_COMPUTE_32F,
                   .epilogue = epilogue_of(g),
                   .accumulate = g.accumulate,
                   .aux_ld = g.aux ? g.aux.strides[0] * (mask ? 8 : 1) : 0,
                   .a_align = alignment(p.a),
                   .b_align = alignment(p.b),
                   .d_align = alignment(p.d),
                   .vector_align = alignment(p.vector),
                   .aux_align = alignment(p.aux),
                   .workspace = int64_t(workspace)};
}

MatmulDescriptors::MatmulDescriptors(const CublasLt& lt, const MatmulKey& key, const MatmulPointers& pointers)
    : lt_(lt), has_vector_(pointers.vector), has_aux_(pointers.aux) {
  try {
    create(key);
    point_to(pointers);
  } catch (...) {
    release();
    throw;
  }
}
MatmulDescriptors::~MatmulDescriptors() { release(); }

void MatmulDescriptors::create(const MatmulKey& key) {
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
    check_cublaslt(lt_.cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value),
                   "cublasLtMatmulDescSetAttribute");
  };
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check_cublaslt(lt_.cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
                   "cublasLtMatmulPreferenceSetAttribute");
  };
  const auto layout = [&](cublasLtMatrixLayout_t& to, int64_t type, int64_t rows, int64_t columns, int64_t ld, int64_t stride) {
    check_cublaslt(lt_.cublasLtMatrixLayoutCreate(&to, cudaDataType(type), uint64_t(rows), uint64_t(columns), ld),
                   "cublasLtMatrixLayoutCreate");
    if (key.batch == 1) return;
    const auto batch = int32_t(key.batch);
    check_cublaslt(lt_.cublasLtMatrixLayoutSetAttribute(to, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch),
                   "cublasLtMatrixLayoutSetAttribute");
    check_cublaslt(lt_.cublasLtMatrixLayoutSetAttribute(to, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride),
                   "cublasLtMatrixLayoutSetAttribute");
  };
  const bool wide = key.compute == CUBLAS_COMPUTE_64F;
  check_cublaslt(lt_.cublasLtMatmulDescCreate(&operation, cublasComputeType_t(key.compute), wide ? CUDA_R_64F : CUDA_R_32F),
                 "cublasLtMatmulDescCreate");
  set(CUBLASLT_MATMUL_DESC_TRANSA, int32_t(key.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N));
  set(CUBLASLT_MATMUL_DESC_TRANSB, int32_t(key.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N));
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t(key.epilogue));
  if (has_aux_) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, key.aux_ld);
  const bool ta = key.a_transposed, tb = key.b_transposed;
  layout(a, key.in, ta ? key.k : key.m, ta ? key.m : key.k, key.a_ld, key.a_batch);
  layout(b, key.in, tb ? key.n : key.k, tb ? key.k : key.n, key.b_ld, key.b_batch);
  layout(d, key.out, key.m, key.n, key.d_ld, key.m * key.n);

  check_cublaslt(lt_.cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(key.workspace));
  // Requires that parts of a split sum are added in the computation's type, so that no sum is kept in float16.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         uint32_t(CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  if (key.in == CUDA_R_16F) prefer(CUBLASLT_MATMUL_PREF_IMPL_MASK, ~uint64_t(CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_16F));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, uint32_t(key.a_align));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, uint32_t(key.b_align));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, uint32_t(key.d_align));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, uint32_t(key.d_align));
}

void MatmulDescriptors::point_to(const MatmulPointers& p) {
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, void* value) {
    check_cublaslt(lt_.cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value),
                   "cublasLtMatmulDescSetAttribute");
  };
  // Sets the bias only if the epilogue has one: the library refuses an unused one.
  if (has_vector_) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.vector);
  if (has_aux_) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.aux);
}

void MatmulDescriptors::release() noexcept {
  if (operation) lt_.cublasLtMatmulDescDestroy(operation);
  for (cublasLtMatrixLayout_t layout : {a, b, d})
    if (layout) lt_.cublasLtMatrixLayoutDestroy(layout);
  if (preference) lt_.cublasLtMatmulPreferenceDestroy(preference);
}

}  // namespace halfstep::cuda
