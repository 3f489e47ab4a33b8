// SPDX-License-Identifier: Apache-2.0
// Layers one after the other.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "layers/convolution.h"
#include "layers/linear.h"
#include "layers/module.h"

namespace halfstep {

// Runs its children in order. A Linear with the ReLU or GELU("tanh") after it, and a run of such Linears, is one call of
// linear() or mlp(), and a convolution with the ReLU after it one call of conv1d(), conv2d() or conv3d(): the same values, fewer
// passes. Children are named "0", "1"... or as given.
class Sequential : public Module {
 public:
  Sequential() = default;
  template <ModulePart... Ps>
  explicit Sequential(Ps&&... layers) {
    (push_back(as_shared(std::forward<Ps>(layers))), ...);
  }
  Sequential& push_back(std::shared_ptr<Module> layer);
  Sequential& push_back(const std::string& name, std::shared_ptr<Module> layer);
  template <ModuleValue M>
  Sequential& push_back(M&& layer) {
    return push_back(as_shared(std::move(layer)));
  }
  template <ModuleValue M>
  Sequential& push_back(const std::string& name, M&& layer) {
    return push_back(name, as_shared(std::move(layer)));
  }
  Tensor forward(const Tensor& x) override;
  std::shared_ptr<Module> clone() const override;
  bool is_recordable() const override;  // when all children are
  std::string describe() const override { return "Sequential"; }

 private:
  // What forward runs next: `linears`, as one call of mlp(), or `conv` with its ReLU, or `module` where there is neither.
  struct Stage {
    Module* module;
    std::vector<std::pair<Linear*, Activation>> linears{};
    ConvNd* conv = nullptr;
    const std::string* path = nullptr;  // of the linears, for messages: "0", "0 to 4"
  };
  void path_changed() override;
  void add_to_stages(Module* module);
  static Tensor run_stage(const Stage& stage, const Tensor& x);
  static Tensor run_chain(const Stage& stage, const Tensor& x);
  std::vector<Stage> stages_;
};

}  // namespace halfstep
