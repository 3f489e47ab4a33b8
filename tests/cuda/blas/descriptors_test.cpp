// SPDX-License-Identifier: Apache-2.0
// cuBLASLt's descriptors for every kind of product. Its attribute calls need no GPU, and their results do not depend on one.
#include <doctest/doctest.h>

#include "cuda/blas/gemm.h"
#include "cuda/blas/matmul.h"

using namespace halfstep;
using namespace halfstep::cuda;

namespace {

void* const kSomewhere = reinterpret_cast<void*>(uintptr_t(0x10000));

TensorView view(DType t, const Shape& shape, bool transposed = false) {
  TensorView v{kSomewhere, t, shape, contiguous_strides(shape)};
  const int r = shape.size();
  if (transposed) {
    v.strides[r - 2] = 1;
    v.strides[r - 1] = shape[r - 2];
  }
  return v;
}

// Makes all descriptors; throws where a call is refused.
MatmulKey described(const GemmArgs& g) {
  const auto key = matmul_key(g, size_t(32) << 20);
  REQUIRE(key);
  const MatmulPointers pointers = matmul_pointers(g);
  MatmulDescriptors descriptors(cublaslt(), *key, pointers);
  CHECK_NOTHROW(descriptors.point_to(pointers));
  return *key;
}

constexpr int64_t kM = 513, kK = 96, kN = 200;

}  // namespace

TEST_CASE("the library is found, and of the version that the build knows") {
  CHECK(describe_blas().starts_with("cuBLASLt " + std::to_string(CUBLAS_VER_MAJOR) + "."));
}

TEST_CASE("the library takes the attributes of every epilogue") {
  for (DType t : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    const TensorView a = view(t, {kM, kK}), b = view(t, {kK, kN}, true), c = view(t, {kM, kN}), vector = view(t, {kN});
    CHECK(described({.a = a, .b = b, .c = c}).epilogue == CUBLASLT_EPILOGUE_DEFAULT);
    CHECK(described({.a = a, .b = b, .c = c, .bias = vector}).epilogue == CUBLASLT_EPILOGUE_BIAS);
    CHECK(described({.a = a, .b = b, .c = c, .a_row_sum = view(t, {kM})}).epilogue == CUBLASLT_EPILOGUE_BGRADB);
    CHECK(described({.a = a, .b = b, .c = c, .b_column_sum = vector}).epilogue == CUBLASLT_EPILOGUE_BGRADA);
    struct Names {
      Activation activation;
      cublasLtEpilogue_t plain, bias, aux, aux_bias, derivative, with_sum;
      int64_t aux_ld;
    };
    const Names all[] = {{Activation::relu, CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_RELU_BIAS, CUBLASLT_EPILOGUE_RELU_AUX,
                          CUBLASLT_EPILOGUE_RELU_AUX_BIAS, CUBLASLT_EPILOGUE_DRELU, CUBLASLT_EPILOGUE_DRELU_BGRAD, 256},
                         {Activation::gelu, CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU_BIAS, CUBLASLT_EPILOGUE_GELU_AUX,
                          CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_DGELU_BGRAD, 200}};
    for (const Names& n : all) {
      const AuxLayout layout = activation_aux(n.activation, kM, kN, t);
      const TensorView aux = view(layout.dtype, layout.shape);
      CHECK(described({.a = a, .b = b, .c = c, .activation = n.activation}).epilogue == n.plain);
      CHECK(described({.a = a, .b = b, .c = c, .bias = vector, .activation = n.activation}).epilogue == n.bias);
      CHECK(described({.a = a, .b = b, .c = c, .activation = n.activation, .aux = aux}).epilogue == n.aux);
      const MatmulKey key = described({.a = a, .b = b, .c = c, .bias = vector, .activation = n.activation, .aux = aux});
      CHECK(key.epilogue == n.aux_bias);
      CHECK(key.aux_ld == n.aux_ld);
      CHECK(described({.a = a, .b = b, .c = c, .activation = n.activation, .aux = aux, .derivative = true}).epilogue ==
            n.derivative);
      CHECK(described({.a = a, .b = b, .c = c, .activation = n.activation, .aux = aux, .derivative = true, .column_sum = vector})
                .epilogue == n.with_sum);
    }
  }
}

TEST_CASE("row-major products with the operands swapped") {
  const DType t = DType::f16;
  for (bool ta : {false, true}) {
    for (bool tb : {false, true}) {
      const MatmulKey k = described({.a = view(t, {kM, kK}, ta), .b = view(t, {kK, kN}, tb), .c = view(DType::f32, {kM, kN})});
      CHECK(k.m == kN);
      CHECK(k.n == kM);
      CHECK(k.k == kK);
      CHECK(k.a_transposed == tb);
      CHECK(k.b_transposed == ta);
      CHECK(k.a_ld == (tb ? kK : kN));
      CHECK(k.b_ld == (ta ? kM : kK));
      CHECK(k.d_ld == kN);
      CHECK(k.in == CUDA_R_16F);
      CHECK(k.out == CUDA_R_32F);
      CHECK(k.compute == CUBLAS_COMPUTE_32F);
      CHECK(k.a_align == 256);
    }
  }
  // A column, and a row: one leading dimension each that the memory allows.
  TensorView column = view(t, {kM, 1}), row = view(t, {1, kN}, true);
  const MatmulKey k = described({.a = column, .b = row, .c = view(t, {kM, kN})});
  CHECK(k.b_transposed == 1);
  CHECK(k.b_ld == kM);
  CHECK(k.a_transposed == 0);
  CHECK(k.a_ld == kN);
}

TEST_CASE("batches: strides, and one tall product where b is shared") {
  const DType t = DType::bf16;
  const TensorView a = view(t, {3, 16, 8}), b = view(t, {3, 8, 32}), c = view(t, {3, 16, 32});
  MatmulKey k = described({.a = a, .b = b, .c = c});
  CHECK(k.batch == 3);
  CHECK(k.b_batch == 16 * 8);
  CHECK(k.a_batch == 8 * 32);
  TensorView shared = b;
  shared.strides[0] = 0;
  k = described({.a = a, .b = shared, .c = c});
  CHECK(k.batch == 1);
  CHECK(k.n == 48);
  TensorView shared_a = a;
  shared_a.strides[0] = 0;
  k = described({.a = shared_a, .b = b, .c = c});
  CHECK(k.batch == 3);
  CHECK(k.b_batch == 0);
}

TEST_CASE("TF32 only by the switch; what the library has no words for") {
  const TensorView a = view(DType::f32, {8, 8});
  CHECK(described({.a = a, .b = a, .c = a}).compute == CUBLAS_COMPUTE_32F);
  set_allow_tf32(true);
  CHECK(described({.a = a, .b = a, .c = a}).compute == CUBLAS_COMPUTE_32F_FAST_TF32);
  set_allow_tf32(false);
  const TensorView ints = view(DType::i64, {8, 8}), doubles = view(DType::f64, {8, 8});
  CHECK(!matmul_key({.a = ints, .b = ints, .c = ints}, 0));
  CHECK(!matmul_key({.a = doubles, .b = doubles, .c = a}, 0));
  CHECK(described({.a = doubles, .b = doubles, .c = doubles}).compute == CUBLAS_COMPUTE_64F);
  TensorView repeated = a;
  repeated.strides[0] = 0;
  CHECK(!matmul_key({.a = repeated, .b = a, .c = a}, 0));
  TensorView odd = a;
  odd.data = static_cast<char*>(kSomewhere) + 4;
  CHECK(described({.a = odd, .b = a, .c = a}).b_align == 4);
}
