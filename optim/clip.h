// SPDX-License-Identifier: Apache-2.0
// What torch.nn.utils does with a list of parameters: gradient clipping, and parameters as one vector. Before clipping under a
// GradScaler call scaler.unscale_(optimizer): the bound is for true gradients.
#pragma once

#include <concepts>
#include <initializer_list>
#include <iterator>
#include <utility>
#include <vector>

#include "framework/tensor/tensor.h"

namespace halfstep {

// The parameters of a call: one tensor, a list of tensors, or any range of them.
class ParameterRange {
 public:
  ParameterRange(const Tensor& one) : all_{one} {}
  ParameterRange(std::vector<Tensor> all) : all_(std::move(all)) {}
  ParameterRange(std::initializer_list<Tensor> all) : all_(all) {}
  template <class Range>
    requires(!std::convertible_to<const Range&, std::vector<Tensor>> && !std::convertible_to<const Range&, Tensor>) &&
            requires(const Range& all) {
              { *std::begin(all) } -> std::convertible_to<const Tensor&>;
            }
  ParameterRange(const Range& all) {
    for (const Tensor& p : all) all_.push_back(p);
  }
  operator const std::vector<Tensor>&() const { return all_; }
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }
  bool empty() const { return all_.empty(); }

 private:
  std::vector<Tensor> all_;
};

// Scales all gradients by min(1, max_norm / (norm + 1e-6)), norm = the norm_type-norm over all of them (inf: largest |g|).
// Returns the norm, 0-dim f32 on the device; no host read unless error_if_nonfinite.
Tensor clip_grad_norm_(const ParameterRange& params, double max_norm, double norm_type = 2, bool error_if_nonfinite = false);
template <std::same_as<bool> Flag>
Tensor clip_grad_norm_(const ParameterRange& params, double max_norm, Flag) = delete;  // error_if_nonfinite is the fourth
// Clamps every gradient element to [-clip_value, clip_value].
void clip_grad_value_(const ParameterRange& params, double clip_value);
// Adaptive clipping (Brock et al., "High-Performance Large-Scale Image Recognition Without Normalization", 2021): the gradient of
// each unit is scaled by min(1, clip_factor max(|w|, eps) / |g|), with w the unit's weights and |.| the 2-norm. A unit is w[i] of a
// parameter of two dimensions or more, and the whole of any other. The paper leaves the last layer out: pass the rest. Of gradients
// in 16 bits too, in float32. No host read.
void clip_grad_agc_(const ParameterRange& params, double clip_factor, double eps = 1e-3);
// The norm_type-norm over all gradients, as clip_grad_norm_ returns it; changes nothing.
Tensor grad_norm(const ParameterRange& params, double norm_type = 2);

// All elements of the parameters, one parameter after the other: [n], differentiable. Throws ValueError for no parameters.
Tensor parameters_to_vector(const ParameterRange& params);
// Copies the elements of `vector`, [n], into the parameters, in the same order, converted to their dtypes; nothing is recorded.
// Throws ShapeError unless it has as many elements as they have together.
void vector_to_parameters(const Tensor& vector, const ParameterRange& params);

}  // namespace halfstep
