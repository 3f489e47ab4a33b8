// The problem of scripts/make_optim_goldens.py, and every optimizer setting by name.
#pragma once

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "framework/ops/ops.h"
#include "optim/optimizers.h"

namespace halfstep::problem {

inline constexpr int kSize = 6;
inline constexpr int kSteps[] = {1, 5, 20};

inline double start(int i) { return (i - 2.5) / 2; }
inline double gradient(int i, int t, double p) { return std::sin(0.7 * i + 0.9 * t) + 0.3 * p; }

inline Tensor parameter(DType dtype = DType::f32) {
  std::vector<double> v;
  for (int i = 0; i < kSize; ++i) v.push_back(start(i));
  Tensor p = tensor(v, {kSize}, {.dtype = dtype});
  p.set_requires_grad();
  return p;
}

// The gradient of step t, times `factor`, of `dtype` (default: the parameter's).
inline void set_gradient(const Tensor& p, int t, double factor = 1) {
  std::vector<double> v = p.to_vector<double>();
  for (int i = 0; i < kSize; ++i) v[size_t(i)] = factor * gradient(i, t, v[size_t(i)]);
  p.set_grad(tensor(v, {kSize}, {.dtype = p.dtype()}));
}

struct Setting {
  std::string name;
  SGDOptions sgd;
  AdamOptions adam;
};
inline std::vector<Setting> settings() {
  return {{"sgd", {.lr = 0.1}, {}},
          {"sgd_decay", {.lr = 0.1, .weight_decay = 0.2}, {}},
          {"sgd_momentum", {.lr = 0.05, .momentum = 0.9}, {}},
          {"sgd_dampening", {.lr = 0.05, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.1}, {}},
          {"sgd_nesterov", {.lr = 0.05, .momentum = 0.8, .weight_decay = 0.1, .nesterov = true}, {}},
          {"sgd_maximize", {.lr = 0.05, .momentum = 0.5, .maximize = true}, {}},
          {"adam", {}, {.lr = 0.05}},
          {"adam_decay", {}, {.lr = 0.05, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.2}},
          {"adam_amsgrad", {}, {.lr = 0.05, .beta1 = 0.5, .beta2 = 0.6, .amsgrad = true}},
          {"adam_maximize", {}, {.lr = 0.05, .maximize = true}},
          {"adamw", {}, {.lr = 0.05, .weight_decay = 0.01}},
          {"adamw_amsgrad", {}, {.lr = 0.05, .beta1 = 0.5, .beta2 = 0.6, .weight_decay = 0.3, .amsgrad = true}}};
}
inline std::unique_ptr<Optimizer> make(const Setting& s, const std::vector<Tensor>& params) {
  if (s.name.starts_with("sgd")) return std::make_unique<SGD>(params, s.sgd);
  if (s.name.starts_with("adamw")) return std::make_unique<AdamW>(params, s.adam);
  return std::make_unique<Adam>(params, s.adam);
}

// Every byte of a tensor and of an optimizer's state.
inline std::string bytes(const Tensor& t) { return {static_cast<const char*>(t.data()), t.nbytes()}; }
inline std::string bytes(const Optimizer& o) {
  std::string out;
  for (const auto& [name, t] : o.state_dict()) out += name + ":" + bytes(t) + ";";
  return out;
}

}  // namespace halfstep::problem
