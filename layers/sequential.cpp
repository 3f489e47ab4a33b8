// SPDX-License-Identifier: Apache-2.0
#include "layers/sequential.h"

#include <algorithm>
#include <typeinfo>

#include "framework/base/layer_path.h"
#include "layers/activations.h"

namespace halfstep {

Sequential& Sequential::push_back(std::shared_ptr<Module> layer) {
  return push_back(std::to_string(children().size()), std::move(layer));
}

Sequential& Sequential::push_back(const std::string& name, std::shared_ptr<Module> layer) {
  Module* module = layer.get();
  register_module(name, std::move(layer));
  add_to_stages(module);
  path_changed();
  return *this;
}

void Sequential::add_to_stages(Module* module) {
  // Exact types only: a class derived from them may do something else in forward.
  const auto is = [&](const std::type_info& type) { return typeid(*module) == type; };
  const auto is_conv = [](const Module& m) {
    return typeid(m) == typeid(Conv1d) || typeid(m) == typeid(Conv2d) || typeid(m) == typeid(Conv3d);
  };
  const bool chain = !stages_.empty() && !stages_.back().linears.empty();
  if (is(typeid(Linear))) {
    if (!chain) stages_.push_back({module});
    stages_.back().linears.push_back({static_cast<Linear*>(module), Activation::none});
    return;
  }
  Activation activation = Activation::none;
  if (is(typeid(ReLU))) activation = Activation::relu;
  if (is(typeid(GELU)) && static_cast<GELU*>(module)->is_tanh()) activation = Activation::gelu;
  if (chain && activation != Activation::none && stages_.back().linears.back().second == Activation::none)
    stages_.back().linears.back().second = activation;
  else if (activation == Activation::relu && !stages_.empty() && !stages_.back().conv && is_conv(*stages_.back().module))
    stages_.back().conv = static_cast<ConvNd*>(stages_.back().module);
  else
    stages_.push_back({module});
}

void Sequential::path_changed() {
  for (Stage& stage : stages_) {
    if (stage.linears.empty()) continue;
    const Module &first = *stage.linears.front().first, &last = *stage.linears.back().first;
    stage.path = kept_forever(&first == &last ? first.path() : first.path() + " to " + last.name());
  }
}

bool Sequential::is_recordable() const {
  return std::all_of(children().begin(), children().end(), [](const auto& child) { return child.second->is_recordable(); });
}

std::shared_ptr<Module> Sequential::clone() const {
  check<ValueError>(typeid(*this) == typeid(Sequential), "clone", describe(),
                    " derives from Sequential and does not say how to make another", Help{"override clone()"});
  auto copy = std::make_shared<Sequential>();
  for (const auto& [name, child] : children()) copy->push_back(name, child->clone());
  copy_modes(*copy);
  return copy;
}

Tensor Sequential::forward(const Tensor& x) {
  Tensor y = x;
  if (any_hooks() || any_recomputes()) {  // which see each layer's own tensors
    for (const auto& [name, child] : children()) y = (*child)(y);
    return y;
  }
  for (const Stage& stage : stages_) y = run_stage(stage, y);
  return y;
}

Tensor Sequential::run_stage(const Stage& stage, const Tensor& x) {
  if (!stage.linears.empty()) return run_chain(stage, x);
  return stage.conv ? stage.conv->relu(x) : (*stage.module)(x);
}

Tensor Sequential::run_chain(const Stage& stage, const Tensor& x) {
  const LayerScope layer(stage.path);
  try {
    const auto& [first, activation] = stage.linears[0];
    if (stage.linears.size() == 1 && activation != Activation::gelu)
      return activation == Activation::relu ? first->forward_relu(x) : first->forward(x);
    std::vector<MlpLayer> layers;
    for (const auto& [layer, after] : stage.linears) layers.push_back({layer->weight, layer->bias, after});
    return mlp(x, layers);
  } catch (Error& e) {
    const Module& first = *stage.module;
    const Module& last = *stage.linears.back().first;
    e.leave_layer(&first == &last ? first.name() : first.name() + " to " + last.name(), first.describe());
    throw;
  }
}

}  // namespace halfstep
