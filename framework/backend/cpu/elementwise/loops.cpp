// SPDX-License-Identifier: Apache-2.0
#include "framework/backend/cpu/elementwise/loops.h"

#include <algorithm>
#include <array>

namespace halfstep::cpu {

Space::Space(const Shape& dims, std::span<const Strides* const> operands) {
  rank = 0;
  const int count = int(operands.size());
  for (int d = 0; d < dims.size(); ++d) {
    numel *= dims[d];
    if (dims[d] == 1) continue;
    bool merges = rank > 0;
    for (int k = 0; k < count; ++k) merges = merges && strides[k][rank - 1] == (*operands[size_t(k)])[d] * dims[d];
    const int into = merges ? rank - 1 : rank++;
    shape[into] = merges ? shape[into] * dims[d] : dims[d];
    for (int k = 0; k < count; ++k) strides[k][into] = (*operands[size_t(k)])[d];
  }
  if (rank == 0) {
    rank = 1;
    shape[0] = 1;
    for (int k = 0; k < count; ++k) strides[k][0] = 1;
  }
}

bool Space::constant(int operand) const {
  for (int d = 0; d < rank; ++d) {
    if (strides[operand][d] != 0) return false;
  }
  return true;
}

Cursor::Cursor(const Space& space, int operand, int64_t linear) : space_(space), strides_(space.strides[operand]) {
  for (int d = space.rank - 1; d > 0; --d) {
    at_[d] = linear % space.shape[d];
    linear /= space.shape[d];
    offset_ += at_[d] * strides_[d];
  }
  at_[0] = linear;
  offset_ += linear * strides_[0];
}

void Cursor::advance(int64_t n) {
  int d = space_.rank - 1;
  at_[d] += n;
  offset_ += n * strides_[d];
  while (d > 0 && at_[d] == space_.shape[d]) {
    offset_ += strides_[d - 1] - at_[d] * strides_[d];
    at_[d] = 0;
    ++at_[--d];
  }
}

template <class C>
const C* fetch(const Space& space, int operand, const TensorView& view, int64_t start, int64_t n, C* buffer) {
  Cursor cursor(space, operand, start);
  if (view.dtype == dtype_of<C> && cursor.stride() == 1 && cursor.row_left() >= n) return view.as<const C>() + cursor.offset();
  for (int64_t done = 0; done < n;) {
    const int64_t part = std::min(n - done, cursor.row_left());
    load<C>(view.dtype, at(view, cursor.offset()), cursor.stride(), buffer + done, part);
    cursor.advance(part);
    done += part;
  }
  return buffer;
}

template <class C>
void put(const Space& space, int operand, const TensorView& view, int64_t start, int64_t n, const C* buffer) {
  Cursor cursor(space, operand, start);
  for (int64_t done = 0; done < n;) {
    const int64_t part = std::min(n - done, cursor.row_left());
    store<C>(view.dtype, buffer + done, at(view, cursor.offset()), cursor.stride(), part);
    cursor.advance(part);
    done += part;
  }
}

template <class C, class Out>
void map(const TensorView& out, std::span<const TensorView> in, ElementLoop<C, Out> loop, const void* context, bool is_heavy) {
  std::array<const Strides*, kMaxOperands> strides{&out.strides};
  for (size_t k = 0; k < in.size(); ++k) strides[k + 1] = &in[k].strides;
  const Space space(out.shape, std::span(strides).first(in.size() + 1));
  if (space.numel == 0) return;

  const int64_t work = is_heavy ? space.numel * 16 : space.numel;
  const bool out_direct = out.dtype == dtype_of<Out>;
  bool straight = out_direct && space.dense(0);
  for (size_t k = 0; k < in.size(); ++k) straight = straight && in[k].dtype == dtype_of<C> && space.dense(int(k) + 1);
  if (straight) {
    return parallel_for(space.numel, kBlock, work, [&](int64_t begin, int64_t end) {
      const C* sources[kMaxOperands] = {};
      for (size_t k = 0; k < in.size(); ++k) sources[k] = in[k].as<const C>() + begin;
      loop(sources, out.as<Out>() + begin, end - begin, context);
    });
  }

  const int64_t row = space.shape[space.rank - 1];
  // Blocks that end with a row need no gathering; short rows are gathered into full blocks.
  const bool by_row = space.rank > 1 && row >= 128;
  const int count = int(in.size());

  parallel_for(space.numel, kBlock, work, [&](int64_t begin, int64_t end) {
    alignas(64) C buffers[kMaxOperands][kBlock];
    alignas(64) Out out_buffer[kBlock];
    const C* sources[kMaxOperands] = {};
    bool constant[kMaxOperands] = {};
    for (int k = 0; k < count; ++k) {
      constant[k] = space.constant(k + 1);
      if (constant[k]) load<C>(in[size_t(k)].dtype, in[size_t(k)].data, 0, buffers[k], std::min(kBlock, end - begin));
      sources[k] = buffers[k];
    }
    for (int64_t i = begin; i < end;) {
      int64_t n = std::min(kBlock, end - i);
      if (by_row) n = std::min(n, row - i % row);
      for (int k = 0; k < count; ++k) {
        if (!constant[k]) sources[k] = fetch<C>(space, k + 1, in[size_t(k)], i, n, buffers[k]);
      }
      Out* target = out_buffer;
      bool in_place = false;
      if (out_direct) {
        const Cursor cursor(space, 0, i);
        in_place = cursor.stride() == 1 && cursor.row_left() >= n;
        if (in_place) target = out.as<Out>() + cursor.offset();
      }
      loop(sources, target, n, context);
      if (!in_place) put<Out>(space, 0, out, i, n, target);
      i += n;
    }
  });
}

void map(const TensorView& out, std::span<const TensorView> in, const SingleLoops& loops, const void* context, bool is_heavy) {
  bool in_bf16 = loops.in_bf16 && out.dtype == DType::bf16;
  for (const TensorView& v : in) in_bf16 = in_bf16 && v.dtype == DType::bf16;
  if (in_bf16) return map<bf16>(out, in, loops.in_bf16, context, is_heavy);
  map<float>(out, in, loops.in_float, context, is_heavy);
}

#define HS_INSTANTIATE(C)                                                                 \
  template const C* fetch<C>(const Space&, int, const TensorView&, int64_t, int64_t, C*); \
  template void put<C>(const Space&, int, const TensorView&, int64_t, int64_t, const C*); \
  template void map<C, C>(const TensorView&, std::span<const TensorView>, ElementLoop<C>, const void*, bool);
HS_INSTANTIATE(float)
HS_INSTANTIATE(double)
HS_INSTANTIATE(int64_t)
HS_INSTANTIATE(bf16)
HS_INSTANTIATE(bool)
#undef HS_INSTANTIATE
template void map<float, bool>(const TensorView&, std::span<const TensorView>, ElementLoop<float, bool>, const void*, bool);
template void map<double, bool>(const TensorView&, std::span<const TensorView>, ElementLoop<double, bool>, const void*, bool);
template void map<int64_t, bool>(const TensorView&, std::span<const TensorView>, ElementLoop<int64_t, bool>, const void*, bool);

}  // namespace halfstep::cpu
