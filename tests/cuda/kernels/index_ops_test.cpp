// SPDX-License-Identifier: Apache-2.0
// Scatters and whole slices against the CPU backend, bit for bit.
#include <array>

#include "device.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

using Launch = void (*)(const cuda::Queue&, const TensorView&, int, const TensorView&, const TensorView&);
using Reference = void (Backend::*)(InOutView, int, InView, InView);

void check_into(const char* what, Launch launch, Reference reference, DType t, const Shape& out_shape, int dim, const Buffer& index,
                const Buffer& src, int64_t shift = 0) {
  const Buffer out = uniform(t, out_shape, 9, 0, 2), want = uniform(t, out_shape, 9, 0, 2);
  (cpu().*reference)(want, dim, index, src);
  const OnDevice dev_out(out, shift), dev_index(index), dev_src(src, shift);
  launch(queue(), dev_out, dim, dev_index, dev_src);
  dev_out.fetch();
  check_close(out, want, 0, 0, what);
}
void check_scatter(DType t, const Shape& out, int dim, const Buffer& index, const Buffer& src, int64_t shift = 0) {
  check_into("scatter", cuda::scatter, &Backend::scatter, t, out, dim, index, src, shift);
}
void check_copy(DType t, const Shape& out, int dim, const Buffer& index, const Buffer& src, int64_t shift = 0) {
  check_into("index_copy", cuda::index_copy, &Backend::index_copy, t, out, dim, index, src, shift);
}
void check_add(DType t, const Shape& out, int dim, const Buffer& index, const Buffer& src, int64_t shift = 0) {
  check_into("index_add", cuda::index_add, &Backend::index_add, t, out, dim, index, src, shift);
}

}  // namespace

TEST_CASE("scatter: of several elements for one place the last stays") {
  for (DType t : kAll) {
    for (Layout layout : kLayouts) {
      for (int dim = 0; dim < 2; ++dim) {
        Shape out{20, 35};
        out[dim] = 6;
        check_scatter(t, out, dim, indices({20, 35}, 2, 6, layout), uniform(t, {20, 35}, 1, -3, 3, layout), dim);
      }
    }
    check_scatter(t, {3}, 0, indices({}, 1, 1), uniform(t, {}, 2));
    check_scatter(t, {3, 4}, 0, make(DType::i64, {0, 4}), make(t, {0, 4}));
    check_scatter(t, {40, 10}, 1, indices({40, 1}, 1, 10), uniform(t, {40, 1}, 2));
  }
  for (int64_t n : kSizes) check_scatter(DType::f32, {70}, 0, indices({n}, 3, 70), uniform(DType::f32, {n}, 1));
}

TEST_CASE("index_copy of slices, in packs and not") {
  for (DType t : kAll) {
    for (int64_t width : {1, 32, 33}) {
      for (int64_t shift : {0, 1}) {
        check_copy(t, {7, width}, 0, indices({20}, 2, 7), uniform(t, {20, width}, 1), shift);
        check_copy(t, {3, 7, width}, 1, indices({20}, 2, 7, Layout::sliced), uniform(t, {3, 20, width}, 1), shift);
      }
    }
    check_copy(t, {5, 8}, 1, indices({3}, 2, 8), uniform(t, {5, 3}, 1, -3, 3, Layout::transposed));
  }
}

TEST_CASE("index_select and index_add of slices") {
  for (DType t : kAll) {
    const Buffer x = uniform(t, {4, 9, 16}, 1), index = indices({11}, 2, 9), out = poisoned(t, {4, 11, 16}),
                 want = make(t, {4, 11, 16});
    cpu().index_select(x, 1, index, want);
    const OnDevice dev_x(x), dev_index(index), dev_out(out);
    cuda::index_select(queue(), dev_x, 1, dev_index, dev_out);
    dev_out.fetch();
    check_close(out, want, 0, 0, "index_select");
    for (int64_t width : {1, 15, 16, 64})
      check_add(t, {9, width}, 0, indices({33}, 2, 9), uniform(t, {33, width}, 1, -3, 3), width % 2);
  }
  check_add(DType::f16, {9, 20}, 0, indices({33}, 2, 9), uniform(DType::f32, {33, 20}, 1));
}

TEST_CASE("long lines are sorted, and give the bits of short ones") {
  for (DType t : kAll) {
    for (int64_t n : {511, 512, 513, 1100}) {
      check_add(t, {90, 12}, 0, indices({n}, 2, 90), uniform(t, {n, 12}, 1, -3, 3), n % 2);
      check_add(t, {90}, 0, indices({n}, 2, 90), uniform(t, {n}, 1, -3, 3));
    }
    check_into("scatter_add", cuda::scatter_add, &Backend::scatter_add, t, {3, 50}, 1, indices({3, 600}, 2, 50, Layout::transposed),
               uniform(t, {3, 600}, 1, -3, 3));
    check_into("scatter_add", cuda::scatter_add, &Backend::scatter_add, t, {50, 3}, 0, indices({600, 3}, 2, 50),
               uniform(t, {600, 3}, 1, -3, 3));
  }
  const Buffer sevens = make(DType::i64, {3, 600});  // the last of a line is as the first of the next
  for (int64_t i = 0; i < 1800; ++i) set(sevens.view, i, 7);
  check_into("scatter_add", cuda::scatter_add, &Backend::scatter_add, DType::f32, {3, 50}, 1, sevens,
             uniform(DType::f32, {3, 600}, 1));
  check_add(DType::bf16, {2, 40}, 0, indices({700}, 2, 2), uniform(DType::bf16, {700, 40}, 1, -3, 3));
  check_add(DType::f16, {90, 12}, 0, indices({600}, 2, 90), uniform(DType::f32, {600, 12}, 1));
}

TEST_CASE("slices at bad indices are not touched") {
  for (int64_t n : {4, 600}) {  // searched, and sorted
    for (bool add : {false, true}) {
      const Buffer index = make(DType::i64, {n}), src = uniform(DType::f32, {n, 8}, 4);
      for (int64_t k = 0; k < n; ++k) set(index.view, k, double(k < 4 ? std::array{2, 5, -1, 4}[size_t(k)] : k % 2 ? -1 : 5));
      const Buffer all = uniform(DType::f32, {7, 8}, 3), before = uniform(DType::f32, {7, 8}, 3);
      const OnDevice dev_all(all), dev_index(index), dev_src(src);
      TensorView inner = dev_all;  // rows 1 to 5: bad indices lead to the others
      inner.shape[0] = 5;
      inner.data = dev_all.as<float>() + 8;
      (add ? cuda::index_add : cuda::index_copy)(queue(), inner, 0, dev_index, dev_src);
      dev_all.fetch();
      for (int64_t i = 0; i < 56; ++i) {
        const int64_t row = i / 8 - 1, from = row == 2 ? 0 : row == 4 ? 3 : -1;
        const double value = from < 0 ? before[i] : src[from * 8 + i % 8] + (add ? before[i] : 0);
        CHECK(all[i] == double(float(value)));
      }
    }
  }
}
