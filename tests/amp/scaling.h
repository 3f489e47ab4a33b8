// SPDX-License-Identifier: Apache-2.0
// Fixtures for tests of the scaler: two equal models, four batches, and optimizers on the scaler's host path.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "amp/autocast/autocast.h"
#include "amp/step/grad_scaler.h"
#include "framework/autograd/autograd.h"
#include "layers/layers.h"
#include "optim/clip.h"
#include "optim/optimizers.h"

namespace halfstep::scaling {

inline constexpr double kInf = std::numeric_limits<double>::infinity();

// An `O` that does not support scalers: the host guards its step.
template <class O>
struct Plain : O {
  using O::O;
  bool handles_amp() const override { return false; }
};

inline std::string bytes(const Tensor& t) { return {static_cast<const char*>(t.const_data_ptr()), t.nbytes()}; }
inline std::string bytes(const Optimizer& o) {
  std::string out;
  for (const auto& [name, t] : o.state_dict()) out += name + ":" + bytes(t) + ";";
  return out;
}
inline std::string bytes(const Module& m) {
  std::string out;
  for (const NamedTensor& n : m.state_dict()) out += bytes(n.tensor);
  return out;
}

// One parameter of two elements with the given gradient, and its SGD.
struct Single {
  Tensor p = ones({2}, {.requires_grad = true});
  SGD opt{{p}, {.lr = 1}};
  void set(double g) { p.set_grad(full({2}, g)); }
};

inline std::shared_ptr<Sequential> model() {
  return std::make_shared<Sequential>(std::make_shared<Linear>(8, 8), std::make_shared<Linear>(8, 8));
}

// The scaler case of PyTorch's tests: `scaled` runs with a scaler, `control` without one and without the skipped step.
struct Twins {
  std::shared_ptr<Sequential> control, scaled;
  std::vector<std::pair<Tensor, Tensor>> data;

  Twins() {
    manual_seed(17);
    control = model();
    scaled = model();
    scaled->load_state_dict(control->state_dict());
    for (int i = 0; i < 4; ++i) data.emplace_back(rand({8, 8}), rand({8, 8}));
  }
  // Returns the largest difference of any parameter.
  double difference() const {
    double d = 0;
    const std::vector<Tensor> a = control->parameters(), b = scaled->parameters();
    for (size_t i = 0; i < a.size(); ++i) d = std::max(d, max((a[i] - b[i]).abs()).item<double>());
    return d;
  }
};
inline void poison(Sequential& m) { m.parameters()[2].grad().fill_(kInf); }
inline const GradScalerOptions kQuick{.init_scale = 128, .growth_factor = 2, .growth_interval = 1};
inline constexpr int kSkip = 2;  // iteration with a poisoned gradient

}  // namespace halfstep::scaling
