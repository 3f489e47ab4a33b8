// SPDX-License-Identifier: Apache-2.0
#include "torch/amp/amp.h"

#include "amp/step/grad_scaler.h"
#include "optim/optimizer.h"

namespace torch::amp {
namespace {

hs::Optimizer& own_of(optim::Optimizer& o) {
  hs::Optimizer* own = o.halfstep();
  TORCH_CHECK(own, "GradScaler takes the optimizers of torch::optim");
  return *own;
}

}  // namespace

GradScaler::GradScaler(const GradScalerOptions& o)
    : own_(std::make_unique<hs::GradScaler>(hs::GradScalerOptions{.init_scale = o.init_scale(),
                                                                  .growth_factor = o.growth_factor(),
                                                                  .backoff_factor = o.backoff_factor(),
                                                                  .growth_interval = o.growth_interval(),
                                                                  .enabled = o.enabled()})) {}
GradScaler::~GradScaler() = default;
Tensor GradScaler::scale(const Tensor& loss) { return own_->scale(loss.h()); }
void GradScaler::unscale_(optim::Optimizer& optimizer) {
  hs::Optimizer& own = own_of(optimizer);
  own_->unscale_(own);
  unscaled_[&optimizer] = own.id();
}
void GradScaler::step(optim::Optimizer& optimizer) {
  hs::Optimizer& own = own_of(optimizer);
  const auto at = unscaled_.find(&optimizer);
  TORCH_CHECK(at == unscaled_.end() || at->second == own.id(),
              "the parameters of an optimizer cannot change between unscale_ and step");
  own_->step(own);
  optimizer.refresh_state();
}
void GradScaler::update() {
  own_->update();
  unscaled_.clear();
}
double GradScaler::get_scale() const { return own_->get_scale(); }

}  // namespace torch::amp
