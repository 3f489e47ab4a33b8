// SPDX-License-Identifier: Apache-2.0
// Norms, and distances between vectors. Autocast: f32. The gradient of a norm where it is 0, and of a distance between equal
// points, is 0.
#pragma once

#include "framework/tensor/tensor.h"

namespace halfstep {

// (sum |x|^p)^(1/p) over dims ({}: all). p may be inf (largest |x|), -inf (smallest), 0 (how many are not 0). 16-bit inputs are
// summed in float32. dtype: of the result, and of the sum where it is wider.
Tensor norm(const Tensor& x, double p = 2, const Dims& dims = {}, bool keepdim = false, std::optional<DType> dtype = {});
// x / max(norm(x), eps) along dim.
Tensor normalize(const Tensor& x, double p = 2, const Dims& dims = {1}, double eps = 1e-12);
// norm(a - b), broadcast.
Tensor dist(const Tensor& a, const Tensor& b, double p = 2);
// norm(a - b + eps) along the last dimension.
Tensor pairwise_distance(const Tensor& a, const Tensor& b, double p = 2, double eps = 1e-6, bool keepdim = false);
struct PairwiseDistanceArguments {  // by name: pairwise_distance(a, b, {.keepdim = true})
  double p = 2;
  double eps = 1e-6;
  bool keepdim = false;
};
inline Tensor pairwise_distance(const Tensor& a, const Tensor& b, const PairwiseDistanceArguments& o) {
  return pairwise_distance(a, b, o.p, o.eps, o.keepdim);
}
// Between all rows: a [..., P, M], b [..., R, M] -> [..., P, R]; batches broadcast. p >= 0. Above 25 rows, p = 2 goes through a
// matrix product (as in PyTorch), which loses digits between points much closer to each other than to the origin; `mode` may ask
// for it always or never.
enum class CdistMode : uint8_t { mm_if_necessary, mm, no_mm };
Tensor cdist(const Tensor& a, const Tensor& b, double p = 2, CdistMode mode = CdistMode::mm_if_necessary);
// Between all pairs i < j of the rows of x [N, M] -> [N (N - 1) / 2].
Tensor pdist(const Tensor& x, double p = 2);
// a b / (max(|a|, eps) max(|b|, eps)) along dim, broadcast. Throws ValueError for a negative eps.
Tensor cosine_similarity(const Tensor& a, const Tensor& b, int64_t dim = 1, double eps = 1e-8);
// Each slice x[.., i, ..] along dim scaled so that its norm is at most maxnorm.
Tensor renorm(const Tensor& x, double p, int64_t dim, double maxnorm);

}  // namespace halfstep
