// SPDX-License-Identifier: Apache-2.0
#include "framework/base/shape.h"

#include <algorithm>
#include <ostream>

#include "framework/base/check.h"

namespace halfstep {

Dims::Dims(std::span<const int64_t> values) {
  check<ShapeError>(values.size() <= kMaxDims, "shape", "at most ", kMaxDims, " dimensions, got ", values.size());
  std::copy(values.begin(), values.end(), values_.begin());
  size_ = int(values.size());
}

Dims Dims::filled(int count, int64_t value) {
  Dims out;
  for (int i = 0; i < count; ++i) out.push_back(value);
  return out;
}

void Dims::push_back(int64_t x) {
  check<ShapeError>(size_ < kMaxDims, "shape", "at most ", kMaxDims, " dimensions");
  values_[size_t(size_++)] = x;
}

size_t Dims::from_end(int64_t i) const {
  check<IndexError>(i < 0 && i >= -size_, "shape", "an index must lie in [", -size_, ", ", size_, "), got ", i, " of ", *this);
  return size_t(i + size_);
}

void Dims::insert(int at, int64_t x) {
  check<IndexError>(at >= 0 && at <= size_, "shape", "insert takes a place in [0, ", size_, "], got ", at, " of ", *this);
  push_back(x);
  std::rotate(begin() + at, end() - 1, end());
}

void Dims::erase(int at) {
  const size_t from = checked_index(at);
  std::copy(values_.begin() + from + 1, values_.begin() + size_t(size_), values_.begin() + from);
  --size_;
}

bool Dims::operator==(const Dims& o) const { return std::equal(begin(), end(), o.begin(), o.end()); }

std::ostream& operator<<(std::ostream& out, const Dims& d) {
  out << '[';
  for (int i = 0; i < d.size(); ++i) out << (i ? ", " : "") << std::to_string(d[i]);  // 1234 in any locale
  return out << ']';
}

Shape with_batch(int64_t size, const Shape& sample) {
  Shape shape{size};
  for (const int64_t n : sample) shape.push_back(n);
  return shape;
}

Shape without_batch(const Shape& batch) { return Shape(batch.span().subspan(batch.empty() ? 0 : 1)); }

int64_t numel(const Shape& shape) {
  int64_t n = 1;
  for (int64_t s : shape) n *= s;
  return n;
}

void check_size(std::string_view op, const Shape& shape) {
  int64_t n = 1;
  for (int64_t size : shape) {
    check<ShapeError>(size >= 0, op, "sizes must not be negative, got ", shape);
    check<ShapeError>(!__builtin_mul_overflow(n, std::max<int64_t>(size, 1), &n) && n < (int64_t(1) << 56), op,
                      "too many elements: ", shape);
  }
}

Strides contiguous_strides(const Shape& shape) {
  Strides strides = Dims::filled(shape.size(), 1);
  for (int i = shape.size() - 2; i >= 0; --i) strides[i] = strides[i + 1] * std::max<int64_t>(shape[i + 1], 1);
  return strides;
}

bool is_contiguous(const Shape& shape, const Strides& strides) {
  if (numel(shape) == 0) return true;
  int64_t expected = 1;
  for (int i = shape.size() - 1; i >= 0; --i) {
    if (shape[i] == 1) continue;
    if (strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

namespace {
bool has_channels(int rank) { return rank == 4 || rank == 5; }
}  // namespace

Dims in_memory_order(const Dims& d, MemoryFormat format) {
  if (format == MemoryFormat::contiguous || !has_channels(d.size())) return d;
  Dims out = d;
  out.erase(1);
  out.push_back(d[1]);
  return out;
}

Strides strides_of(const Shape& shape, MemoryFormat format) {
  if (format == MemoryFormat::contiguous || !has_channels(shape.size())) return contiguous_strides(shape);
  const Strides in_order = contiguous_strides(in_memory_order(shape, format));  // of N, H, W, C
  Strides out{in_order[0], in_order.back()};
  for (int d = 1; d + 1 < in_order.size(); ++d) out.push_back(in_order[d]);
  return out;
}

bool is_contiguous(const Shape& shape, const Strides& strides, MemoryFormat format) {
  if (format == MemoryFormat::contiguous) return is_contiguous(shape, strides);
  return has_channels(shape.size()) && is_contiguous(in_memory_order(shape, format), in_memory_order(strides, format));
}

MemoryFormat format_of(const Shape& shape, const Strides& strides) {
  const bool channels_last = has_channels(shape.size()) && strides[1] == 1 && !is_contiguous(shape, strides) &&
                             is_contiguous(shape, strides, MemoryFormat::channels_last);
  return channels_last ? MemoryFormat::channels_last : MemoryFormat::contiguous;
}

std::ostream& operator<<(std::ostream& out, MemoryFormat format) {
  return out << (format == MemoryFormat::contiguous ? "contiguous" : "channels_last");
}

Shape broadcast(const Shape& a, const Shape& b, std::string_view op) {
  if (a == b) return a;
  const int rank = std::max(a.size(), b.size());
  Shape out = Dims::filled(rank, 1);
  for (int i = 0; i < rank; ++i) {
    const int a_index = a.size() - rank + i, b_index = b.size() - rank + i;
    const int64_t a_size = a_index >= 0 ? a[a_index] : 1, b_size = b_index >= 0 ? b[b_index] : 1;
    check<ShapeError>(a_size == b_size || a_size == 1 || b_size == 1, op, "shapes must broadcast, got ", a, " and ", b,
                      ": dimension ", i - rank, " is ", a_size, " against ", b_size);
    out[i] = a_size == 1 ? b_size : a_size;
  }
  return out;
}

Strides broadcast_strides(const Shape& shape, const Strides& strides, const Shape& target) {
  Strides out = Dims::filled(target.size(), 0);
  for (int i = 0; i < shape.size(); ++i) {
    const int t = target.size() - shape.size() + i;
    out[t] = shape[i] == 1 && target[t] != 1 ? 0 : strides[i];
  }
  return out;
}

int wrap_dim(int64_t dim, int rank, std::string_view op) {
  const int r = std::max(rank, 1);
  check<IndexError>(dim >= -r && dim < r, op, "dim must lie in [", -r, ", ", r - 1, "], got ", dim);
  return int(dim < 0 ? dim + r : dim);
}

Dims Sizes::each(int count, std::string_view layer, std::string_view argument) const {
  check<ValueError>(is_number() || values_.size() == count, layer, argument, " must be one number or ", count, ", got ", values_);
  return values_.size() == count ? values_ : Dims::filled(count, values_[0]);
}

}  // namespace halfstep
