// SPDX-License-Identifier: Apache-2.0
// Loops over a list of tensors as if they were one: small tensors share threads, large ones are split.
#pragma once

#include <span>
#include <vector>

#include "framework/backend/cpu/elementwise/loops.h"

namespace halfstep::cpu {

// Elements [begin, end) of a tensor of the list.
struct TensorPiece {
  size_t tensor;
  int64_t begin, end;
};

inline constexpr int64_t kPieceSize = 16 * kBlock;

// Splits `count` tensors, where the k-th has size(k) elements, into pieces of at most kPieceSize elements, in order.
template <class Size>
std::vector<TensorPiece> pieces_of(size_t count, const Size& size) {
  std::vector<TensorPiece> pieces;
  for (size_t k = 0; k < count; ++k) {
    for (int64_t i = 0, total = size(k); i < total; i += kPieceSize)
      pieces.push_back({k, i, i + kPieceSize < total ? i + kPieceSize : total});
  }
  return pieces;
}
inline std::vector<TensorPiece> pieces_of(std::span<const TensorView> tensors) {
  return pieces_of(tensors.size(), [&](size_t k) { return tensors[k].numel(); });
}

// Calls f(index of a piece) for all pieces, on several threads if that pays.
template <class F>
void for_pieces(const std::vector<TensorPiece>& pieces, const F& f) {
  int64_t total = 0;
  for (const TensorPiece& p : pieces) total += p.end - p.begin;
  parallel_for(int64_t(pieces.size()), 1, total, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(size_t(i));
  });
}

}  // namespace halfstep::cpu
