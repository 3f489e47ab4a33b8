// SPDX-License-Identifier: Apache-2.0
#include "cuda/blas/padding.h"

#include <atomic>
#include <utility>

namespace halfstep::cuda {
namespace {

constexpr int64_t kPack = 8;  // 16-bit elements in 16 bytes

std::atomic<double>& least_multiplications() {
  static std::atomic<double> multiplications{0x1p30};
  return multiplications;
}

int64_t padded(int64_t extent) { return (extent + kPack - 1) / kPack * kPack; }

// Returns the dimension along which rows are dense in memory.
int dense_dimension(const TensorView& v) { return v.strides[1] == 1 ? 1 : 0; }

bool is_aligned(const TensorView& v) {
  return v.shape[dense_dimension(v)] % kPack == 0 && v.strides[1 - dense_dimension(v)] % kPack == 0 &&
         reinterpret_cast<uintptr_t>(v.data) % 16 == 0;
}

}  // namespace

void set_least_padded_product(double multiplications) { least_multiplications() = multiplications; }

Padding padding_of(const GemmArgs& g) {
  if (!is_half(g.a.dtype) || g.a.shape.size() != 2 || g.b.shape.size() != 2) return {};
  Padding p{.m = g.a.shape[0], .n = g.b.shape[1], .k = g.a.shape[1]};
  if (double(p.m) * double(p.n) * double(p.k) < least_multiplications()) return {};
  for (const TensorView* v : {&g.a, &g.b, &g.c})
    if (v->strides[0] != 1 && v->strides[1] != 1) return {};
  // Uses of each element, in multiplications, that make up for its copy: a copy reads and writes it once, and the product saves
  // 0.005 ns for each multiplication.
  constexpr int64_t kLeastUses = 256;
  const bool a = !is_aligned(g.a), b = !is_aligned(g.b), c = !is_aligned(g.c);
  const int64_t m = p.m, n = p.n, k = p.k;
  if (a) (dense_dimension(g.a) == 1 ? p.k : p.m) = padded(dense_dimension(g.a) == 1 ? k : m);
  if (b) (dense_dimension(g.b) == 1 ? p.n : p.k) = padded(dense_dimension(g.b) == 1 ? n : k);
  if (c) (dense_dimension(g.c) == 1 ? p.n : p.m) = padded(dense_dimension(g.c) == 1 ? n : m);
  p.a = a || p.m != m || p.k != k;
  p.b = b || p.k != k || p.n != n;
  p.c = c || p.m != m || p.n != n;
  const bool gains = (!p.a || n >= kLeastUses) && (!p.b || m >= kLeastUses) && (!p.c || (k >= kLeastUses && !g.accumulate));
  return gains ? p : Padding{};
}

PaddedMatrix::PaddedMatrix(const Queue& q, const TensorView& v, int64_t rows, int64_t columns, bool filled)
    : view_(v), given_(v.shape) {
  const int dense = dense_dimension(v), other = 1 - dense;
  view_.shape = {rows, columns};
  view_.strides[other] = padded(view_.shape[dense]);
  work_.emplace(Device::cuda, size_t(view_.strides[other] * view_.shape[other]) * size_of(v.dtype));
  view_.data = work_->data();
  if (!filled) return;
  copy(q, v, given_part());
  for (int d = 0; d < 2; ++d) {  // the rows below, the columns to the right
    TensorView rest = view_;
    rest.shape[d] = view_.shape[d] - given_[d];
    rest.data = static_cast<char*>(view_.data) + given_[d] * view_.strides[d] * int64_t(size_of(v.dtype));
    if (dense == 0) {  // in memory order, where whole rows are contiguous
      std::swap(rest.shape[0], rest.shape[1]);
      std::swap(rest.strides[0], rest.strides[1]);
    }
    fill(q, rest, 0);
  }
}

TensorView PaddedMatrix::given_part() const {
  TensorView part = view_;
  part.shape = given_;
  return part;
}

}  // namespace halfstep::cuda
