// SPDX-License-Identifier: Apache-2.0
// Dropout: sets elements to zero while training, with probability p. The rest grows by 1 / (1 - p); in evaluation all layers here
// return their input. Throws ValueError for p outside [0, 1]. Randomness is the default generator's.
#pragma once

#include <string>

#include "layers/module/layer.h"

namespace halfstep {

struct DropoutOptions {
  double p = 0.5;
  static const OptionList<DropoutOptions>& list();
};

// x with some elements set to zero: `active` is false in evaluation.
namespace dropouts {
Tensor elements(const Tensor& x, double p, bool active);
Tensor channels1d(const Tensor& x, double p, bool active);  // of [N, C, L] or [C, L]
Tensor channels2d(const Tensor& x, double p, bool active);  // of [N, C, H, W], and of [N, C, L] as in PyTorch
Tensor channels3d(const Tensor& x, double p, bool active);  // of [N, C, D, H, W] or [C, D, H, W]
// For SELU: dropped elements become SELU's negative limit, and the result keeps mean 0 and variance 1 (Klambauer et al.,
// "Self-Normalizing Neural Networks", 2017).
Tensor alpha(const Tensor& x, double p, bool active);
Tensor feature_alpha(const Tensor& x, double p, bool active);  // channels of [N, C, ...]
}  // namespace dropouts

template <ClassName type, Tensor (*function)(const Tensor&, double, bool)>
class DropoutOf : public Module {
 public:
  using Options = DropoutOptions;
  static constexpr const char* kName = type.text;
  explicit DropoutOf(const DropoutOptions& options = {}) : p_(options.p) { check_options(kName, options); }
  explicit DropoutOf(PlainNumber auto p) : DropoutOf(DropoutOptions{double(p)}) {}
  Tensor forward(const Tensor& x) override { return function(x, p_, training()); }
  bool is_recordable() const override { return true; }
  std::string describe() const override { return Repr(kName).options(DropoutOptions{p_}).arg("inplace", false).str(); }

 private:
  double p_;
};
using Dropout = DropoutOf<"Dropout", dropouts::elements>;
using Dropout1d = DropoutOf<"Dropout1d", dropouts::channels1d>;
using Dropout2d = DropoutOf<"Dropout2d", dropouts::channels2d>;
using Dropout3d = DropoutOf<"Dropout3d", dropouts::channels3d>;
using AlphaDropout = DropoutOf<"AlphaDropout", dropouts::alpha>;
using FeatureAlphaDropout = DropoutOf<"FeatureAlphaDropout", dropouts::feature_alpha>;

}  // namespace halfstep
