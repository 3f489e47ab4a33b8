// SPDX-License-Identifier: Apache-2.0
#include "tests/backend/buffers.h"

using namespace halfstep;
using namespace halfstep::testing;

TEST_CASE("gather along every dimension, in every dtype and layout") {
  for (DType t : kAll) {
    for (Layout layout : kLayouts) {
      const Shape shape{4, 5, 6};
      const Buffer x = uniform(t, shape, 1, 0, 100, layout);
      for (int dim = 0; dim < 3; ++dim) {
        Shape out_shape = shape;
        out_shape[dim] = 7;
        const Buffer index = uniform(DType::i64, out_shape, 2, 0, double(shape[dim])), out = make(t, out_shape);
        cpu().gather(x, dim, index, out);
        bool ok = true;
        for (int64_t i = 0; i < out.numel(); ++i) {
          int64_t at[3] = {i / out_shape[2] / out_shape[1], i / out_shape[2] % out_shape[1], i % out_shape[2]};
          at[dim] = int64_t(index[i]);
          ok = ok && out[i] == x[(at[0] * 5 + at[1]) * 6 + at[2]];
        }
        CHECK(ok);
      }
    }
  }
}

TEST_CASE("a one-dimensional index takes slices, as a repeated one does") {
  const Buffer table = uniform(DType::f32, {10, 130}, 1), index = make(DType::i64, {3}, {7, 0, 7}),
               out = make(DType::f32, {3, 130});
  cpu().gather(table, 0, index, out);
  for (int64_t c = 0; c < 130; ++c) {
    CHECK(out[c] == table[7 * 130 + c]);
    CHECK(out[130 + c] == table[c]);
  }
  TensorView repeated = index;
  repeated.shape = {3, 130};
  repeated.strides = {1, 0};
  const Buffer again = make(DType::f32, {3, 130});
  cpu().gather(table, 0, repeated, again);
  CHECK(again.values() == out.values());
  const Buffer columns = make(DType::f32, {10, 2}), which = make(DType::i64, {2}, {129, 3});
  cpu().gather(table, 1, which, columns);
  CHECK(columns[2] == table[130 + 129]);
  CHECK(columns[3] == table[130 + 3]);
  cpu().gather(table, 0, make(DType::i64, {0}), make(DType::f32, {0, 130}));
}

TEST_CASE("scatter_add adds repeated indices, rounding once") {
  for (DType t : {DType::f32, DType::f16, DType::bf16, DType::f64, DType::i64, DType::i32}) {
    for (int dim = 0; dim < 2; ++dim) {
      const Buffer src = uniform(t, {30, 40}, 1, -3, 3, Layout::transposed);
      Shape shape{30, 40};
      shape[dim] = 5;
      const Buffer index = uniform(DType::i64, {30, 40}, 2, 0, 5), out = make(t, shape);
      cpu().fill(out, 1);
      std::vector<double> want(size_t(out.numel()), 1);
      for (int64_t i = 0; i < src.numel(); ++i) {
        int64_t at[2] = {i / 40, i % 40};
        at[dim] = int64_t(index[i]);
        want[size_t(at[0] * shape[1] + at[1])] += src[i];
      }
      cpu().scatter_add(out, dim, index, src);
      bool ok = true;
      for (int64_t i = 0; i < out.numel(); ++i) ok = ok && close(t, out[i], want[size_t(i)], 1.1, t == DType::f64 ? 1e-13 : 1e-5);
      CHECK_MESSAGE(ok, name(t), " dim ", dim);
    }
  }
}

TEST_CASE("the gradient of an embedding is the same for any number of threads") {
  const Buffer src = uniform(DType::f32, {500, 200}, 1), index = uniform(DType::i64, {500}, 2, 0, 7);
  same_for_any_threads([&] {
    const Buffer out = make(DType::f32, {7, 200});
    cpu().fill(out, 0);
    cpu().scatter_add(out, 0, index, src);
    return out.raw();
  });
}

TEST_CASE("check_indices names the first bad one") {
  CHECK(cpu().check_indices(make(DType::i64, {3}, {0, 4, 2}), 5) == -1);
  CHECK(cpu().check_indices(make(DType::i64, {3}, {0, 5, -1}), 5) == 1);
  CHECK(cpu().check_indices(make(DType::i64, {3}, {0, 4, -1}), 5) == 2);
  CHECK(cpu().check_indices(make(DType::i64, {0}), 5) == -1);
}
