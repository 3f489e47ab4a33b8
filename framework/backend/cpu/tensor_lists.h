// SPDX-License-Identifier: Apache-2.0
// Loops over a list of tensors as if they were one: small tensors share threads, large ones are split.
#pragma once

#include <span>
#include <vector>

#include "framework/backend/cpu/elementwise/loops.h"

namespace halfstep::cpu {

struct TensorPiece {
  size_t tensor;
  int64_t begin, end;
};

inline constexpr int64_t kPart = 16 * kBlock;

// Splits n tensors of size(k) elements each into parts of at most kPart, in order.
template <class Size>
std::vector<TensorPiece> cut(size_t n, const Size& size) {
  std::vector<TensorPiece> parts;
  for (size_t k = 0; k < n; ++k) {
    for (int64_t i = 0, total = size(k); i < total; i += kPart) parts.push_back({k, i, i + kPart < total ? i + kPart : total});
  }
  return parts;
}
inline std::vector<TensorPiece> cut(std::span<const TensorView> tensors) {
  return cut(tensors.size(), [&](size_t k) { return tensors[k].numel(); });
}

// Calls f(part index) on all threads.
template <class F>
void for_parts(const std::vector<TensorPiece>& parts, const F& f) {
  int64_t total = 0;
  for (const TensorPiece& p : parts) total += p.end - p.begin;
  parallel_for(int64_t(parts.size()), 1, total, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(size_t(i));
  });
}

}  // namespace halfstep::cpu
