// SPDX-License-Identifier: Apache-2.0
// Memory with a TensorView for kernel tests, with access to single elements.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "framework/backend/backend.h"

namespace halfstep::testing {

inline constexpr DType kFloating[] = {DType::f32, DType::f16, DType::bf16, DType::f64};
inline constexpr DType kAll[] = {DType::f16, DType::bf16, DType::f32, DType::f64, DType::u8,
                                 DType::i8,  DType::i16,  DType::i32, DType::i64, DType::boolean};

inline Backend& cpu() { return backend_for(Device::cpu); }

// Splits products and convolutions by their shapes for any number of threads, until the end of the scope.
struct ByShape {
  [[nodiscard]] explicit ByShape(bool on = true) : before(threads_independent()) { set_threads_independent(on); }
  ~ByShape() {
    set_threads_independent(before);
    set_num_threads(0);
  }
  ByShape(const ByShape&) = delete;
  bool before;
};

// Returns the offset of the element with row-major index i.
inline int64_t offset_of(const TensorView& v, int64_t i) {
  const int64_t *const shape = v.shape.begin(), *const strides = v.strides.begin();
  int64_t offset = 0;
  for (int d = v.shape.size() - 1; d >= 0; --d) {
    offset += i % shape[d] * strides[d];
    i /= shape[d];
  }
  return offset;
}
inline double get(const TensorView& v, int64_t i = 0) {
  return dispatch(v.dtype, [&](auto tag) { return double(v.as<decltype(tag)>()[offset_of(v, i)]); });
}
inline void set(const TensorView& v, int64_t i, double x) {
  dispatch(v.dtype, [&](auto tag) {
    using T = decltype(tag);
    if constexpr (std::is_same_v<T, bool>)
      v.as<T>()[offset_of(v, i)] = x != 0;
    else if constexpr (std::is_class_v<T>)
      v.as<T>()[offset_of(v, i)] = T(float(x));
    else if constexpr (std::is_integral_v<T>)
      v.as<T>()[offset_of(v, i)] = T(int64_t(x));  // wraps, as casts of integers do
    else
      v.as<T>()[offset_of(v, i)] = T(x);
  });
}
inline std::vector<double> values_of(const TensorView& v) {
  std::vector<double> values(size_t(v.numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = get(v, int64_t(i));
  return values;
}

// Draws the numbers of std::uniform_real_distribution, without its logarithm for each number in unoptimised builds.
class Draws {
 public:
  Draws(unsigned seed, double lo, double hi) : engine_(seed), lo_(lo), hi_(hi) {}
  double operator()() {
    const double low = double(engine_()), high = double(engine_());
    return (low + high * 0x1p32) * 0x1p-64 * (hi_ - lo_) + lo_;
  }

 private:
  std::mt19937 engine_;
  double lo_, hi_;
};

struct Buffer {
  std::shared_ptr<std::vector<char>> bytes;
  TensorView view;

  operator const TensorView&() const { return view; }
  template <Access access>
  operator ViewArgument<access>() const {
    return view;
  }
  int64_t numel() const { return view.numel(); }
  double operator[](int64_t i) const { return get(view, i); }
  std::vector<double> values() const { return values_of(view); }
  std::string raw() const { return {bytes->begin(), bytes->end()}; }
};

// Allocates contiguous memory filled with 0xA5, which shows elements that are never written. The block ends with its last element,
// so that sanitizers detect an access beyond it; an empty one has a byte, so that its pointer is not null.
inline Buffer make(DType t, const Shape& shape) {
  Buffer b;
  const size_t size = size_t(numel(shape)) * size_of(t);
  b.bytes = std::make_shared<std::vector<char>>(std::max<size_t>(size, 1), t == DType::boolean ? char(1) : char(0xA5));
  b.view = {b.bytes->data(), t, shape, contiguous_strides(shape)};
  return b;
}
inline Buffer make(DType t, const Shape& shape, std::initializer_list<double> values) {
  Buffer b = make(t, shape);
  int64_t i = 0;
  for (double v : values) set(b.view, i++, v);
  return b;
}

// Views the same memory in that format.
inline Buffer laid(Buffer b, MemoryFormat format) {
  b.view.strides = strides_of(b.view.shape, format);
  return b;
}

// Memory layouts of a test's operand.
enum class Layout { dense, transposed, sliced, repeated };
inline constexpr Layout kLayouts[] = {Layout::dense, Layout::transposed, Layout::sliced, Layout::repeated};

// Allocates with the last two dimensions swapped in memory; with gaps of one element; or with the first dimension repeated (stride
// 0).
inline Buffer make_layout(DType t, const Shape& shape, Layout layout) {
  const int r = shape.size();
  if (layout == Layout::dense || r == 0) return make(t, shape);
  if (layout == Layout::transposed && r >= 2) {
    Shape s = shape;
    std::swap(s[r - 1], s[r - 2]);
    Buffer b = make(t, s);
    std::swap(b.view.shape[r - 1], b.view.shape[r - 2]);
    std::swap(b.view.strides[r - 1], b.view.strides[r - 2]);
    return b;
  }
  if (layout == Layout::repeated) {
    Shape s = shape;
    s[0] = shape[0] == 0 ? 0 : 1;
    Buffer b = make(t, s);
    b.view.shape = shape;
    b.view.strides[0] = 0;
    return b;
  }
  Shape s = shape;
  s[r - 1] = 2 * s[r - 1] + 1;
  Buffer b = make(t, s);
  b.view.shape = shape;
  b.view.strides[r - 1] = 2;
  return b;
}

// Draws uniform values from [lo, hi], rounded to the dtype.
inline Buffer uniform(DType t, const Shape& shape, unsigned seed, double lo = -2, double hi = 2, Layout layout = Layout::dense) {
  Buffer b = make_layout(t, shape, layout);
  Draws draw(seed, lo, hi);
  for (int64_t i = 0; i < b.numel(); ++i) set(b.view, i, is_floating(t) ? draw() : std::floor(draw()));
  return b;
}

// Returns whether |got - want| is within `ulps` rounding errors of the dtype at `want`, plus `absolute`; inf and NaN must match.
inline bool close(DType t, double got, double want, double ulps = 1, double absolute = 0) {
  if (std::isnan(want)) return std::isnan(got);
  if (is_floating(t) && std::abs(want) > max_value(t) * (1 + epsilon(t) / 4)) return std::isinf(got) && (got > 0) == (want > 0);
  if (std::isinf(want)) return got == want;
  if (!is_floating(t)) return got == want;
  const double smallest = t == DType::f16 ? 0x1p-24 : t == DType::f64 ? 0x1p-1000 : 0x1p-133;
  return std::abs(got - want) <= ulps * 0.5 * epsilon(t) * std::abs(want) + smallest + absolute;
}

// Runs f with 1, 2 and 3 threads, and requires equal bytes of its outputs.
template <class F>
void same_for_any_threads(const F& f) {
  std::string expected;
  for (int threads : {1, 2, 3}) {
    set_num_threads(threads);
    const std::string bytes = f();
    if (threads == 1) expected = bytes;
    const bool same = bytes == expected;
    CHECK_MESSAGE(same, threads, " threads differ from 1");
  }
  set_num_threads(0);
}

// Allocates [batch?, rows, columns] with its last two dimensions in either order, and `pad` unused elements between lines.
inline Buffer operand(DType t, const Shape& shape, bool transposed, unsigned seed, int64_t pad = 0) {
  const int r = shape.size();
  const int64_t rows = shape[r - 2], columns = shape[r - 1];
  const int64_t outer = transposed ? columns : rows, inner = (transposed ? rows : columns) + pad;
  Buffer b = make(t, r == 3 ? Shape{shape[0], outer, inner} : Shape{outer, inner});
  b.view.shape = shape;
  b.view.strides[r - 2] = transposed ? 1 : inner;
  b.view.strides[r - 1] = transposed ? inner : 1;
  Draws draw(seed, -1, 1);
  for (int64_t i = 0; i < b.numel(); ++i) set(b.view, i, is_floating(t) ? draw() : std::floor(4 * draw()));
  return b;
}

// Draws indices from 0 .. size - 1.
inline Buffer indices(const Shape& shape, unsigned seed, int64_t size, Layout layout = Layout::dense) {
  return uniform(DType::i64, shape, seed, 0, double(size), layout);
}

}  // namespace halfstep::testing
