// SPDX-License-Identifier: Apache-2.0
// Sizes and strides of a tensor: up to kMaxDims numbers without an allocation.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

namespace halfstep {

inline constexpr int kMaxDims = 8;

// A short list of int64: a shape, strides, or a list of dimensions.
class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<int64_t> values) : Dims(std::span<const int64_t>(values.begin(), values.size())) {}
  // Makes a list of one number: sum(x, -1), zeros(3). Excludes bool, which would be a misplaced keepdim.
  template <std::integral T>
    requires(!std::is_same_v<T, bool>)
  Dims(T one) : Dims({int64_t(one)}) {}
    explicit Dims(std::span<const int64_t> values);  // throws ShapeError above kMaxDims
    Dims(const std::vector<int64_t>& values) : Dims(std::span<const int64_t>(values)) {}
    static Dims filled(int count, int64_t value);

    int size() const { return size_; }
    bool empty() const { return size_ == 0; }
    // Returns element i; -1 is the last one. Throws IndexError beyond size().
    int64_t& operator[](int64_t i) { return values_[checked_index(i)]; }
    int64_t operator[](int64_t i) const { return values_[checked_index(i)]; }
    int64_t* begin() { return values_.data(); }
    int64_t* end() { return values_.data() + size_; }
    const int64_t* begin() const { return values_.data(); }
    const int64_t* end() const { return values_.data() + size_; }
    int64_t back() const { return (*this)[-1]; }
    std::span<const int64_t> span() const { return {values_.data(), size_t(size_)}; }

    void push_back(int64_t x);       // throws ShapeError above kMaxDims
    void insert(int at, int64_t x);  // before index `at`, which may be size(); these two throw IndexError
    void erase(int at);
    bool operator==(const Dims& o) const;

   private:
    size_t checked_index(int64_t i) const { return uint64_t(i) < uint64_t(size_) ? size_t(i) : from_end(i); }
    size_t from_end(int64_t i) const;
    std::array<int64_t, kMaxDims> values_{};
    int size_ = 0;
};

using Shape = Dims;
using Strides = Dims;

std::ostream& operator<<(std::ostream& out, const Dims& d);  // [2, 3]

int64_t numel(const Shape& shape);                    // 1 for []
Shape with_batch(int64_t size, const Shape& sample);  // [size, sample...]
Shape without_batch(const Shape& batch);              // all but dimension 0
// Throws ShapeError, naming `op`, for a negative size, or if the nonzero sizes multiply to 2^56 or more. So byte counts and
// strides do not overflow.
void check_size(std::string_view op, const Shape& shape);
Strides contiguous_strides(const Shape& shape);
bool is_contiguous(const Shape& shape, const Strides& strides);

// Order of the elements of images [N, C, H, W] or volumes [N, C, D, H, W] in memory: row by row within each channel, or all
// channels of a pixel side by side, as in [N, H, W, C]. The shape is the same in both. These are PyTorch's channels_last and
// channels_last_3d.
enum class MemoryFormat : uint8_t { contiguous, channels_last };
Strides strides_of(const Shape& shape, MemoryFormat format);  // contiguous strides for a shape of another rank
bool is_contiguous(const Shape& shape, const Strides& strides, MemoryFormat format);
// Returns channels_last if the elements have that order and are not contiguous as well, as in images of one channel or one pixel.
// Otherwise returns contiguous, whatever the strides are.
MemoryFormat format_of(const Shape& shape, const Strides& strides);
// Returns sizes or strides in the order of memory: [N, C, H, W] -> [N, H, W, C] for channels_last.
Dims in_memory_order(const Dims& d, MemoryFormat format);
std::ostream& operator<<(std::ostream& out, MemoryFormat format);  // channels_last

// Returns the shape after NumPy broadcasting; throws ShapeError naming `op` and both shapes.
Shape broadcast(const Shape& a, const Shape& b, std::string_view op);
// Returns strides that read `shape` as `target`, 0 for repeated dimensions. `shape` must broadcast to `target`.
Strides broadcast_strides(const Shape& shape, const Strides& strides, const Shape& target);

// Maps -rank <= dim < rank to 0 <= result < rank; throws IndexError naming `op`. Rank 0 counts as rank 1.
int wrap_dim(int64_t dim, int rank, std::string_view op);

// Arguments for the dimensions of a window: one number for all of them, or one each.
// MaxPool2d(3), Conv2d(3, 8, {3, 2}). Empty: not given.
class Sizes {
 public:
  Sizes() = default;
  template <std::integral T>
  requires(!std::same_as<T, bool>) Sizes(T all) : values_{int64_t(all)}, is_number_(true) {}
  // {3, 2}. Not of a std::initializer_list: GCC would take {.stride = 2} for one.
  template <std::integral First, std::integral... Rest>
  requires(sizeof...(Rest) > 0) Sizes(First first, Rest... rest) : values_{int64_t(first), int64_t(rest)...} {}
  Sizes(const Dims& each) : values_(each) {}

  bool empty() const { return values_.empty(); }
  bool is_number() const { return is_number_; }
  const Dims& values() const { return values_; }
  bool operator==(const Sizes&) const = default;
  // Returns one number for each of `count` dimensions. Throws ValueError, naming `layer` and the argument, for another number of
  // them.
  Dims each(int count, std::string_view layer, std::string_view argument) const;

 private:
  Dims values_;
  bool is_number_ = false;
};

}  // namespace halfstep
