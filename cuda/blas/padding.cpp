// SPDX-License-Identifier: Apache-2.0
#include "cuda/blas/padding.h"

#include <atomic>
#include <utility>

#include "framework/backend/product_rows.h"

namespace halfstep::cuda {
namespace {

std::atomic<double>& least_multiplications() {
  static std::atomic<double> multiplications{kAlignedProduct};
  return multiplications;
}

// Returns the dimension along which rows are dense in memory.
int dense_dimension(const TensorView& v) { return v.strides[1] == 1 ? 1 : 0; }

bool starts_aligned(const TensorView& v) {
  return v.strides[1 - dense_dimension(v)] % kProductPack == 0 && reinterpret_cast<uintptr_t>(v.data) % 16 == 0;
}
bool is_aligned(const TensorView& v) { return v.shape[dense_dimension(v)] % kProductPack == 0 && starts_aligned(v); }

// Returns whether g is a large product of 16-bit matrices with dense rows or columns.
bool is_large(const GemmArgs& g) {
  if (!is_half(g.a.dtype) || g.a.shape.size() != 2 || g.b.shape.size() != 2) return false;
  if (double(g.a.shape[0]) * double(g.b.shape[1]) * double(g.a.shape[1]) < least_multiplications()) return false;
  for (const TensorView* v : {&g.a, &g.b, &g.c})
    if (v->strides[0] != 1 && v->strides[1] != 1) return false;
  return true;
}

// Returns the part [begin, end) of v along a dimension.
TensorView part(TensorView v, int dimension, int64_t begin, int64_t end) {
  v.data = static_cast<char*>(v.data) + begin * v.strides[dimension] * int64_t(size_of(v.dtype));
  v.shape[dimension] = end - begin;
  return v;
}
GemmArgs part(const GemmArgs& g, const ProductCut& cut, int64_t begin, int64_t end) {
  GemmArgs out{.a = g.a, .b = g.b, .c = g.c, .bias = g.bias, .accumulate = g.accumulate};
  if (cut.extent == ProductCut::k) {
    out.a = part(g.a, 1, begin, end);
    out.b = part(g.b, 0, begin, end);
    out.accumulate = g.accumulate || begin > 0;
  } else if (cut.extent == ProductCut::m) {
    out.a = part(g.a, 0, begin, end);
    out.c = part(g.c, 0, begin, end);
    if (g.a_row_sum) out.a_row_sum = part(g.a_row_sum, 0, begin, end);
  } else {
    if (g.b_column_sum) out.b_column_sum = part(g.b_column_sum, 0, begin, end);
    out.b = part(g.b, 1, begin, end);
    out.c = part(g.c, 1, begin, end);
    if (g.bias) out.bias = part(g.bias, 0, begin, end);
  }
  return out;
}

}  // namespace

void set_least_padded_product(double multiplications) { least_multiplications() = multiplications; }

int64_t aligned_row(int64_t m, int64_t n, int64_t k, DType dtype) {
  return aligned_product_row(m, n, k, dtype, least_multiplications());
}

ProductCut cut_of(const GemmArgs& g) {
  if (!is_large(g) || !starts_aligned(g.a) || !starts_aligned(g.b) || !starts_aligned(g.c)) return {};
  const auto cut = [](ProductCut::Extent extent, int64_t size, bool dense) {
    const int64_t at = size / kProductPack * kProductPack;
    return dense && at < size && at > 0 ? ProductCut{extent, at} : ProductCut{};
  };
  const bool a = dense_dimension(g.a) == 1, b = dense_dimension(g.b) == 1, c = dense_dimension(g.c) == 1;
  ProductCut found = cut(ProductCut::k, g.a.shape[1], a || !b);
  if (found.extent == ProductCut::none) found = cut(ProductCut::n, g.b.shape[1], b || c);
  if (found.extent == ProductCut::none) found = cut(ProductCut::m, g.a.shape[0], !a || !c);
  return found;
}
GemmArgs before(const GemmArgs& g, const ProductCut& cut) { return part(g, cut, 0, cut.at); }
GemmArgs behind(const GemmArgs& g, const ProductCut& cut) {
  return part(g, cut, cut.at,
              cut.extent == ProductCut::k   ? g.a.shape[1]
              : cut.extent == ProductCut::m ? g.a.shape[0]
                                            : g.b.shape[1]);
}

Padding padding_of(const GemmArgs& g) {
  if (!is_large(g)) return {};
  Padding p{.m = g.a.shape[0], .n = g.b.shape[1], .k = g.a.shape[1]};
  // Uses of each element, in multiplications, that make up for its copy: a copy reads and writes it once, and the product saves
  // 0.005 ns for each multiplication.
  constexpr int64_t kLeastUses = kAlignedInner;
  const bool a = !is_aligned(g.a), b = !is_aligned(g.b), c = !is_aligned(g.c);
  const int64_t m = p.m, n = p.n, k = p.k;
  if (a) (dense_dimension(g.a) == 1 ? p.k : p.m) = whole_product_packs(dense_dimension(g.a) == 1 ? k : m);
  if (b) (dense_dimension(g.b) == 1 ? p.n : p.k) = whole_product_packs(dense_dimension(g.b) == 1 ? n : k);
  if (c) (dense_dimension(g.c) == 1 ? p.n : p.m) = whole_product_packs(dense_dimension(g.c) == 1 ? n : m);
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
  view_.strides[other] = whole_product_packs(view_.shape[dense]);
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
