// SPDX-License-Identifier: Apache-2.0
// Mixed precision, which libtorch's C++ API lacks, with the names of PyTorch's Python API:
//
//   torch::amp::GradScaler scaler;
//   {
//     torch::amp::Autocast region(device);  // float16; torch::kBFloat16 needs no scaler
//     loss = torch::nll_loss(model->forward(data), targets);
//   }
//   scaler.scale(loss).backward();
//   scaler.step(optimizer);  // skips the step if a gradient is not finite
//   scaler.update();
#pragma once

#include <map>

#include "amp/autocast/autocast.h"
#include "torch/optim/optimizer.h"

namespace halfstep {

class GradScaler;

}  // namespace halfstep

namespace torch::amp {

class Autocast {
 public:
  [[nodiscard]] explicit Autocast(Device device = kCPU, ScalarType dtype = kHalf, bool enabled = true)
      : region_(device.h(), ::torch::detail::to_hs(dtype), enabled) {}

 private:
  hs::Autocast region_;
};

struct GradScalerOptions {
  TORCH_ARG(double, init_scale) = 65536.0;
  TORCH_ARG(double, growth_factor) = 2.0;
  TORCH_ARG(double, backoff_factor) = 0.5;
  TORCH_ARG(int64_t, growth_interval) = 2000;
  TORCH_ARG(bool, enabled) = true;
};

class GradScaler {
 public:
  explicit GradScaler(const GradScalerOptions& options = {});
  ~GradScaler();
  Tensor scale(const Tensor& loss);
  void unscale_(optim::Optimizer& optimizer);
  void step(optim::Optimizer& optimizer);  // skips the update if a gradient is not finite
  void update();
  double get_scale() const;
  hs::GradScaler& halfstep() { return *own_; }  // for all else: whether a step was applied, states

 private:
  std::unique_ptr<hs::GradScaler> own_;
  std::map<const optim::Optimizer*, uint64_t> unscaled_;  // since the last update(): the ids of halfstep's optimizers
};

}  // namespace torch::amp
