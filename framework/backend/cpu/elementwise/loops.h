// SPDX-License-Identifier: Apache-2.0
// Elementwise loops over tensors of any dtype, strides and broadcasting: kernels see only dense blocks of one compute type.
#pragma once

#include <initializer_list>
#include <span>

#include "framework/backend/cpu/convert/convert.h"
#include "framework/backend/cpu/parallel.h"

namespace halfstep::cpu {

inline constexpr int kMaxOperands = 5;

// One iteration space for several tensors of equal shape. Neighbouring dimensions are merged if their strides allow it in all
// tensors, and those of size 1 are omitted. Dimension rank - 1 is innermost. rank is at least 1.
struct Space {
  int rank = 1;
  int64_t numel = 1;
  int64_t shape[kMaxDims] = {1};
  int64_t strides[kMaxOperands][kMaxDims] = {};

  Space(const Shape& dims, std::span<const Strides* const> operands);
  Space(const Shape& dims, std::initializer_list<const Strides*> operands)
      : Space(dims, std::span<const Strides* const>(operands.begin(), operands.size())) {}
  bool dense(int operand) const { return rank == 1 && (strides[operand][0] == 1 || shape[0] == 1); }
  bool constant(int operand) const;  // whether every stride is 0
};

// A position in one operand of a space: the element with row-major index `linear`.
class Cursor {
 public:
  Cursor(const Space& space, int operand, int64_t linear);
  int64_t offset() const { return offset_; }  // in elements from the first one
  int64_t row_left() const { return space_.shape[space_.rank - 1] - at_[space_.rank - 1]; }
  int64_t stride() const { return strides_[space_.rank - 1]; }  // along the row
  void advance(int64_t n);                                      // n <= row_left()

 private:
  const Space& space_;
  const int64_t* strides_;
  int64_t at_[kMaxDims];
  int64_t offset_ = 0;
};

// Returns n elements of an operand from row-major index `start` as C: in place if they are dense there, else in `buffer`.
template <class C>
const C* fetch(const Space& space, int operand, const TensorView& view, int64_t start, int64_t n, C* buffer);
// Writes a buffer back; the inverse of fetch.
template <class C>
void put(const Space& space, int operand, const TensorView& view, int64_t start, int64_t n, const C* buffer);

// A loop over n elements: computes out[i] from in[k][i], with its context.
template <class C, class Out = C>
using ElementLoop = void (*)(const C* const* in, Out* out, int64_t n, const void* context);

// Computes out = loop(in...), on several threads if that pays. `is_heavy`: an element costs much more than reading it. A loop gets
// any number of elements if all tensors have the type and density that it needs, else at most kBlock. C may be bf16 or bool if all
// tensors are, and Out bool if out is.
template <class C, class Out = C>
void map(const TensorView& out, std::span<const TensorView> in, ElementLoop<C, Out> loop, const void* context = nullptr,
         bool is_heavy = false);

// The loops of an op that computes in float, over tensors of float and of bfloat16. The second one widens and rounds in registers,
// because passes over bfloat16 through float buffers take longer than reading it; null if the op takes several passes.
struct SingleLoops {
  ElementLoop<float> in_float;
  ElementLoop<bf16> in_bf16;
};
void map(const TensorView& out, std::span<const TensorView> in, const SingleLoops& loops, const void* context = nullptr,
         bool is_heavy = false);

inline char* at(const TensorView& v, int64_t elements) {
  return v.data ? static_cast<char*>(v.data) + elements * int64_t(size_of(v.dtype)) : nullptr;  // an empty tensor may have no data
}

}  // namespace halfstep::cpu
