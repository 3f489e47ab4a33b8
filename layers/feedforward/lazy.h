// SPDX-License-Identifier: Apache-2.0
// Lazy layers, which take the number of input features or channels from their first input. From then on they equal the layers of
// the same names without Lazy, with the random numbers that those would have drawn at that moment.
//
//   Sequential net{LazyConv2d(8, 3), ReLU(), Flatten(), LazyLinear(10)};
//   net(images);                                      // creates the parameters
//   SGD optimizer(net.parameters(), {.lr = 0.1});
//
// Before the first call, parameters(), buffers() and state_dict() throw ValueError; to(), train() and requires_grad_() apply to
// the parameters once they exist. If the first input has a shape that the layer refuses, the layer stays lazy.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "layers/feedforward/convolution.h"
#include "layers/feedforward/linear.h"
#include "layers/feedforward/normalization.h"

namespace halfstep {

// `Plain` is the class of the layer without Lazy.
template <class Plain>
class Lazy : public Plain {
 public:
  Tensor forward(const Tensor& x) override {
    initialize_parameters(x);
    return Plain::forward(x);
  }
  std::string describe() const override { return has_uninitialized_params() ? description_ : Plain::describe(); }
  bool has_uninitialized_params() const { return waits_; }

 protected:
  using Make = std::function<Plain(int64_t features, Generator* generator)>;
  using Features = std::function<int64_t(const Tensor& x)>;  // throws for inputs of a wrong shape
  // least: the smallest number of features that Plain takes.
  Lazy(int64_t least, Features features, Make make) : Lazy(Generator(0), least, std::move(features), std::move(make)) {}
  void initialize_parameters(const Tensor& x);

 private:
  // Makes a Plain of the least size. Its numbers come from a generator of their own, so that the default one does not move.
  Lazy(Generator discarded, int64_t least, Features features, Make make)
      : Plain(make(least, &discarded)), features_(std::move(features)), make_(std::move(make)) {
    // Prints as PyTorch does: "LazyLinear(in_features=0, ...".
    description_ = "Lazy" + Plain::describe();
    const size_t digits = description_.find_first_of("0123456789", description_.find('('));
    description_.replace(digits, description_.find_first_not_of("0123456789", digits) - digits, "0");
    this->wait_for_sizes();
    waits_ = true;
  }
  Features features_;
  Make make_;
  std::string description_;
  bool waits_ = false;
};

template <class Plain>
void Lazy<Plain>::initialize_parameters(const Tensor& x) {
  if (!waits_) [[likely]]
    return;
  const int64_t features = features_(x);
  DType dtype = DType::f32;
  Device device = x.device();
  std::vector<bool> trained;
  for (size_t i = 0; i < this->own_parameters(); ++i) {
    const Tensor& p = this->own_parameter(i);
    trained.push_back(p.defined() && p.requires_grad());
    if (p.defined()) dtype = p.dtype(), device = p.device();
  }
  const DefaultDevice on(device);
  Plain made = make_(features, nullptr);
  made.to(dtype);
  static_cast<Plain&>(*this) = std::move(made);
  for (size_t i = 0; i < trained.size(); ++i) {
    if (this->own_parameter(i).defined()) this->own_parameter(i).set_requires_grad(trained[i]);
  }
  waits_ = false;
}

class LazyLinear : public Lazy<Linear> {
 public:
  explicit LazyLinear(Integer out_features, const LinearOptions& options = {});
};

#define HALFSTEP_LAZY(dims)                                                                                              \
  class LazyConv##dims##d : public Lazy<Conv##dims##d> {                                                                 \
   public:                                                                                                               \
    LazyConv##dims##d(Integer out_channels, const Sizes& kernel_size, const ConvLayerOptions& options = {});             \
  };                                                                                                                     \
  class LazyConvTranspose##dims##d : public Lazy<ConvTranspose##dims##d> {                                               \
   public:                                                                                                               \
    LazyConvTranspose##dims##d(Integer out_channels, const Sizes& kernel_size, const ConvTransposeLayerOptions& o = {}); \
    using Lazy::forward;                                                                                                 \
    Tensor forward(const Tensor& x, const Dims& output_size) override;                                                   \
  };                                                                                                                     \
  class LazyBatchNorm##dims##d : public Lazy<BatchNorm##dims##d> {                                                       \
   public:                                                                                                               \
    explicit LazyBatchNorm##dims##d(const BatchNormOptions& options = {});                                               \
  };                                                                                                                     \
  class LazyInstanceNorm##dims##d : public Lazy<InstanceNorm##dims##d> {                                                 \
   public:                                                                                                               \
    explicit LazyInstanceNorm##dims##d(const InstanceNormOptions& options = {});                                         \
  };
HALFSTEP_LAZY(1)  // LazyConv1d, LazyConvTranspose1d, LazyBatchNorm1d, LazyInstanceNorm1d
HALFSTEP_LAZY(2)  // LazyConv2d, LazyConvTranspose2d, LazyBatchNorm2d, LazyInstanceNorm2d
HALFSTEP_LAZY(3)  // LazyConv3d, LazyConvTranspose3d, LazyBatchNorm3d, LazyInstanceNorm3d
#undef HALFSTEP_LAZY

}  // namespace halfstep
