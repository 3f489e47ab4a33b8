// SPDX-License-Identifier: Apache-2.0
// A parametrization that keeps a matrix orthogonal while it is trained (layers/module/parametrize.h):
//
//   Part<Linear> fc{this, "fc", orthogonal(Linear(64, 64))};
//   orthogonal(layer, "weight", {.orthogonal_map = "cayley", .use_trivialization = false});
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <utility>

#include "layers/module/parametrize.h"

namespace halfstep {

struct OrthogonalOptions {
  std::optional<std::string> orthogonal_map = {};  // "matrix_exp", "cayley", "householder"; unset: see orthogonal()
  bool use_trivialization = true;
};
// Keeps a weight [..., m, n] orthogonal: Q^T Q = 1 if m >= n, Q Q^T = 1 if m < n. With the lower triangle L of the original,
//   matrix_exp    Q = exp(A), A = L - L^T
//   cayley        Q = (1 + A / 2) (1 - A / 2)^-1
//   householder   Q is the product of the reflections by the columns of L, with a diagonal of ones. The signs of the
//                 original's diagonal are those of Q's columns, and are not trained.
// With use_trivialization the result is multiplied by the buffer `base`, and an assigned value becomes the base (Lezcano-Casado,
// "Trivializations for Gradient-Based Optimization on Manifolds", 2019); without, only householder accepts assignments. An
// assigned value that is not orthogonal is replaced by the Q of its QR decomposition in which the diagonal of R is not negative.
// Computes in float32 in a region too; LAPACK computes on the host. Throws ShapeError for a weight of fewer than 2 dimensions,
// DTypeError for integers, ValueError for another map.
class Orthogonal : public Module {
 public:
  explicit Orthogonal(const Tensor& weight, const OrthogonalOptions& options = {});
  Tensor forward(const Tensor& original) override;
  Tensor right_inverse(const Tensor& value);  // throws ShapeError if the shape is not the weight's
  bool has_right_inverse() const { return options_.use_trivialization || *options_.orthogonal_map == "householder"; }
  std::string describe() const override { return "_Orthogonal()"; }

 private:
  OrthogonalOptions options_;
  Shape shape_;
  ModuleBuffer base_;
};

// Uses matrix_exp for square matrices and householder for others unless a map is given.
template <class M>
M orthogonal(M&& module, const std::string& name = "weight", const OrthogonalOptions& options = {}) {
  Orthogonal made(ParametrizationList::value_of(module_in(module), name), options);
  return register_parametrization(std::forward<M>(module), name, std::move(made), /*unsafe=*/true);
}
template <class M, std::convertible_to<std::string> Map>
M orthogonal(M&& module, const std::string& name, const Map& orthogonal_map, bool use_trivialization = true) {
  return orthogonal(std::forward<M>(module), name, OrthogonalOptions{orthogonal_map, use_trivialization});
}

}  // namespace halfstep
