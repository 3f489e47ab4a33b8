// SPDX-License-Identifier: Apache-2.0
// Elementwise loops over tensors of any dtype, strides and broadcasting: kernels see only dense blocks of one compute type.
#pragma once

#include <initializer_list>
#include <span>

#include "framework/backend/cpu/convert/convert.h"
#include "framework/backend/cpu/simd.h"

namespace halfstep::cpu {

inline constexpr int kMaxOperands = 5;

// One iteration space for several tensors of equal shape: dimensions that all of them walk through in one go are merged,
// those of size 1 dropped. Dimension rank - 1 is innermost. rank is at least 1.
struct Space {
  int rank = 1;
  int64_t numel = 1;
  int64_t shape[kMaxDims] = {1};
  int64_t strides[kMaxOperands][kMaxDims] = {};

  Space(const Shape& dims, std::span<const Strides* const> operands);
  Space(const Shape& dims, std::initializer_list<const Strides*> operands)
      : Space(dims, std::span<const Strides* const>(operands.begin(), operands.size())) {}
  bool dense(int operand) const { return rank == 1 && (strides[operand][0] == 1 || shape[0] == 1); }
  bool constant(int operand) const;  // every stride is 0
};

// A position in one operand of a space: the element with row-major index `linear`.
class Cursor {
 public:
  Cursor(const Space& space, int operand, int64_t linear);
  int64_t offset() const { return offset_; }  // in elements from the first
  int64_t row_left() const { return space_.shape[space_.rank - 1] - at_[space_.rank - 1]; }
  int64_t stride() const { return strides_[space_.rank - 1]; }  // along the row
  void advance(int64_t n);                                      // n <= row_left()

 private:
  const Space& space_;
  const int64_t* strides_;
  int64_t at_[kMaxDims];
  int64_t offset_ = 0;
};

// n elements of an operand from row-major index `start`, as C: in place when they lie there densely, else in `buffer`.
template <class C>
const C* fetch(const Space& space, int operand, const TensorView& view, int64_t start, int64_t n, C* buffer);
// The inverse of a fetch into a buffer.
template <class C>
void put(const Space& space, int operand, const TensorView& view, int64_t start, int64_t n, const C* buffer);

// A kernel: out[i] from in[k][i], i < n, with a context of its own.
template <class C, class Out = C>
using Chunk = void (*)(const C* const* in, Out* out, int64_t n, const void* context);

// out = chunk(in...), on all threads. `heavy`: an element costs much more than reading it. A chunk is given
// any number of elements where all lie as it wants them, else at most kBlock. C may be bf16 or bool
// where all tensors are, and Out bool where out is.
template <class C, class Out = C>
void map(const TensorView& out, std::span<const TensorView> in, Chunk<C, Out> chunk, const void* context = nullptr,
         bool heavy = false);

// A kernel that computes in float. `brief` widens and rounds in registers, as passes over bfloat16 through buffers of floats take
// longer than reading it; none where a row is made in several passes.
struct SingleChunk {
  Chunk<float> plain;
  Chunk<bf16> brief;
};
void map(const TensorView& out, std::span<const TensorView> in, const SingleChunk& chunk, const void* context = nullptr,
         bool heavy = false);

inline char* at(const TensorView& v, int64_t elements) {
  return v.data ? static_cast<char*>(v.data) + elements * int64_t(size_of(v.dtype)) : nullptr;  // an empty tensor may have none
}

}  // namespace halfstep::cpu
