// SPDX-License-Identifier: Apache-2.0
// Comparison of an op in one pass with the ops that it replaces.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <string>

#include "framework/tensor/tensor.h"

namespace halfstep {

// Returns the bytes of t in row-major order; empty for an undefined tensor.
inline std::string bytes_of(const Tensor& t) {
  if (!t.defined()) return {};
  const Tensor dense = t.detach().contiguous();
  return {static_cast<const char*>(dense.const_data_ptr()), size_t(dense.numel()) * size_of(dense.dtype())};
}

// Checks that both have the same tensors: defined or not, dtype, memory format and bits.
inline void check_same_bits(const Tensors& fused, const Tensors& plain) {
  REQUIRE(fused.size() == plain.size());
  for (size_t i = 0; i < plain.size(); ++i) {
    CAPTURE(i);
    CHECK(fused[i].defined() == plain[i].defined());
    if (!fused[i].defined() || !plain[i].defined()) continue;
    CHECK(fused[i].dtype() == plain[i].dtype());
    CHECK(fused[i].format() == plain[i].format());
    CHECK(bytes_of(fused[i]) == bytes_of(plain[i]));
  }
}

}  // namespace halfstep
