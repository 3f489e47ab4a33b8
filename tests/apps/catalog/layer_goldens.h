// SPDX-License-Identifier: Apache-2.0
// The cases of layer_goldens.safetensors, which scripts/make_layer_goldens.py makes with PyTorch, and layers made from them.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "apps/catalog/rows/layer_rows.h"
#include "framework/io/weights/safetensors.h"
#include "tests/support/source_dir.h"

namespace halfstep::app::testing {

inline constexpr double kTolerance = 2e-5;  // of float32, relative to 1 + |wanted|

struct Golden {
  std::string key;
  Json json;
  std::map<std::string, Tensor> tensors;  // "x", "p.weight", ...

  Tensor at(const std::string& name, DType dtype) const {
    const Tensor& t = tensors.at(name);
    return t.is_floating_point() ? t.to(dtype) : t;
  }
  bool has(const std::string& name) const { return tensors.contains(name); }
  std::string type() const { return json["type"]; }
  bool random() const { return json["random"]; }
};

// Opens the goldens; HALFSTEP_LAYER_GOLDENS names another file of the kind (tests/parity/module_db.py).
inline const TensorFile& file() {
  static const char* const other = std::getenv("HALFSTEP_LAYER_GOLDENS");
  static const TensorFile all =
      load_safetensors(other ? other : halfstep_source_dir() + "/tests/apps/catalog/layer_goldens.safetensors");
  return all;
}

// Returns the cases of a kind: "layer" or "loss".
inline const std::vector<Golden>& goldens(const char* kind) {
  static std::map<std::string, std::vector<Golden>> made;
  const std::string what = kind;
  if (!made[what].empty()) return made[what];
  for (const auto& [key, text] : file().metadata) {
    if (!key.starts_with(what + " ")) continue;
    Golden g{key, Json::parse(text), {}};
    for (const auto& [name, t] : file().tensors) {
      if (name.starts_with(key + "/")) g.tensors[name.substr(key.size() + 1)] = t;
    }
    made[what].push_back(std::move(g));
  }
  return made[what];
}

// Returns the case's config after validation.
inline Json checked(const Golden& g, const Family& family) {
  Json given = g.json["args"];
  given["type"] = g.type();
  Issues issues;
  const Json out = validate(given, component("model", family, ""), "model", issues);
  CAPTURE(given.dump());
  for (const Issue& issue : issues.list()) FAIL_CHECK(issue.path << ": " << issue.message);
  return out;
}

// Makes the module with PyTorch's weights, in this dtype.
inline std::shared_ptr<Module> make(const Golden& g, DType dtype, Device device = Device::cpu) {
  const auto module = build_model(checked(g, module_family()));
  module->to(dtype);
  StateDict state;
  for (const auto& [name, t] : g.tensors) {
    if (name.starts_with("p.")) state.push_back({name.substr(2), t});
  }
  module->load_state_dict(state);
  module->to(device);
  return module;
}

inline Tensor waves(const Shape& shape, DType dtype) {
  std::vector<double> values;
  for (int64_t i = 0; i < numel(shape); ++i) values.push_back(std::cos(double(i)));
  return tensor(values, shape, {.dtype = dtype});
}

// Returns the largest distance of elements, relative to 1 + |wanted|; NaN if one is NaN.
inline double distance(const Tensor& got, const Tensor& want) {
  REQUIRE(got.defined());
  REQUIRE(got.shape() == want.shape());
  const std::vector<double> a = got.to(Device::cpu).to(DType::f64).to_vector<double>(), b = want.to(DType::f64).to_vector<double>();
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double off = a[i] == b[i] ? 0 : std::abs(a[i] - b[i]) / (1 + std::abs(b[i]));
    worst = std::isnan(off) ? off : std::max(worst, off);
  }
  return worst;
}
inline void compare(const std::string& what, const Tensor& got, const Tensor& want, double tolerance) {
  CAPTURE(what);
  const double worst = distance(got, want);
  CHECK_MESSAGE(worst <= tolerance, "differs by " << worst);
}

inline Tensor input(const Golden& g, DType dtype, Device device = Device::cpu) {
  const Tensor x = device.is_cpu() ? g.at("x", dtype).clone() : g.at("x", dtype).to(device);
  return x.is_floating_point() ? x.set_requires_grad() : x;
}

// Checks output, gradients, buffers and evaluation of the case's module, whose weights are in `dtype`, against PyTorch's.
inline void check_values(const Golden& g, Module& module, DType dtype, double tolerance, Device device = Device::cpu) {
  const Tensor x = input(g, dtype, device);
  module.train(!g.random());
  const Tensor y = module(x);
  CHECK(y.dtype() == dtype);
  CHECK(y.device() == device);
  compare("output", y, g.at(g.random() ? "e" : "y", DType::f64), tolerance);
  y.backward(waves(y.shape(), dtype).to(device));
  if (x.requires_grad()) compare("input's gradient", x.grad(), g.at("g.x", DType::f64), tolerance);
  for (const NamedTensor& p : module.named_parameters())
    compare(p.name + "'s gradient", p.tensor.grad(), g.at("g." + p.name, DType::f64), tolerance);
  for (const NamedTensor& n : module.state_dict()) {
    if (g.has("s." + n.name)) compare(n.name + " afterwards", n.tensor, g.at("s." + n.name, DType::f64), tolerance);
  }
  module.eval();
  compare("output in evaluation", module(x), g.at(g.has("e") ? "e" : "y", DType::f64), tolerance);
}

}  // namespace halfstep::app::testing
