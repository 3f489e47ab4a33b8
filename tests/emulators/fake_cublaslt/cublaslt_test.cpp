// SPDX-License-Identifier: Apache-2.0
// The way to the library: the requests to it, and the handling of refusals. On the emulator's library, fake_cublaslt.cpp.
#include "cuda/blas/gemm.h"
#include "cuda/blas/matmul.h"
#include "framework/base/check.h"
#include "tests/cuda/kernels/device.h"
#include "tests/emulators/source/behaviour.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

constexpr int64_t kRows = 3, kInner = 4;

Buffer filled(const Shape& shape, double value) {
  const Buffer b = make(DType::f32, shape);
  for (int64_t i = 0; i < b.numel(); ++i) set(b.view, i, value);
  return b;
}

// Ones times ones, of as many columns as no other test has, since plans are kept.
struct Product {
  explicit Product(int64_t columns) : c(make(DType::f32, {kRows, columns})), dev_c(c), n(columns) {}

  GemmArgs args(const TensorView& bias = {}, Activation activation = Activation::none) const {
    return {.a = a, .b = b, .c = dev_c, .bias = bias, .activation = activation};
  }
  bool holds(double value) const {
    dev_c.fetch();
    return c.values() == std::vector<double>(size_t(kRows * n), value);
  }

  Buffer c;
  OnDevice dev_c;
  int64_t n;
  OnDevice a{filled({kRows, kInner}, 1)}, b{filled({kInner, n}, 1)}, bias{filled({n}, -1)};
};

}  // namespace

TEST_CASE("the library is opened from its file") {
  CHECK(cuda::describe_blas() == "cuBLASLt " + std::to_string(CUBLAS_VER_MAJOR) + ".99.0");
  CHECK_THROWS_WITH_AS(cuda::check_cublaslt(CUBLAS_STATUS_NOT_SUPPORTED, "cublasLtMatmul"),
                       "[cublaslt] cublasLtMatmul failed: not supported", DeviceError);
}

TEST_CASE("every epilogue is one call of the library") {
  for (DType t : kFloating) {
    for (bool transposed : {false, true}) {
      const int64_t m = 40, k = 24, n = 72;
      OnDevice a(uniform(t, {m, k}, 1)), b(uniform(t, {k, n}, 2)), c(make(t, {m, n})), bias(uniform(t, {n}, 3)),
          columns(make(t, {n})), rows(make(t, {m}));
      if (transposed) {
        a.view.strides = {1, m};
        b.view.strides = {1, k};
      }
      CHECK(cuda::matmul(queue(), {.a = a, .b = b, .c = c}));
      CHECK(cuda::matmul(queue(), {.a = a, .b = b, .c = c, .bias = bias}));
      CHECK(cuda::matmul(queue(), {.a = a, .b = b, .c = c, .a_row_sum = rows}));
      CHECK(cuda::matmul(queue(), {.a = a, .b = b, .c = c, .b_column_sum = columns}));
      for (Activation act : {Activation::relu, Activation::gelu}) {
        const AuxLayout layout = cuda::activation_aux(act, m, n, t);
        const OnDevice aux(make(layout.dtype, layout.shape));
        CHECK(cuda::matmul(queue(), {.a = a, .b = b, .c = c, .activation = act}));
        CHECK(cuda::matmul(queue(), {.a = a, .b = b, .c = c, .bias = bias, .activation = act}));
        CHECK(cuda::matmul(queue(), {.a = a, .b = b, .c = c, .activation = act, .aux = aux}));
        CHECK(cuda::matmul(queue(), {.a = a, .b = b, .c = c, .bias = bias, .activation = act, .aux = aux}));
        CHECK(cuda::matmul(queue(), {.a = a, .b = b, .c = c, .activation = act, .aux = aux, .derivative = true}));
        CHECK(cuda::matmul(queue(),
                           {.a = a, .b = b, .c = c, .activation = act, .aux = aux, .derivative = true, .column_sum = columns}));
      }
    }
  }
}

