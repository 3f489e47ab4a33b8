// SPDX-License-Identifier: Apache-2.0
// Which operands the elementwise kernels take in packs. That the packs give the right values is tested in tests/cuda/kernels.
#include "cuda/kernels/elementwise/packs.cuh"

#include <doctest/doctest.h>

using namespace halfstep;
using namespace halfstep::cuda;

namespace {

alignas(16) char memory[64];

TensorView at(DType t, const Shape& shape, const Strides& strides, int64_t skip = 0) {
  return {memory + skip * int64_t(size_of(t)), t, shape, strides};
}

bool fits(const TensorView& out, const TensorView& a, const TensorView& b) {
  const TensorView* const views[] = {&out, &a, &b};
  PackOperands<3> o;
  return packs_fit(Space<3>(views), views, o, true);
}

}  // namespace

TEST_CASE("packs take every broadcast and mixture of narrow dtypes") {
  const Shape shape{5, 4, 24};
  const Strides dense{96, 24, 1};
  for (DType t : {DType::f16, DType::bf16, DType::f32, DType::boolean}) {
    const TensorView out = at(DType::f16, shape, dense), x = at(t, shape, dense);
    CHECK(fits(out, x, x));
    CHECK(fits(out, x, at(t, shape, {0, 0, 1})));              // a row for all
    CHECK(fits(out, x, at(t, shape, {4, 1, 0})));              // a column
    CHECK(fits(out, x, at(t, shape, {4, 1, 0}, 1)));           // wherever it begins
    CHECK(fits(out, x, at(t, shape, {0, 24, 1})));             // a plane
    CHECK(fits(out, x, at(t, shape, {0, 0, 0}, 1)));           // one element
    CHECK(fits(out, x, at(t, shape, {4 * 32, 32, 1})));        // rows apart
    CHECK_FALSE(fits(out, x, at(t, shape, {4 * 25, 25, 1})));  // by no whole packs
    CHECK_FALSE(fits(out, x, at(t, shape, {24, 120, 1}, 1)));  // beginning between packs
    CHECK_FALSE(fits(out, x, at(t, shape, {48, 12, 2})));      // every second
    CHECK_FALSE(fits(at(DType::f16, shape, dense, 1), x, x));
  }
  CHECK_FALSE(fits(at(DType::f64, shape, dense), at(DType::f32, shape, dense), at(DType::f32, shape, dense)));
  CHECK_FALSE(fits(at(DType::f32, shape, dense), at(DType::i32, shape, dense), at(DType::f32, shape, dense)));
}

TEST_CASE("packs take one dense dimension of any length, and numbers") {
  const Shape shape{13};
  const TensorView x = at(DType::f16, shape, {1});
  const double value = 0.1;
  const TensorView number{const_cast<double*>(&value), DType::f64, shape, {0}, true};
  CHECK(fits(x, x, x));
  const TensorView* const views[] = {&x, &number, &x};
  PackOperands<3> o;
  CHECK(packs_fit(Space<3>(views), views, o));
  CHECK(o.numbers == 2u);
  CHECK(o.number[1] == 0.1f);
  CHECK(o.v[1].data == nullptr);
  const Shape ragged{3, 13};
  CHECK_FALSE(fits(at(DType::f16, ragged, {13, 1}), at(DType::f16, ragged, {13, 1}), at(DType::f16, ragged, {0, 1})));
}
