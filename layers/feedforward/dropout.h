// SPDX-License-Identifier: Apache-2.0
// Dropout: sets elements to zero while training, with probability p. The rest grows by 1 / (1 - p); in evaluation all layers here
// return their input. Throws ValueError for p outside [0, 1]. Randomness is the default generator's.
#pragma once

#include <string>

#include "layers/module/layer.h"

namespace halfstep {

struct DropoutOptions {
  double p = 0.5;
};

class DropoutBase : public Module {
 public:
  bool is_recordable() const override { return true; }
  std::string describe() const override { return Repr(type_).arg("p", p_).arg("inplace", false).str(); }

 protected:
  DropoutBase(const char* type, double p);
  bool active() const { return training() && p_ > 0; }
  // 0 with probability p and 1 / (1 - p) else, one value for each of the first `dims` dimensions of x, to multiply x by.
  Tensor mask(const Tensor& x, int dims) const;
  const char* type_;
  double p_;
};

class Dropout : public DropoutBase {  // single elements
 public:
  explicit Dropout(const DropoutOptions& options = {}) : DropoutBase("Dropout", options.p) {}
  explicit Dropout(PlainNumber auto p) : DropoutBase("Dropout", double(p)) {}
  Tensor forward(const Tensor& x) override { return dropout(x, p_, training()); }
};
class Dropout1d : public DropoutBase {  // channels of [N, C, L] or [C, L]
 public:
  explicit Dropout1d(const DropoutOptions& options = {}) : DropoutBase("Dropout1d", options.p) {}
  explicit Dropout1d(PlainNumber auto p) : DropoutBase("Dropout1d", double(p)) {}
  Tensor forward(const Tensor& x) override;
};
class Dropout2d : public DropoutBase {  // channels of [N, C, H, W], and of [N, C, L] as in PyTorch
 public:
  explicit Dropout2d(const DropoutOptions& options = {}) : DropoutBase("Dropout2d", options.p) {}
  explicit Dropout2d(PlainNumber auto p) : DropoutBase("Dropout2d", double(p)) {}
  Tensor forward(const Tensor& x) override;
};
class Dropout3d : public DropoutBase {  // channels of [N, C, D, H, W] or [C, D, H, W]
 public:
  explicit Dropout3d(const DropoutOptions& options = {}) : DropoutBase("Dropout3d", options.p) {}
  explicit Dropout3d(PlainNumber auto p) : DropoutBase("Dropout3d", double(p)) {}
  Tensor forward(const Tensor& x) override;
};
// For SELU: dropped elements become SELU's negative limit, and the result keeps mean 0 and variance 1 (Klambauer et al.,
// "Self-Normalizing Neural Networks", 2017).
class AlphaDropout : public DropoutBase {  // single elements
 public:
  explicit AlphaDropout(const DropoutOptions& options = {}) : DropoutBase("AlphaDropout", options.p) {}
  explicit AlphaDropout(PlainNumber auto p) : DropoutBase("AlphaDropout", double(p)) {}
  Tensor forward(const Tensor& x) override;
};
class FeatureAlphaDropout : public DropoutBase {  // channels of [N, C, ...]
 public:
  explicit FeatureAlphaDropout(const DropoutOptions& options = {}) : DropoutBase("FeatureAlphaDropout", options.p) {}
  explicit FeatureAlphaDropout(PlainNumber auto p) : DropoutBase("FeatureAlphaDropout", double(p)) {}
  Tensor forward(const Tensor& x) override;
};

}  // namespace halfstep
