// SPDX-License-Identifier: Apache-2.0
// Norms, and distances between vectors. Autocast: f32. The gradient of a norm at 0, and of a distance between equal points, is 0.
#pragma once

#include "framework/tensor/tensor.h"

namespace halfstep {

// Returns (sum |x|^p)^(1/p) over dims ({}: all). p may be inf (largest |x|), -inf (smallest), or 0 (number of nonzero elements).
// 16-bit inputs are summed in float32. dtype: of the result, and of the sum if it is wider.
Tensor norm(const Tensor& x, double p = 2, const Dims& dims = {}, bool keepdim = false, std::optional<DType> dtype = {});
// Returns x / max(norm(x), eps) along dim.
Tensor normalize(const Tensor& x, double p = 2, const Dims& dims = {1}, double eps = 1e-12);
// Returns norm(a - b), broadcast.
Tensor dist(const Tensor& a, const Tensor& b, double p = 2);
// Returns norm(a - b + eps) along the last dimension.
Tensor pairwise_distance(const Tensor& a, const Tensor& b, double p = 2, double eps = 1e-6, bool keepdim = false);
struct PairwiseDistanceArguments {  // by name: pairwise_distance(a, b, {.keepdim = true})
  double p = 2;
  double eps = 1e-6;
  bool keepdim = false;
};
inline Tensor pairwise_distance(const Tensor& a, const Tensor& b, const PairwiseDistanceArguments& options) {
  return pairwise_distance(a, b, options.p, options.eps, options.keepdim);
}
// Returns distances between all rows: a [..., P, M], b [..., R, M] -> [..., P, R]; batches broadcast. p >= 0. Above 25 rows, p = 2
// uses a matrix product (as in PyTorch), which loses digits for points much closer to each other than to the origin; `mode` can
// force or forbid it.
enum class CdistMode : uint8_t { mm_if_necessary, mm, no_mm };
Tensor cdist(const Tensor& a, const Tensor& b, double p = 2, CdistMode mode = CdistMode::mm_if_necessary);
// Returns distances between all pairs i < j of the rows of x [N, M] -> [N (N - 1) / 2].
Tensor pdist(const Tensor& x, double p = 2);
// Returns a b / (max(|a|, eps) max(|b|, eps)) along dim, broadcast. Throws ValueError for a negative eps.
Tensor cosine_similarity(const Tensor& a, const Tensor& b, int64_t dim = 1, double eps = 1e-8);
// Scales each slice x[.., i, ..] along dim down to a norm of at most maxnorm.
Tensor renorm(const Tensor& x, double p, int64_t dim, double maxnorm);

}  // namespace halfstep
