#include <typeinfo>

#include "layers/layers.h"

namespace halfstep {

Sequential& Sequential::push_back(std::shared_ptr<Module> layer) {
  return push_back(std::to_string(children().size()), std::move(layer));
}

Sequential& Sequential::push_back(const std::string& name, std::shared_ptr<Module> layer) {
  Module* module = layer.get();
  register_module(name, std::move(layer));
  // Exact types only: a class derived from them may do something else in forward.
  const auto is = [&](const std::type_info& type) { return typeid(*module) == type; };
  const bool chain = !stages_.empty() && !stages_.back().linears.empty();
  if (is(typeid(Linear))) {
    if (!chain) stages_.push_back({module, {}});
    stages_.back().linears.push_back({static_cast<Linear*>(module), Activation::none});
    return *this;
  }
  Activation activation = Activation::none;
  if (is(typeid(ReLU))) activation = Activation::relu;
  if (is(typeid(GELU)) && static_cast<GELU*>(module)->is_tanh()) activation = Activation::gelu;
  if (chain && activation != Activation::none && stages_.back().linears.back().second == Activation::none)
    stages_.back().linears.back().second = activation;
  else
    stages_.push_back({module, {}});
  return *this;
}

Tensor Sequential::forward(const Tensor& x) {
  Tensor y = x;
  for (const Stage& stage : stages_) {
    if (stage.linears.empty()) {
      y = stage.module->forward(y);
    } else if (stage.linears.size() == 1 && stage.linears[0].second != Activation::gelu) {
      const auto& [layer, activation] = stage.linears[0];
      y = activation == Activation::relu ? layer->forward_relu(y) : layer->forward(y);
    } else {
      std::vector<MlpLayer> layers;
      for (const auto& [layer, activation] : stage.linears) layers.push_back({layer->weight, layer->bias, activation});
      y = mlp(y, layers);
    }
  }
  return y;
}

}  // namespace halfstep
