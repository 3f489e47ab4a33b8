// SPDX-License-Identifier: Apache-2.0
// What a ReLU's mask says of z = 0 and NaN: the gradient stops at both zeros and passes at NaN, as PyTorch's does, whatever the
// library's own kernels think.
#include <bit>
#include <cstdlib>
#include <string>

#include "cuda/blas/gemm.h"
#include "cuda/blas/matmul.h"
#include "device.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

constexpr int64_t kColumns = 128, kInner = 16;
constexpr DType kReluTypes[] = {DType::f16, DType::bf16, DType::f32};

double smallest(DType t) { return t == DType::f16 ? 0x1p-24 : t == DType::bf16 ? 0x1p-133 : 0x1p-149; }

Buffer zeros(DType t, const Shape& shape) { return uniform(t, shape, 0, 0, 0); }

bool multiplies(DType t) { return t != DType::bf16 || cuda::capability() >= 80; }

// a b + bias where each row of z is one number: zero, NaN, the smallest positive one, 1 and -1.
struct Rows {
  explicit Rows(DType t)
      : a(zeros(t, {5, kInner})),
        b(zeros(t, {kInner, kColumns})),
        bias(zeros(t, {kColumns})),
        y(poisoned(t, {5, kColumns})),
        mask(poisoned(DType::u8, cuda::activation_aux(Activation::relu, 5, kColumns, t).shape)) {
    const double first[] = {0, std::nan(""), smallest(t), 1, -1};
    for (int row = 0; row < 5; ++row) set(a.view, row * kInner, first[row]);
    for (int64_t j = 0; j < kColumns; ++j) set(b.view, j, 1);
  }
  // '0' or '1' where all bits of the row are; '?' where they differ.
  char bits_of(int row) const {
    const int64_t bytes = mask.view.shape[1];
    const double one = mask[row * bytes];
    for (int64_t i = 0; i < kColumns / 8; ++i)
      if (mask[row * bytes + i] != one) return '?';
    return one == 0 ? '0' : one == 255 ? '1' : '?';
  }
  Buffer a, b, bias, y, mask;
};

// One character for each candidate of the library that runs: its mask's bits in a row of z.
struct Probe {
  std::string zero, minus_zero, nan, smallest, one, minus_one;
};

Probe probe(DType t) {
  Probe found;
  Rows rows(t);
  for (int64_t j = 0; j < kColumns; ++j) set(rows.bias.view, j, -0.0);
  const OnDevice a(rows.a), b(rows.b), bias(rows.bias), y(rows.y), mask(rows.mask);
  const GemmArgs g{.a = a, .b = b, .c = y, .bias = bias, .activation = Activation::relu, .aux = mask};
  const cuda::CublasLt& lt = cuda::cublaslt();
  cublasLtHandle_t handle;
  REQUIRE(lt.cublasLtCreate(&handle) == CUBLAS_STATUS_SUCCESS);
  const auto key = cuda::matmul_key(g, 0);
  REQUIRE(key);
  const cuda::MatmulDescriptors d(lt, *key, cuda::matmul_pointers(g));
  cublasLtMatmulHeuristicResult_t candidates[8];
  int count = 0;
  lt.cublasLtMatmulAlgoGetHeuristic(handle, d.operation, d.a, d.b, d.d, d.d, d.preference, 8, candidates, &count);
  for (int i = 0; i < count; ++i) {
    if (candidates[i].state != CUBLAS_STATUS_SUCCESS) continue;
    const auto run = [&](float alpha) {
      const float beta = 0;
      const bool ran = lt.cublasLtMatmul(handle, d.operation, &alpha, g.b.data, d.a, g.a.data, d.b, &beta, g.c.data, d.d, g.c.data,
                                         d.d, &candidates[i].algo, nullptr, 0, queue().stream) == CUBLAS_STATUS_SUCCESS;
      mask.fetch();
      return ran;
    };
    if (!run(1)) continue;
    found.zero += rows.bits_of(0);
    found.nan += rows.bits_of(1);
    found.smallest += rows.bits_of(2);
    found.one += rows.bits_of(3);
    found.minus_one += rows.bits_of(4);
    run(-1);  // of a zero -0, and so is the bias
    found.minus_zero += rows.bits_of(0);
  }
  return found;
}

}  // namespace

