// SPDX-License-Identifier: Apache-2.0
// Gather, scatter_add and the checks of indices against the CPU backend, bit for bit.
#include "device.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

void check_gather(const Buffer& x, int dim, const Buffer& index, const Shape& out_shape, int64_t shift = 0) {
  const Buffer out = poisoned(x.view.dtype, out_shape), want = make(x.view.dtype, out_shape);
  cpu().gather(x, dim, index, want);
  const OnDevice dev_x(x, shift), dev_index(index), dev_out(out, shift);
  cuda::gather(queue(), dev_x, dim, dev_index, dev_out);
  dev_out.fetch();
  check_close(out, want, 0, 0, "gather");
}

void check_scatter_add(DType t, const Shape& out_shape, int dim, const Buffer& index, const Buffer& src, int64_t shift = 0) {
  const Buffer out = uniform(t, out_shape, 9, 0, 2), want = uniform(t, out_shape, 9, 0, 2);
  cpu().scatter_add(want, dim, index, src);
  const OnDevice dev_out(out, shift), dev_index(index), dev_src(src, shift);
  cuda::scatter_add(queue(), dev_out, dim, dev_index, dev_src);
  dev_out.fetch();
  check_close(out, want, 0, 0, "scatter_add");
}

// A one-dimensional index seen with the shape [n, width]: stride 0 along the rows.
Buffer repeated(const Buffer& index, int64_t width) {
  Buffer b = index;
  b.view.shape = {index.view.shape[0], width};
  b.view.strides = {1, 0};
  return b;
}

struct Fault {
  Buffer host = make(DType::i64, {4}, {0, 0, 0, 0});
  OnDevice device{host};
  cuda::IndexFault* get() const { return device.as<cuda::IndexFault>(); }
  cuda::IndexFault value() const {
    device.fetch();
    cuda::IndexFault f;
    std::memcpy(&f, host.view.data, sizeof f);
    return f;
  }
};
static_assert(sizeof(cuda::IndexFault) == 32);

}  // namespace

TEST_CASE("gather in every dtype and layout, along every dimension") {
  for (DType t : kAll) {
    for (Layout layout : kLayouts) {
      const Shape shape{4, 5, 33};
      for (int dim = 0; dim < 3; ++dim) {
        Shape out = shape;
        out[dim] = 7;
        check_gather(uniform(t, shape, 1, 0, 100, layout), dim, indices(out, 2, shape[dim], layout), out, dim % 2);
      }
    }
  }
  check_gather(uniform(DType::f32, {}, 1), 0, make(DType::i64, {}, {0}), {});
  check_gather(uniform(DType::f32, {3, 5}, 1), 0, make(DType::i64, {0, 5}), {0, 5});
}

TEST_CASE("whole rows, in packs and not") {
  for (DType t : kAll) {
    for (int64_t width : kSizes) {
      if (width > 300) continue;
      for (int64_t shift : {0, 1}) {
        const Buffer table = uniform(t, {11, width}, 1), index = indices({9}, 2, 11);
        check_gather(table, 0, index, {9, width}, shift);
        check_gather(table, 0, repeated(index, width), {9, width}, shift);
      }
    }
    check_gather(uniform(t, {6, 8, 16}, 1), 1, indices({5}, 2, 8), {6, 5, 16});
    check_gather(uniform(t, {6, 16, 8}, 1, 0, 9, Layout::transposed), 1, indices({5}, 2, 16), {6, 5, 8});
    check_gather(uniform(t, {6, 40}, 1), 1, indices({3}, 2, 40), {6, 3});
  }
}

TEST_CASE("scatter_add with an index of its own for every element") {
  for (DType t : kAll) {
    for (Layout layout : kLayouts) {
      for (int dim = 0; dim < 2; ++dim) {
        Shape out{20, 35};
        out[dim] = 6;
        check_scatter_add(t, out, dim, indices({20, 35}, 2, 6, layout), uniform(t, {20, 35}, 1, -3, 3, layout), dim);
      }
    }
    check_scatter_add(t, {3}, 0, indices({}, 1, 1), uniform(t, {}, 2));
    check_scatter_add(t, {3, 4}, 0, make(DType::i64, {0, 4}), make(t, {0, 4}));
    check_scatter_add(t, {500, 10}, 1, indices({500, 1}, 1, 10), uniform(t, {500, 1}, 2));
  }
  check_scatter_add(DType::f32, {6, 35}, 0, indices({20, 35}, 2, 6), uniform(DType::bf16, {20, 35}, 1));
  check_scatter_add(DType::f32, {6, 35}, 0, indices({20, 35}, 2, 6), uniform(DType::i32, {20, 35}, 1));
}

