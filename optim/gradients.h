// SPDX-License-Identifier: Apache-2.0
// Parameters as arguments, and their gradients as kernels need them.
#pragma once

#include <concepts>
#include <initializer_list>
#include <iterator>
#include <utility>
#include <vector>

#include "framework/tensor/tensor.h"

namespace halfstep {

// Parameters as an argument: one tensor, a list of tensors, or any range of them.
class ParameterRange {
 public:
  ParameterRange() = default;
  ParameterRange(const Tensor& param) : params_{param} {}
  ParameterRange(std::vector<Tensor> params) : params_(std::move(params)) {}
  ParameterRange(std::initializer_list<Tensor> params) : params_(params) {}
  template <class Range>
  requires(!std::convertible_to<const Range&, std::vector<Tensor>> && !std::convertible_to<const Range&, Tensor>) &&
      requires(const Range& params) {
    { *std::begin(params) } -> std::convertible_to<const Tensor&>;
  }
  ParameterRange(const Range& params) {
    for (const Tensor& p : params) params_.push_back(p);
  }
  operator const std::vector<Tensor>&() const { return params_; }
  auto begin() const { return params_.begin(); }
  auto end() const { return params_.end(); }
  bool empty() const { return params_.empty(); }

 private:
  std::vector<Tensor> params_;
};

// Gradients that are not multiplied by a scaler's scale, as clipping needs: the result of GradScaler::unscale_, or any list of
// parameters with such gradients.
class Gradients : public ParameterRange {
 public:
  using ParameterRange::ParameterRange;
  Gradients() = default;
  // Throws AmpError for `op` if one is multiplied by a scale.
  void check_unscaled(const char* op) const;
};
// Clips the norm of all gradients together to max_norm. norm: that of the unscaled gradients, 0-dim f32 on the device; undefined:
// nothing is clipped.
struct NormClip {
  Tensor norm = {};
  double max_norm = 0;
};
// Throws AmpError if the gradient of a parameter is a sum of gradients with different scales, or with and without one.
void check_one_scale(const Tensor& param);
// Declares that the gradients of `params` are not multiplied by a scale any more.
void mark_unscaled(const std::vector<Tensor>& params);

// Returns the gradients of those `params` that have one, safe to write element by element: a gradient whose elements overlap (an
// expanded tensor), or whose layout differs from its parameter's if `contiguous`, is replaced in its parameter by a dense copy.
// `raw`: keeps the dtype that backward produced.
Tensors gradients_of(const std::vector<Tensor>& params, bool contiguous = false, bool raw = false);

std::vector<TensorView> views_of(const Tensors& tensors);

}  // namespace halfstep