TEST_CASE("probe: the library's own ReLU mask at zeros, NaN and the smallest number") {
  for (DType t : kReluTypes) {
    if (!multiplies(t) || cuda::describe_blas() == "plain products") continue;
    const Probe p = probe(t);
    MESSAGE("mask probe ", name(t), ": +0 ", p.zero, ", -0 ", p.minus_zero, ", NaN ", p.nan, ", smallest ", p.smallest, ", 1 ",
            p.one, ", -1 ", p.minus_one, " (a bit for each of the library's ways; halfstep's: 0 0 1 1 1 0)");
    CHECK(p.one == std::string(p.one.size(), '1'));
    CHECK(p.minus_one == std::string(p.one.size(), '0'));
  }
}

TEST_CASE("our mask at zeros, NaN and the smallest number, by whatever way the product goes") {
  for (DType t : kReluTypes) {
    if (!multiplies(t)) continue;
    CAPTURE(name(t));
    for (double zero : {0.0, -0.0}) {
      Rows rows(t);
      set(rows.a.view, 0, zero);
      for (int64_t j = 0; j < kColumns; ++j) set(rows.bias.view, j, zero);
      const OnDevice a(rows.a), b(rows.b), bias(rows.bias), y(rows.y), mask(rows.mask);
      cuda::gemm(queue(), {.a = a, .b = b, .c = y, .bias = bias, .activation = Activation::relu, .aux = mask});
      y.fetch();
      mask.fetch();
      CHECK(rows.bits_of(0) == '0');
      CHECK(rows.bits_of(1) == '1');
      // A kernel may take the smallest number for 0, in both alike.
      CHECK(rows.bits_of(2) == (rows.y[2 * kColumns] > 0 ? '1' : '0'));
      CHECK(rows.bits_of(3) == '1');
      CHECK(rows.bits_of(4) == '0');
      CHECK(std::isnan(rows.y[kColumns]));
      // As without a mask.
      const Rows unmasked(t);
      const OnDevice no_mask(unmasked.y);
      cuda::gemm(queue(), {.a = a, .b = b, .c = no_mask, .bias = bias, .activation = Activation::relu});
      no_mask.fetch();
      for (int64_t i = 0; i < unmasked.y.numel(); ++i)
        CHECK((unmasked.y[i] == rows.y[i] || (std::isnan(unmasked.y[i]) && std::isnan(rows.y[i]))));
    }
  }
}

TEST_CASE("the mask is that of the rounded result") {
  const Buffer x = make(DType::f32, {1, 8}, {0, 1e-30, 1e-9, 1, -1, 0x1p-24, -0.0, 2}), mask = poisoned(DType::u8, {1, 16}),
               bias = make(DType::f32, {8});
  const Buffer z = zeros(DType::f16, {1, 8}), y = poisoned(DType::f16, {1, 8});
  for (int64_t i = 0; i < 8; ++i) set(bias.view, i, x[i]);
  const OnDevice dev_z(z), dev_bias(bias), dev_y(y), dev_mask(mask);
  const auto bits = [&] {
    dev_y.fetch();
    dev_mask.fetch();
    return int(mask[0]);
  };
  cuda::bias_activation(queue(), dev_z, dev_bias, Activation::relu, dev_mask, dev_y);
  CHECK(bits() == 0b10101000);
  CHECK(y[2] == 0);
  cuda::bias_activation(queue(), dev_y, {}, Activation::relu, dev_mask, {});
  CHECK(bits() == 0b10101000);
}

TEST_CASE("the mask of an output, over sizes and dtypes") {
  for (DType t : kFloating) {
    for (int64_t n : {1, 7, 8, 9, 127, 128, 260}) {
      for (int64_t shift : {0, 1}) {
        const int64_t m = 5;
        const AuxLayout layout = cuda::activation_aux(Activation::relu, m, n, t);
        const Buffer y = uniform(t, {m, n}, 4), mask = poisoned(DType::u8, layout.shape);
        for (int64_t i = 0; i < m * n; i += 3) set(y.view, i, 0);
        const OnDevice dev_y(y, shift), dev_mask(mask);
        cuda::bias_activation(queue(), dev_y, {}, Activation::relu, dev_mask, {});
        dev_mask.fetch();
        bool ok = true;
        for (int64_t i = 0; i < m * n; ++i)
          ok = ok && (int(mask[i / n * layout.shape[1] + i % n / 8]) >> (i % n % 8) & 1) == (y[i] > 0);
        CHECK_MESSAGE(ok, name(t), " ", n);
      }
    }
  }
}

