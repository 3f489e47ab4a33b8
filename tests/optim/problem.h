// SPDX-License-Identifier: Apache-2.0
// The problem of scripts/make_optim_goldens.py, and every optimizer setting by name.
#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/ops/ops.h"
#include "optim/optimizers.h"
#include "optim/two_pass.h"

namespace halfstep::problem {

inline constexpr int kSize = 6;
inline constexpr int kSteps[] = {1, 5, 20, 200};

inline double start(int i) { return (i - 2.5) / 2; }
inline double gradient(int i, int t, double p) { return std::sin(0.7 * i + 0.9 * t) + 0.3 * p; }

inline Tensor parameter(DType dtype = DType::f32, const Shape& shape = {kSize}) {
  std::vector<double> v;
  for (int i = 0; i < kSize; ++i) v.push_back(start(i));
  Tensor p = tensor(v, shape, {.dtype = dtype});
  p.set_requires_grad();
  return p;
}

// Sets the gradient of step t, times `factor`, in `dtype` (default: the parameter's).
inline void set_gradient(const Tensor& p, int t, double factor = 1) {
  std::vector<double> v = p.to_vector<double>();
  for (int i = 0; i < kSize; ++i) v[size_t(i)] = factor * gradient(i, t, v[size_t(i)]);
  p.set_grad(tensor(v, p.shape(), {.dtype = p.dtype()}));
}

struct Setting {
  std::string name;
  std::function<std::unique_ptr<Optimizer>(const std::vector<Tensor>&)> make;
  Shape shape = {kSize};
};
template <class O>
Setting setting(std::string name, typename O::Options options, const Shape& shape = {kSize}) {
  return {std::move(name), [options](const std::vector<Tensor>& params) { return std::make_unique<O>(params, options); }, shape};
}
inline std::vector<Setting> settings() {
  return {
      setting<SGD>("sgd", {.lr = 0.1}),
      setting<SGD>("sgd_decay", {.lr = 0.1, .weight_decay = 0.2}),
      setting<SGD>("sgd_momentum", {.lr = 0.05, .momentum = 0.9}),
      setting<SGD>("sgd_dampening", {.lr = 0.05, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.1}),
      setting<SGD>("sgd_nesterov", {.lr = 0.05, .momentum = 0.8, .weight_decay = 0.1, .nesterov = true}),
      setting<SGD>("sgd_maximize", {.lr = 0.01, .momentum = 0.5, .maximize = true}),
      setting<Adam>("adam", {.lr = 0.05}),
      setting<Adam>("adam_decay", {.lr = 0.05, .betas = {0.8, 0.95}, .eps = 1e-6, .weight_decay = 0.2}),
      setting<Adam>("adam_amsgrad", {.lr = 0.05, .betas = {0.5, 0.6}, .amsgrad = true}),
      setting<Adam>("adam_maximize", {.lr = 0.05, .maximize = true}),
      setting<AdamW>("adamw", {.lr = 0.05}),
      setting<AdamW>("adamw_amsgrad", {.lr = 0.05, .betas = {0.5, 0.6}, .weight_decay = 0.3, .amsgrad = true}),
      setting<NAdam>("nadam", {.lr = 0.05}),
      setting<NAdam>("nadam_decay", {.lr = 0.05, .betas = {0.8, 0.95}, .weight_decay = 0.1, .momentum_decay = 0.03}),
      setting<NAdam>("nadam_decoupled", {.lr = 0.05, .weight_decay = 0.1, .decoupled_weight_decay = true, .maximize = true}),
      setting<RAdam>("radam", {.lr = 0.05}),
      setting<RAdam>("radam_decay", {.lr = 0.05, .betas = {0.8, 0.95}, .eps = 1e-6, .weight_decay = 0.2}),
      setting<RAdam>("radam_decoupled",
                     {.lr = 0.05, .betas = {0.9, 0.9}, .weight_decay = 0.2, .decoupled_weight_decay = true, .maximize = true}),
      setting<Adamax>("adamax", {.lr = 0.05}),
      setting<Adamax>("adamax_decay", {.lr = 0.05, .betas = {0.8, 0.9}, .eps = 1e-6, .weight_decay = 0.2, .maximize = true}),
      setting<RMSprop>("rmsprop", {.lr = 0.05}),
      setting<RMSprop>("rmsprop_momentum", {.lr = 0.02, .alpha = 0.9, .weight_decay = 0.1, .momentum = 0.8}),
      setting<RMSprop>("rmsprop_centered", {.lr = 0.01, .alpha = 0.9, .eps = 1e-3, .centered = true}),
      setting<RMSprop>(
          "rmsprop_all",
          {.lr = 0.005, .alpha = 0.8, .eps = 1e-2, .weight_decay = 0.1, .momentum = 0.5, .centered = true, .maximize = true}),
      setting<Adagrad>("adagrad", {.lr = 0.1}),
      setting<Adagrad>(
          "adagrad_all",
          {.lr = 0.1, .lr_decay = 0.02, .weight_decay = 0.1, .initial_accumulator_value = 0.3, .eps = 1e-4, .maximize = true}),
      setting<Adadelta>("adadelta", {.lr = 1.0}),
      setting<Adadelta>("adadelta_all", {.lr = 0.5, .rho = 0.8, .eps = 1e-4, .weight_decay = 0.1, .maximize = true}),
      setting<ASGD>("asgd", {.lr = 0.05}),
      setting<ASGD>("asgd_all", {.lr = 0.05, .lambd = 0.01, .alpha = 0.6, .t0 = 7, .weight_decay = 0.1, .maximize = true}),
      setting<Rprop>("rprop", {.lr = 0.02}),
      setting<Rprop>("rprop_all", {.lr = 0.02, .etas = {0.4, 1.3}, .step_sizes = {1e-3, 0.05}, .maximize = true}),
      setting<Lion>("lion", {.lr = 0.02}),
      setting<Lion>("lion_decay", {.lr = 0.02, .betas = {0.8, 0.95}, .weight_decay = 0.3}),
      setting<LAMB>("lamb", {.lr = 0.05}),
      setting<LAMB>("lamb_plain", {.lr = 0.05, .betas = {0.8, 0.95}, .eps = 1e-4, .weight_decay = 0}),
      setting<LAMB>("lamb_always", {.lr = 0.05, .betas = {0.8, 0.95}, .weight_decay = 0, .always_adapt = true}),
      setting<AdEMAMix>("ademamix", {.lr = 0.02}),
      setting<AdEMAMix>(
          "ademamix_warmup",
          {.lr = 0.02, .betas = {0.8, 0.95, 0.99}, .alpha = 5, .weight_decay = 0.1, .alpha_warmup = 50, .beta3_warmup = 50}),
      setting<Adafactor>("adafactor", {.lr = 0.05}),
      setting<Adafactor>("adafactor_matrix", {.lr = 0.05}, {2, 3}),
      setting<Adafactor>("adafactor_all", {.lr = 0.1, .beta2_decay = -0.5, .eps = {1e-6, 1e-2}, .d = 1.5, .weight_decay = 0.1},
                         {3, 2}),
      setting<Muon>("muon", {.lr = 0.02}, {2, 3}),
      setting<Muon>(
          "muon_tall",
          {.lr = 0.02, .weight_decay = 0.3, .momentum = 0.8, .nesterov = false, .ns_steps = 4, .adjust_lr_fn = "match_rms_adamw"},
          {3, 2}),
      setting<Muon>("muon_wide", {.lr = 0.02, .adjust_lr_fn = "spectral_unclamped"}, {2, 3}),
  };
}

// Return every byte of a tensor and of an optimizer's state.
inline std::string bytes(const Tensor& t) { return {static_cast<const char*>(t.const_data_ptr()), t.nbytes()}; }
// Returns the states of parameters, without options.
inline std::map<std::string, Tensor> states(const Optimizer& o) {
  std::map<std::string, Tensor> out = o.state_dict();
  std::erase_if(out, [](const auto& entry) { return entry.first.starts_with("param_groups."); });
  return out;
}
inline std::string bytes(const Optimizer& o) {
  std::string out;
  for (const auto& [name, t] : o.state_dict()) out += name + ":" + bytes(t) + ";";
  return out;
}

}  // namespace halfstep::problem
