// SPDX-License-Identifier: Apache-2.0
#include "layers/containers/sequential.h"

#include <algorithm>
#include <typeinfo>

#include "framework/autograd/grad_mode.h"
#include "framework/base/layer_path.h"
#include "layers/containers/fused_relu.h"
#include "layers/feedforward/activations.h"
#include "layers/feedforward/normalization.h"

namespace halfstep {
Part<Module> Sequential::operator[](int64_t i) const {
  const int64_t n = int64_t(size());
  check<IndexError>(-n <= i && i < n, "Sequential", "index must be below ", n, ", got ", i);
  return Part<Module>(child_slots()[size_t(i < 0 ? i + n : i)]);
}

void Sequential::structure_changed() {
  conv_norms_.assign(size(), nullptr);
  for (size_t i = 1; i < size(); ++i) {
    Module *const conv = own_child(i - 1).get(), *const norm = own_child(i).get();
    if (conv && norm) conv_norms_[i] = ConvNorm::of(*conv, *norm);
  }
  stages_ = make_stages();
}

void Sequential::add_to_stages(std::vector<Stage>& stages, size_t i) const {
  Module* const module = own_child(i).get();
  // Compare exact types: a derived class may override forward.
  const auto is = [&](const std::type_info& type) { return typeid(*module) == type; };
  Stage* const last = stages.empty() || stages.back().alone ? nullptr : &stages.back();
  const bool chain = last && !last->linears.empty();
  if (is(typeid(Linear))) {
    if (!chain) stages.push_back({module});
    stages.back().linears.push_back({static_cast<Linear*>(module), Activation::none});
    return;
  }
  Activation activation = Activation::none;
  if (is_relu(*module)) activation = Activation::relu;
  if (is(typeid(GELU)) && static_cast<GELU*>(module)->is_tanh()) activation = Activation::gelu;
  if (chain && activation != Activation::none && last->linears.back().second == Activation::none)
    last->linears.back().second = activation;
  else if (activation == Activation::relu && last && !chain && !last->relu && with_relu(*last->module))
    last->relu = with_relu(*last->module);
  else if (last && i > 0 && last->module == own_child(i - 1).get() && conv_norms_[i])
    last->conv_norm = conv_norms_[i].get();
  else
    stages.push_back({module});
}

std::vector<Sequential::Stage> Sequential::make_stages() const {
  std::vector<Stage> stages;
  for (size_t i = 0; i < size(); ++i) {
    Module* const module = own_child(i).get();
    if (module && (module->precision() || module->any_recomputes()))
      stages.push_back({.module = module, .alone = true});
    else if (module)
      add_to_stages(stages, i);
  }
  for (Stage& stage : stages) {
    if (stage.linears.empty()) continue;
    const Module &first = *stage.linears.front().first, &last = *stage.linears.back().first;
    stage.path = kept_forever(&first == &last ? first.path() : first.path() + " to " + last.name());
  }
  return stages;
}

bool Sequential::is_recordable() const {
  return std::all_of(begin(), end(), [](const auto& layer) { return layer->is_recordable(); });
}

Tensor Sequential::forward(const Tensor& x) {
  Tensor y = x;
  // Run layers one by one: hooks see each layer's own tensors, and policies apply to the layers' own ops.
  if (any_hooks() || policies_forbid_fusing()) {
    for (const auto& layer : *this) y = layer(y);
    return y;
  }
  // Read these at each call: precisions and recomputing may change at any time, also while other threads call.
  if (some_alone()) {
    for (const Stage& stage : make_stages()) y = run_stage(stage, y);
  } else {
    for (const Stage& stage : stages_) y = run_stage(stage, y);
  }
  return y;
}

bool Sequential::some_alone() const {
  return std::any_of(child_slots().begin(), child_slots().end(), [](const auto& slot) {
    return slot->module && (slot->module->precision() || slot->module->any_recomputes());
  });
}

BatchNormNd* Sequential::norm_before_sum() const {
  if (empty() || !own_child(size() - 1)) return nullptr;
  BatchNormNd* const norm = batch_norm_of(*own_child(size() - 1));
  if (!norm || any_hooks() || precision() || recomputes_in_backward() || some_alone() || policies_forbid_fusing()) return nullptr;
  return stages_.back().conv_norm && inference_enabled() ? nullptr : norm;  // null: it may be folded into the convolution
}

Tensor Sequential::add_relu(const Tensor& x, const std::function<Tensor()>& residual) {
  BatchNormNd* const norm = norm_before_sum();
  if (!norm) {
    const Tensor y = (*this)(x);
    return halfstep::add_relu(y, residual());
  }
  const auto before_norm = [this](const Tensor& in) {
    Tensor y = in;
    for (size_t i = 0; i + 1 < stages_.size(); ++i) y = run_stage(stages_[i], y);
    const Stage& last = stages_.back();
    return last.conv_norm ? (*last.module)(y) : y;
  };
  const Tensor y = run(before_norm, x);
  return norm->add_relu(y, residual());
}

Tensor Sequential::run_stage(const Stage& stage, const Tensor& x) {
  if (!stage.linears.empty()) return run_chain(stage, x);
  if (stage.conv_norm) return (*stage.conv_norm)(x, stage.relu != nullptr);
  return stage.relu ? stage.relu(*stage.module, x) : (*stage.module)(x);
}

// Runs a chain of Linears by one call; an error names the layer that does not fit its input.
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
    const Linear* wrong = stage.linears.size() == 1 ? stage.linears[0].first : nullptr;
    int64_t width = x.dim() > 0 ? x.size(-1) : 0;
    for (const auto& [layer, after] : stage.linears) {
      const Tensor& weight = layer->weight;
      const bool fits = weight.size(1) == width && weight.device() == x.device() && weight.dtype() == x.dtype();
      if (!wrong && !fits) wrong = layer;
      width = layer->weight.size(0);
    }
    if (wrong)
      e.leave_layer(wrong->path(), wrong->describe());
    else
      e.leave_layer(*stage.path, "Linear and activation layers, run as one");
    throw;
  }
}

}  // namespace halfstep
