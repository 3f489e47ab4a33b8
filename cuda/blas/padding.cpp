// SPDX-License-Identifier: Apache-2.0
#include "cuda/blas/padding.h"

#include <atomic>

namespace halfstep::cuda {
namespace {

constexpr int64_t kPack = 16;  // bytes

std::atomic<double>& least() {
  static std::atomic<double> multiplications{0x1p30};
  return multiplications;
}

// The dimension along which the rows in memory lie.
int along(const TensorView& v) { return v.strides[1] == 1 ? 1 : 0; }

bool is_aligned(const TensorView& v) {
  const int64_t pitch = v.strides[1 - along(v)] * int64_t(size_of(v.dtype));
  return pitch % kPack == 0 && reinterpret_cast<uintptr_t>(v.data) % kPack == 0;
}

}  // namespace

void set_least_padded_product(double multiplications) { least() = multiplications; }

Padding padding_of(const GemmArgs& g) {
  if (!is_half(g.a.dtype) || g.a.shape.size() != 2 || g.b.shape.size() != 2) return {};
  const double m = double(g.a.shape[0]), k = double(g.a.shape[1]), n = double(g.b.shape[1]);
  if (m * n * k < least()) return {};
  // A copy of an operand reads and writes it once; the product saves 0.005 ns for each of its multiplications.
  constexpr double kUses = 256;
  const auto gains = [&](const TensorView& v, double uses) {
    return uses >= kUses && (v.strides[0] == 1 || v.strides[1] == 1) && !is_aligned(v);
  };
  return {.a = gains(g.a, n), .b = gains(g.b, m), .c = !g.accumulate && gains(g.c, k)};
}

PaddedMatrix::PaddedMatrix(const Queue& q, const TensorView& v, bool filled) : view_(v) {
  const int dense = along(v);
  const int64_t size = int64_t(size_of(v.dtype)), pack = kPack / size, pitch = (v.shape[dense] + pack - 1) / pack * pack;
  view_.strides[1 - dense] = pitch;
  work_.emplace(Device::cuda, size_t(pitch * v.shape[1 - dense] * size));
  view_.data = work_->data();
  if (filled) copy(q, v, view_);
}

}  // namespace halfstep::cuda
