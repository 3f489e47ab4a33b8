#include <typeinfo>

#include "layers/layers.h"

namespace halfstep {

Sequential& Sequential::push_back(std::shared_ptr<Module> layer) {
  return push_back(std::to_string(children().size()), std::move(layer));
}

Sequential& Sequential::push_back(const std::string& name, std::shared_ptr<Module> layer) {
  Module* module = layer.get();
  register_module(name, std::move(layer));
  // Exact types only: a class derived from either may do something else in forward.
  const auto is = [](Module& m, const std::type_info& type) { return typeid(m) == type; };
  if (!stages_.empty() && !stages_.back().with_relu && is(*module, typeid(ReLU)) && is(*stages_.back().module, typeid(Linear))) {
    stages_.back().with_relu = static_cast<Linear*>(stages_.back().module);
  } else {
    stages_.push_back({module, nullptr});
  }
  return *this;
}

Tensor Sequential::forward(const Tensor& x) {
  Tensor y = x;
  for (const Stage& stage : stages_) y = stage.with_relu ? stage.with_relu->forward_relu(y) : stage.module->forward(y);
  return y;
}

}  // namespace halfstep
