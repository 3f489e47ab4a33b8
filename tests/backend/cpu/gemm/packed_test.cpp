// SPDX-License-Identifier: Apache-2.0
// Matrices laid out for many products, and calls side by side.
#include <algorithm>
#include <atomic>

#include "framework/base/check.h"
#include "tests/backend/buffers.h"

using namespace halfstep;
using namespace halfstep::testing;

TEST_CASE("a product with a packed matrix is the product with the matrix, for any number of rows") {
  struct Size {
    int64_t k, n;
  };
  for (DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const Size& size : {Size{1, 1}, {3, 5}, {40, 160}, {64, 1024}, {257, 33}}) {
      for (bool transposed : {false, true}) {
        const AuxLayout layout = cpu().packed_layout(size.k, size.n, dtype);
        if (layout.shape.empty()) continue;  // a build without oneDNN
        Buffer b = uniform(dtype, transposed ? Shape{size.n, size.k} : Shape{size.k, size.n}, 1);
        if (transposed) {
          std::swap(b.view.shape[0], b.view.shape[1]);
          std::swap(b.view.strides[0], b.view.strides[1]);
        }
        const Buffer packed = make(layout.dtype, layout.shape), bias = uniform(DType::f32, {size.n}, 2);
        cpu().pack(b, packed);
        for (int64_t rows : {0, 1, 7, 16, 50}) {
          for (int way : {0, 1, 2}) {  // plain, with a bias, added to the old values
            CAPTURE(name(dtype));
            CAPTURE(size.k);
            CAPTURE(size.n);
            CAPTURE(transposed);
            CAPTURE(rows);
            CAPTURE(way);
            // Of a single row, the elements lie apart in one of the two cases of b.
            const Buffer a = rows == 1 ? operand(dtype, {rows, size.k}, transposed, 3, 3) : uniform(dtype, {rows, size.k}, 3),
                         got = uniform(DType::f32, {rows, size.n}, 4);
            const Buffer want = uniform(DType::f32, {rows, size.n}, 4);
            const TensorView given = way == 1 ? bias.view : TensorView();
            cpu().gemm({.a = a, .b = b, .c = got, .bias = given, .accumulate = way == 2, .packed = packed});
            cpu().gemm({.a = a, .b = b, .c = want, .bias = given, .accumulate = way == 2});
            double worst = 0;
            for (int64_t i = 0; i < want.numel(); ++i) worst = std::max(worst, std::fabs(got[i] - want[i]));
            CHECK(worst <= 1e-5 * double(size.k));
          }
        }
      }
    }
  }
  CHECK(cpu().packed_layout(4, 4, DType::f64).shape.empty());
  CHECK(cpu().packed_layout(0, 4, DType::f32).shape.empty());
}

TEST_CASE("a packed matrix that threads share gives the product with bias and ReLU, and the same bits every time") {
  struct Size {
    int64_t k, n;
  };
  for (DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const Size& size : {Size{32, 32}, {40, 160}, {64, 577}, {257, 1100}}) {
      if (!cpu().gains_by_packing(128, size.k, size.n, dtype)) continue;  // no oneDNN, or no instructions for this dtype
      const AuxLayout layout = cpu().packed_layout(size.k, size.n, dtype);
      Buffer b = uniform(dtype, {size.n, size.k}, 1);
      std::swap(b.view.shape[0], b.view.shape[1]);
      std::swap(b.view.strides[0], b.view.strides[1]);
      const Buffer packed = make(layout.dtype, layout.shape), bias = uniform(DType::f32, {size.n}, 2);
      cpu().pack(b, packed);
      for (int64_t rows : {1, 9, 64, 130, 300}) {
        for (DType out : {dtype, DType::f32}) {
          for (Activation activation : {Activation::none, Activation::relu}) {
            CAPTURE(name(dtype));
            CAPTURE(name(out));
            CAPTURE(size.k);
            CAPTURE(size.n);
            CAPTURE(rows);
            const Buffer a = uniform(dtype, {rows, size.k}, 3), want = make(out, {rows, size.n});
            const GemmArgs plain{.a = a, .b = b, .c = want, .bias = bias, .activation = activation};
            cpu().gemm(plain);
            std::string bits;
            for (int threads : {1, 2, 2, 5, 5}) {
              const bool again = threads == num_threads();
              set_num_threads(threads);
              const Buffer got = uniform(out, {rows, size.n}, 4);
              GemmArgs with = plain;
              with.c = got, with.packed = packed, with.shared = true;
              cpu().gemm(with);
              double worst = 0;
              for (int64_t i = 0; i < want.numel(); ++i) worst = std::max(worst, std::fabs(got[i] - want[i]));
              CHECK(worst <= (out == DType::f32 ? 1e-5 : 0.02) * std::sqrt(double(size.k)));
              const std::string these(static_cast<const char*>(got.view.data), size_t(got.numel()) * size_of(out));
              if (again && !bits.empty()) CHECK(these == bits);
              bits = these;
            }
            set_num_threads(0);
          }
        }
      }
    }
  }
  for (DType none : {DType::f64, DType::i64}) CHECK_FALSE(cpu().gains_by_packing(128, 64, 64, none));
  for (int64_t rows : {1, 15, 513}) CHECK_FALSE(cpu().gains_by_packing(rows, 64, 64, DType::f32));
}

TEST_CASE("calls side by side are each made once, and an error in one comes out") {
  std::atomic<int> calls[5] = {};
  cpu().run_side_by_side(5, [&](int64_t i) { ++calls[i]; });
  for (const auto& n : calls) CHECK(n == 1);
  CHECK_THROWS_AS(cpu().run_side_by_side(3, [](int64_t i) { check<ValueError>(i != 1, "task", "fails"); }), ValueError);
  set_num_threads(4);
  CHECK(cpu().parallel_chunks(64, 1 << 20, DType::f32) == 4);
  CHECK(cpu().parallel_chunks(20, 1 << 20, DType::f32) == 2);  // at least 8 rows each
  CHECK(cpu().parallel_chunks(8, 1 << 20, DType::f32) == 0);   // all threads share a product
  CHECK(cpu().parallel_chunks(64, 16, DType::f32) == 1);       // not worth a second thread
  set_num_threads(1);
  CHECK(cpu().parallel_chunks(64, 1 << 20, DType::f32) == 1);
  CHECK(cpu().parallel_chunks(1, 1 << 20, DType::f32) == 0);
  CHECK(cpu().parallel_chunks(1, 1 << 20, DType::bf16) == 1);
  const ByShape cut;
  for (int threads : {1, 2, 8}) {
    set_num_threads(threads);
    CHECK(cpu().parallel_chunks(20, 1 << 20, DType::f32) == 2);
    CHECK(cpu().parallel_chunks(64, 1 << 20, DType::f32) == 2);
    CHECK(cpu().parallel_chunks(256, 1 << 20, DType::f32) == 4);
    CHECK(cpu().parallel_chunks(8, 1 << 20, DType::f32) == 0);
    CHECK(cpu().gains_by_packing(16, 512, 512, DType::f32) == false);
  }
}
