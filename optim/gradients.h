// SPDX-License-Identifier: Apache-2.0
// Parameters in a call, their gradients, and these as kernels want them.
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
  ParameterRange() = default;
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

// The gradients of parameters for what needs true ones, such as clipping: what GradScaler::unscale_ returns, or any list of
// parameters whose gradients are not multiplied by a scaler's scale.
class Gradients : public ParameterRange {
 public:
  using ParameterRange::ParameterRange;
  Gradients() = default;
  // Throws AmpError for `op` where one is multiplied by a scale.
  void check_true(const char* op) const;
};
// Declares the gradients of `params` to be true ones again.
void mark_unscaled(const std::vector<Tensor>& params);

// The gradients of those `params` that have one, safe to write element by element: one whose elements overlap (an expanded
// tensor), or does not lie as its parameter does where `contiguous`, is first replaced in its parameter by a dense copy. `raw`: in
// the dtype that backward left them in.
Tensors gradients_of(const std::vector<Tensor>& params, bool contiguous = false, bool raw = false);

std::vector<TensorView> views_of(const Tensors& tensors);

}  // namespace halfstep
