// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <limits>

#include "tests/backend/buffers.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {
constexpr double kInf = std::numeric_limits<double>::infinity();
}

TEST_CASE("copy converts between all dtypes in all layouts") {
  for (DType from : kAll) {
    for (DType to : kAll) {
      for (Layout a : kLayouts) {
        for (Layout b : {Layout::dense, Layout::transposed, Layout::sliced}) {
          for (const Shape& shape : {Shape{}, Shape{0}, Shape{37}, Shape{3, 0}, Shape{5, 9}, Shape{2, 3, 130}}) {
            const Buffer src = uniform(from, shape, 7, 0, 100, a), dst = make_layout(to, shape, b);
            cpu().copy(src, dst);
            bool ok = true;
            for (int64_t i = 0; i < src.numel(); ++i) {
              double want = src[i];
              if (to == DType::boolean)
                want = want != 0;
              else if (!is_floating(to))
                want = std::trunc(want);
              ok = ok && close(to, dst[i], want);
            }
            CHECK_MESSAGE(ok, name(from), " -> ", name(to), " ", int(a), int(b), " rank ", shape.size());
          }
        }
      }
    }
  }
}

TEST_CASE("a copy within a dtype keeps every bit") {
  Buffer src = make(DType::f32, {4}), dst = make(DType::f32, {4});
  for (int i = 0; i < 4; ++i) src.view.as<uint32_t>()[i] = 0x7f800001u + uint32_t(i);  // signalling NaNs
  cpu().copy(src, dst);
  CHECK(std::memcmp(src.view.data, dst.view.data, 16) == 0);
}

TEST_CASE("blocks of short rows, cut out and put in") {
  for (DType t : {DType::f32, DType::bf16, DType::u8, DType::f64}) {
    const Shape inner{40, 3, 28, 27}, outer{40, 3, 30, 29};
    Buffer x = uniform(t, outer, 1, 0, 100), y = make(t, outer);
    cpu().fill(y, 7);
    TensorView from = x.view, to = y.view;
    from.shape = to.shape = inner;
    from.data = static_cast<char*>(x.view.data) + 31 * size_of(t);
    to.data = static_cast<char*>(y.view.data) + 30 * size_of(t);
    cpu().copy(from, to);
    bool ok = true;
    for (int64_t i = 0; i < from.numel(); ++i) ok = ok && get(to, i) == get(from, i);
    CHECK(ok);
    for (int64_t i = 0; i < 30; ++i) CHECK(y[i] == 7);
    CHECK(y[y.numel() - 1] == 7);
  }
}

TEST_CASE("large transposed copies") {
  for (DType t : {DType::u8, DType::f16, DType::f32, DType::f64}) {
    const Buffer src = uniform(t, {3, 150, 203}, 3, 0, 100, Layout::transposed), dst = make(t, {3, 150, 203});
    cpu().copy(src, dst);
    CHECK(src.values() == dst.values());
    const Buffer back = make_layout(t, {3, 150, 203}, Layout::transposed);
    cpu().copy(dst, back);
    CHECK(back.values() == dst.values());
  }
}

TEST_CASE("floats round once to 16 bits, whole arrays as single elements") {
  std::mt19937 engine(5);
  const int64_t n = 100003;
  const Buffer src = make(DType::f32, {n}), h = make(DType::f16, {n}), b = make(DType::bf16, {n});
  for (int64_t i = 0; i < n; ++i) src.view.as<uint32_t>()[i] = uint32_t(engine());
  cpu().copy(src, h);
  cpu().copy(src, b);
  int bad = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float x = src.view.as<float>()[i];
    const f16 want_h(x);
    const bf16 want_b(x);
    bad += std::isnan(x) ? !std::isnan(h[i]) : h.view.as<f16>()[i].bits != want_h.bits;
    bad += std::isnan(x) ? !std::isnan(b[i]) : b.view.as<bf16>()[i].bits != want_b.bits;
  }
  CHECK(bad == 0);
}

TEST_CASE("all 16-bit patterns widen exactly") {
  for (DType t : {DType::f16, DType::bf16}) {
    const Buffer src = make(t, {65536}), dst = make(DType::f32, {65536});
    for (int i = 0; i < 65536; ++i) src.view.as<uint16_t>()[i] = uint16_t(i);
    cpu().copy(src, dst);
    int bad = 0;
    for (int64_t i = 0; i < 65536; ++i) bad += std::isnan(src[i]) ? !std::isnan(dst[i]) : src[i] != dst[i];
    CHECK(bad == 0);
  }
}

TEST_CASE("doubles and long integers do not round twice") {
  // Above the midpoint of 1 and 1 + 2^-10 by less than a float shows.
  const Buffer d = make(DType::f64, {4}, {1 + 0x1p-11 + 0x1p-40, 1 + 0x1p-11, -(1 + 0x1p-11 + 0x1p-40), 1e300});
  const Buffer h = make(DType::f16, {4});
  cpu().copy(d, h);
  CHECK(h[0] == 1 + 0x1p-10);
  CHECK(h[1] == 1);
  CHECK(h[2] == -(1 + 0x1p-10));
  CHECK(h[3] == kInf);
  Buffer l = make(DType::i64, {2});
  l.view.as<int64_t>()[0] = (int64_t(1) << 62) + (int64_t(1) << 54) + 1;  // just above a bf16 midpoint
  l.view.as<int64_t>()[1] = (int64_t(1) << 62) + (int64_t(1) << 54);
  const Buffer b = make(DType::bf16, {2});
  cpu().copy(l, b);
  CHECK(b[0] == 0x1p62 + 0x1p55);
  CHECK(b[1] == 0x1p62);
}

TEST_CASE("integers wrap, truncate and turn into bool") {
  const Buffer x = make(DType::f32, {5}, {300.7, -1.5, 0.25, std::nan(""), -0.0});
  const Buffer u8 = make(DType::u8, {5}), i8 = make(DType::i8, {5}), flag = make(DType::boolean, {5});
  cpu().copy(x, u8);
  cpu().copy(x, i8);
  cpu().copy(x, flag);
  CHECK(u8[0] == 44);
  CHECK(i8[1] == -1);
  CHECK(u8[2] == 0);
  CHECK(flag.values() == std::vector<double>{1, 1, 1, 1, 0});
}

TEST_CASE("fill and arange") {
  for (DType t : kAll) {
    for (Layout l : {Layout::dense, Layout::sliced, Layout::transposed}) {
      const Buffer b = make_layout(t, {5, 40}, l);
      cpu().fill(b, 3.5);
      const double want = t == DType::boolean ? 1 : is_floating(t) ? 3.5 : 3;
      for (double v : b.values()) CHECK(v == want);
    }
    if (t == DType::boolean) continue;
    const Buffer r = make_layout(t, {40}, Layout::sliced);
    cpu().arange(r, 3, 2);
    for (int64_t i = 0; i < 40; ++i) CHECK(r[i] == 3 + 2 * double(i));
  }
  const Buffer h = make(DType::f16, {3});
  cpu().fill(h, kInf);
  CHECK(h[2] == kInf);
  cpu().fill(make(DType::f32, {0}), 1);
  cpu().fill(make(DType::f32, {}), 1);
}

TEST_CASE("copies do not depend on the number of threads") {
  const Buffer src = uniform(DType::f32, {300, 301}, 1, -5, 5, Layout::transposed);
  same_for_any_threads([&] {
    const Buffer a = make(DType::f32, {300, 301}), b = make(DType::bf16, {300, 301});
    cpu().copy(src, a);
    cpu().copy(src, b);
    return a.raw() + b.raw();
  });
}