TEST_CASE("a plan serves other memory; memory of another alignment has a plan of its own") {
  for (DType t : kFloating) {
    const int64_t m = 9, k = 16, n = 24;
    const Buffer a = uniform(t, {m, k}, 1), b = uniform(t, {k, n}, 2);
    const AuxLayout layout = cuda::activation_aux(Activation::relu, m, n, t);
    const OnDevice aux(poisoned(layout.dtype, layout.shape)), other_aux(poisoned(layout.dtype, layout.shape));
    const Buffer biases[] = {uniform(t, {n}, 3), uniform(t, {n}, 4)};
    const OnDevice dev_biases[] = {OnDevice(biases[0]), OnDevice(biases[1])};
    for (int64_t shift : {0, 1, 3, 8, 0}) {
      for (int i : {0, 1}) {
        const Buffer want = make(t, {m, n}), got = poisoned(t, {m, n});
        const OnDevice dev_a(a, shift % 8), dev_b(b, shift), dev_c(got, shift / 2), dev_bias(biases[i], shift);
        GemmArgs args{.a = dev_a, .b = dev_b, .c = dev_c, .activation = Activation::relu};
        args.bias = shift && i ? dev_bias : dev_biases[i];  // with i, the only difference
        args.aux = i ? other_aux : aux;
        CHECK(cuda::matmul(queue(), args));
        dev_c.fetch();
        cpu().gemm({.a = a, .b = b, .c = want, .bias = biases[i], .activation = Activation::relu});
        check_close(got, want, 2, 1e-5 + 2 * epsilon(t), "at another address");
      }
    }
  }
}

TEST_CASE("no code for a kind: declined, and not asked again") {
  const Product p(11);
  {
    const Behaviour refuses("HALFSTEP_FAKE_REFUSE", "4");
    CHECK(!cuda::matmul(queue(), p.args(p.bias)));
    CHECK(cuda::matmul(queue(), p.args()));
    CHECK(p.holds(4));
    cuda::gemm(queue(), p.args(p.bias, Activation::relu));
    CHECK(p.holds(3));
  }
  CHECK(!cuda::matmul(queue(), p.args(p.bias)));
  CHECK(cuda::matmul(queue(), p.args(p.bias, Activation::gelu)));
}

TEST_CASE("candidates that are refused when run are passed over, for good") {
  const Product p(13), q(14);
  {
    const Behaviour fails("HALFSTEP_FAKE_FAIL", "2");
    CHECK(cuda::matmul(queue(), p.args()));
    CHECK(p.holds(4));
  }
  const Behaviour fails("HALFSTEP_FAKE_FAIL", "4");
  CHECK(!cuda::matmul(queue(), q.args()));
  cuda::gemm(queue(), q.args(q.bias));
  CHECK(q.holds(3));
  CHECK(!cuda::matmul(queue(), p.args()));
}

TEST_CASE("the tuner keeps a candidate that runs, and measures a kind once") {
  const Product p(17), r(19);
  {
    const Behaviour fails("HALFSTEP_FAKE_FAIL", "2");
    cuda::tune_matmul(queue(), p.args());
    CHECK(cuda::matmul(queue(), p.args()));
    CHECK(p.holds(4));
  }
  const Behaviour fails("HALFSTEP_FAKE_FAIL", "4");
  cuda::tune_matmul(queue(), p.args());  // not again: its choice would be gone
  CHECK(cuda::matmul_facts(queue(), p.args()).status == "success");
  cuda::tune_matmul(queue(), r.args());
  CHECK(!cuda::matmul(queue(), r.args()));
}

TEST_CASE("tuning by the size of the product") {
  const Behaviour nowhere("HALFSTEP_TUNE_FILE", "");
  const Product p(21), q(22);
  const Behaviour fails("HALFSTEP_FAKE_FAIL", "3");
  cuda::set_gemm_tuning(1e-9);
  cuda::gemm(queue(), p.args(p.bias, Activation::relu));
  CHECK(p.holds(3));
  cuda::set_gemm_tuning(0);
  cuda::gemm(queue(), q.args(q.bias));
  CHECK(q.holds(3));
}
