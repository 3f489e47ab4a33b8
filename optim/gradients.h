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

// Gradients that are not multiplied by a scaler's scale, as clipping needs: the result of GradScaler::unscale_, or any list of
// parameters with such gradients.
class Gradients : public ParameterRange {
 public:
  using ParameterRange::ParameterRange;
  Gradients() = default;
  // Throws AmpError for `op` if one is multiplied by a scale.
  void check_true(const char* op) const;
};
// Declares that the gradients of `params` are not multiplied by a scale any more.
void mark_unscaled(const std::vector<Tensor>& params);

// Returns the gradients of those `params` that have one, safe to write element by element: a gradient whose elements overlap (an
// expanded tensor), or whose layout differs from its parameter's if `contiguous`, is replaced in its parameter by a dense copy.
// `raw`: keeps the dtype that backward produced.
Tensors gradients_of(const std::vector<Tensor>& params, bool contiguous = false, bool raw = false);

std::vector<TensorView> views_of(const Tensors& tensors);

}  // namespace halfstep