TEST_CASE("scatter_add of whole rows: the gradient of an embedding") {
  for (DType t : kAll) {
    for (int64_t n : {1, 31, 33, 257}) {
      for (int64_t width : {1, 33, 200}) {
        check_scatter_add(t, {7, width}, 0, indices({n}, 2, 7), uniform(t, {n, width}, 1, -3, 3, Layout::transposed), n % 2);
      }
    }
  }
  check_scatter_add(DType::f32, {7, 33}, 0, indices({31}, 2, 7), uniform(DType::i32, {31, 33}, 1));
  for (DType t : kStored) {
    const Buffer index = indices({300}, 2, 100), src = uniform(t, {300, 40}, 1, -3, 3);
    check_scatter_add(t, {100, 40}, 0, repeated(index, 40), src);
    check_scatter_add(t, {100, 40}, 0, index, uniform(t, {300, 40}, 1, -3, 3, Layout::transposed));
    check_scatter_add(t, {100, 200}, 0, index, uniform(t, {300, 200}, 1), 2);  // an address of 4 or 8 bytes
    check_scatter_add(t, {100, 38}, 0, index, uniform(t, {300, 38}, 1));
    check_scatter_add(t, {3, 9, 40}, 1, indices({25}, 2, 9), uniform(t, {3, 25, 40}, 1));
    check_scatter_add(t, {1200}, 0, indices({1200}, 2, 1200), uniform(t, {1200}, 1));
  }
}

TEST_CASE("equal indices far apart, at the edges of what a warp looks at") {
  for (int64_t first : {127, 128, 129}) {
    const Buffer index = make(DType::i64, {400});
    for (int64_t i = 0; i < 400; ++i) set(index.view, i, double(i == 300 ? first : i));
    check_scatter_add(DType::f32, {400, 40}, 0, repeated(index, 40), uniform(DType::f32, {400, 40}, 1));
  }
}

TEST_CASE("elements at bad indices are not touched") {
  const Buffer x = uniform(DType::f32, {5, 8}, 1), index = make(DType::i64, {4}, {2, 5, -1, 4}), out = make(DType::f32, {4, 8});
  cpu().fill(out, 77);
  const OnDevice dev_x(x), dev_index(index), dev_out(out);
  cuda::gather(queue(), dev_x, 0, dev_index, dev_out);
  dev_out.fetch();
  for (int64_t c = 0; c < 8; ++c) {
    CHECK(out[c] == x[16 + c]);
    CHECK(out[8 + c] == 77);
    CHECK(out[16 + c] == 77);
    CHECK(out[24 + c] == x[32 + c]);
  }
  for (bool each : {false, true}) {  // an index an element, or one a row
    const int64_t width = 8;
    Buffer which = repeated(index, width);
    if (each) {
      which = make(DType::i64, {4, width});
      for (int64_t i = 0; i < 4 * width; ++i) set(which.view, i, index[i / width]);
    }
    const Buffer sums = uniform(DType::f32, {5, width}, 3), before = uniform(DType::f32, {5, width}, 3);
    const Buffer src = uniform(DType::f32, {4, width}, 4);
    const OnDevice dev_sums(sums), dev_which(which), dev_src(src);
    cuda::scatter_add(queue(), dev_sums, 0, dev_which, dev_src);
    dev_sums.fetch();
    for (int64_t i = 0; i < 5 * width; ++i) {
      const int64_t row = i / width, from = row == 2 ? 0 : row == 4 ? 3 : -1;
      CHECK(sums[i] == (from < 0 ? before[i] : double(float(before[i]) + float(src[from * width + i % width]))));
    }
  }
}

TEST_CASE("the first bad index or target is recorded, once") {
  for (int64_t n : {1, 33, 257, 5000, 20000, 70000}) {
    for (Layout layout : {Layout::dense, Layout::sliced}) {
      const Fault fault;
      const Buffer ok = indices({n}, 1, 10, layout), bad = indices({n}, 1, 10, layout);
      set(bad.view, n - 1, 10);
      set(bad.view, n / 2, -1);
      set(bad.view, n / 3, -100);
      const OnDevice dev_ok(ok), dev_bad(bad);
      cuda::check_indices(queue(), dev_ok, 10, fault.get());
      cuda::check_targets(queue(), dev_ok, 10, -100, fault.get());
      CHECK(fault.value().kind == 0);
      cuda::check_targets(queue(), dev_bad, 10, -100, fault.get());
      cuda::IndexFault f = fault.value();
      CHECK(f.kind == (n == 1 ? 0 : 1));  // all bad values of one element: the ignored one
      if (n > 1) {
        CHECK(f.position == n / 2);
        CHECK(f.value == -1);
        CHECK(f.size == 10);
      }
      cuda::check_indices(queue(), dev_bad, 10, fault.get());
      if (n > 1) CHECK(fault.value().kind == 1);
      const Fault other;
      cuda::check_indices(queue(), dev_bad, 10, other.get());
      f = other.value();
      CHECK(f.kind == 2);
      CHECK(f.position == n / 3);
      CHECK(f.value == -100);
      CHECK(f.size == 10);
    }
  }
  // One alone, where a loop takes its second step or a block begins: of a small block, of many, of the list of blocks.
  struct Alone {
    int64_t n, at;
  };
  for (const Alone& a : {Alone{600, 256}, Alone{5000, 256}, Alone{5000, 4999}, Alone{70000, 65536}}) {
    const Fault alone;
    const Buffer bad = indices({a.n}, 1, 10);
    set(bad.view, a.at, 10);
    const OnDevice dev_bad(bad);
    cuda::check_indices(queue(), dev_bad, 10, alone.get());
    CHECK(alone.value().kind == 2);
    CHECK(alone.value().position == a.at);
    CHECK(alone.value().value == 10);
  }
  const Fault fault;
  const Buffer empty = make(DType::i64, {0});
  const OnDevice dev_empty(empty);
  cuda::check_indices(queue(), dev_empty, 10, fault.get());
  CHECK(fault.value().kind == 0);
}
