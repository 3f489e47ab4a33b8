// SPDX-License-Identifier: Apache-2.0
// Dropout. In training y = x m / (1 - p), where each element of m is 0 with probability p and else 1; in evaluation y = x. Throws
// ValueError for p outside [0, 1]. Draws from the default generator.
#pragma once

#include <string>

#include "layers/module/layer.h"

namespace halfstep {

struct DropoutOptions {
  double p = 0.5;
  static const OptionList<DropoutOptions>& list();
};

// Functions of the layers below. `active` is false in evaluation.
namespace dropouts {
Tensor elements(const Tensor& x, double p, bool active);
Tensor channels1d(const Tensor& x, double p, bool active);  // of [N, C, L] or [C, L]
Tensor channels2d(const Tensor& x, double p, bool active);  // of [N, C, H, W], and of [N, C, L] as in PyTorch
Tensor channels3d(const Tensor& x, double p, bool active);  // of [N, C, D, H, W] or [C, D, H, W]
// Sets dropped elements to SELU's negative limit, and rescales so that mean 0 and variance 1 are kept (Klambauer et al.,
// "Self-Normalizing Neural Networks", 2017).
Tensor alpha(const Tensor& x, double p, bool active);
Tensor feature_alpha(const Tensor& x, double p, bool active);  // drops whole channels of [N, C, ...]
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