TEST_CASE("no gradient goes through rows of zeros with a bias of zeros") {
  for (DType t : kFloating) {
    if (!multiplies(t)) continue;
    for (int64_t n : {8, 33, 128, 200}) {
      const int64_t m = 6, k = 24;
      CAPTURE(name(t));
      CAPTURE(n);
      const Buffer x = uniform(t, {m, k}, 1), w = uniform(t, {k, n}, 2), bias = zeros(t, {n}), g = uniform(t, {m, k}, 5);
      for (int64_t row : {0, 3, 5})
        for (int64_t j = 0; j < k; ++j) set(x.view, row * k + j, j % 2 ? -0.0 : 0.0);
      const AuxLayout layout = cuda::activation_aux(Activation::relu, m, n, t);
      const Buffer y = poisoned(t, {m, n}), aux = poisoned(layout.dtype, layout.shape), dz = poisoned(t, {m, n}),
                   sums = poisoned(t, {n}), want_y = make(t, {m, n}), want = make(t, {m, n}), want_sums = make(t, {n});
      const OnDevice dx(x), dw(w), db(bias), dy(y), da(aux), dg(g), ddz(dz), ds(sums);
      cuda::gemm(queue(), {.a = dx, .b = dw, .c = dy, .bias = db, .activation = Activation::relu, .aux = da});
      const auto backward = [&](const TensorView& up, const TensorView& by, const TensorView& out, const TensorView& saved,
                                const TensorView& sum) {
        return GemmArgs{
            .a = up, .b = by, .c = out, .activation = Activation::relu, .aux = saved, .derivative = true, .column_sum = sum};
      };
      cuda::gemm(queue(), backward(dg, dw, ddz, da, ds));
      ddz.fetch();
      ds.fetch();
      cpu().gemm({.a = x, .b = w, .c = want_y, .bias = bias, .activation = Activation::relu});
      cpu().gemm(backward(g, w, want, want_y, want_sums));
      bool none = true;
      for (int64_t row : {0, 3, 5})
        for (int64_t j = 0; j < n; ++j) none = none && dz[row * n + j] == 0;
      CHECK(none);
      const double slack = (t == DType::f64 ? 1e-15 : 3e-7) * double(k + 4) + (is_half(t) ? 6 * epsilon(t) : 0);
      check_close(dz, want, 4, slack, "dz");
      check_close(sums, want_sums, 4, slack * double(m), "sums");
    }
  }
}

TEST_CASE("a derivative with the sums of its columns has the bits of two passes, and sums as float64 has them") {
  for (DType t : {DType::f16, DType::bf16}) {
    for (int64_t m : {2, 33, 128, 130, 1100, 9000}) {
      for (int64_t n : {8, 64, 136}) {
        if (m * n > 600000) continue;
        for (Unary op : {Unary::relu, Unary::gelu, Unary::gelu_tanh}) {
          CAPTURE(name(t));
          CAPTURE(m);
          CAPTURE(n);
          CAPTURE(int(op));
          const DType sum_type = n == 64 ? t : DType::f32;
          const Buffer g = uniform(t, {m, n}, 1), saved = pitched(t, m, n, n + 8, 2, -3, 3), dz = poisoned(t, {m, n}),
                       want = poisoned(t, {m, n}), sums = poisoned(sum_type, {n}), want_sums = poisoned(sum_type, {n});
          if (op == Unary::relu) {  // an output: zeros of both signs, and NaN
            for (int64_t i = 0; i < m * n; ++i)
              if (saved[i] < 0) set(saved.view, i, i % 2 ? 0.0 : -0.0);
            set(saved.view, n + 3, std::nan(""));
          }
          const OnDevice dev_g(g), dev_saved(saved), dev_dz(dz), dev_want(want), dev_sums(sums), dev_want_sums(want_sums);
          cuda::unary_backward(queue(), op, dev_g, dev_saved, dev_want);
          const int joins = launches_of([&] { cuda::reduce(queue(), Reduce::sum, dev_want, as_row(dev_want_sums)); }) - 1;
          CHECK(launches_of([&] { cuda::unary_summed_backward(queue(), op, dev_g, dev_saved, dev_dz, dev_sums); }) == 1 + joins);
          for (const OnDevice* x : {&dev_dz, &dev_want, &dev_sums, &dev_want_sums}) x->fetch();
          CHECK(dz.raw() == want.raw());
          CHECK(sums.raw() == want_sums.raw());
          CHECK(dz[n + 3] == (op == Unary::relu ? g[n + 3] : dz[n + 3]));
          bool close_to_exact = true;
          for (int64_t j = 0; j < n; ++j) {
            double exact = 0, size = 0;
            for (int64_t i = 0; i < m; ++i) exact += dz[i * n + j], size += std::abs(dz[i * n + j]);
            close_to_exact = close_to_exact && std::abs(sums[j] - exact) <= 1e-6 * size + epsilon(sum_type) * std::abs(exact);
          }
          CHECK(close_to_exact);
          // In place.
          cuda::unary_summed_backward(queue(), op, dev_g, dev_saved, dev_g, dev_sums);
          dev_g.fetch();
          CHECK(g.raw() == dz.raw());
        }
      }
    }
  }
}

TEST_CASE("a derivative with the sums of its columns in several passes: rows that are not in packs, other dtypes and functions") {
  const auto check = [](Unary op, DType t, DType saved_type, int64_t m, int64_t n) {
    const Buffer g = uniform(t, {m, n}, 1), saved = uniform(saved_type, {m, n}, 2), dz = poisoned(t, {m, n}),
                 want = make(t, {m, n}), sums = poisoned(DType::f32, {n}), want_sums = make(DType::f32, {n});
    const OnDevice dev_g(g), dev_saved(saved), dev_dz(dz), dev_sums(sums);
    cuda::unary_summed_backward(queue(), op, dev_g, dev_saved, dev_dz, dev_sums);
    dev_dz.fetch();
    dev_sums.fetch();
    cpu().unary_summed_backward(op, g, saved, want, want_sums);
    check_close(dz, want, 2, 1e-6, "a derivative");
    check_close(sums, want_sums, 4, double(m) * epsilon(t), "its sums");
  };
  check(Unary::relu, DType::f16, DType::f16, 9, 9);
  check(Unary::gelu, DType::f32, DType::f32, 9, 16);
  check(Unary::gelu_tanh, DType::bf16, DType::f32, 9, 16);
  check(Unary::silu, DType::f16, DType::f16, 9, 16);
}

TEST_CASE("the derivative of a ReLU reads its output where no mask was written") {
  for (DType t : kReluTypes) {
    if (!multiplies(t)) continue;
    for (int64_t n : {33, 64}) {
      const int64_t m = 19, k = 24;
      const Buffer y = uniform(t, {m, n}, 1), g = uniform(t, {m, k}, 2), w = uniform(t, {k, n}, 3), dz = poisoned(t, {m, n}),
                   sums = poisoned(t, {n}), want = make(t, {m, n}), want_sums = make(t, {n});
      for (int64_t i = 0; i < m * n; ++i)
        if (y[i] < 0) set(y.view, i, 0);
      set(y.view, 5, std::nan(""));
      const OnDevice dev_y(y), dev_g(g), dev_w(w), dev_dz(dz), dev_sums(sums);
      const auto derivative = [](const TensorView& a, const TensorView& b, const TensorView& c, const TensorView& aux,
                                 const TensorView& sum) {
        return GemmArgs{.a = a, .b = b, .c = c, .activation = Activation::relu, .aux = aux, .derivative = true, .column_sum = sum};
      };
      cpu().gemm(derivative(g, w, want, y, want_sums));
      cuda::gemm(queue(), derivative(dev_g, dev_w, dev_dz, dev_y, dev_sums));
      dev_dz.fetch();
      dev_sums.fetch();
      const double tolerance = (is_half(t) ? 6 * epsilon(t) : 0) + 3e-7 * double(k);
      check_close(dz, want, 4, tolerance, "dz by the output");
      check_close(sums, want_sums, 8, double(m) * tolerance, "sums by the output");
      CHECK(dz[5] != 0);
    }
  }
  // Plain products read a mask, and so may products whose ways are timed.
  const bool may_read = cuda::describe_blas() == "plain products" || std::getenv("HALFSTEP_TUNE");
  CHECK(cuda::wants_relu_mask(DType::f16) == may_read);
  CHECK(cuda::wants_relu_mask(DType::f32));  // whose products have the derivative in their epilogue
}
