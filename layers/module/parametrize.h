// SPDX-License-Identifier: Apache-2.0
// Parametrizations compute a parameter of a module before each forward from other tensors, which are trained in its place.
//
//   Part<Linear> fc{this, "fc", weight_norm(Linear(20, 40))};     // or of a variable: spectral_norm(net.fc)
//   register_parametrization(layer, "weight", [](const Tensor& w) { return w.triu() + w.triu(1).t(); });
//   parametrizations(layer, "weight").value();                    // the current weight
//   layer.weight = w;                                             // by right_inverse: the originals change
//   remove_parametrizations(layer, "weight");
//   const CachedParametrizations once;                            // computed once in its scope, as by PyTorch's parametrize.cached
//
// Names in the state_dict are PyTorch's: parametrizations.weight.original, or original0, original1... if right_inverse returns
// several, and parametrizations.weight.0.NAME for the tensors of the first parametrization itself. A single original is the former
// parameter's tensor, so an optimizer that has it trains it; if there are several, construct the optimizer afterwards.
//
// layers/module/orthogonal.h has orthogonal ones. The value is computed with a graph, at each call; copies of the module compute
// it from their own originals. Between calls the member (`layer.weight`) has a shape and a dtype but no values: reading them
// throws MetaError; `value()` returns them. Threads must not call one module with parametrizations at once. TrainStep does not
// record a step that has some.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "framework/base/guard.h"
#include "layers/module/layer.h"
#include "layers/module/part.h"

namespace halfstep {

// Functions of a parametrization's class.
struct ParametrizationClass {
  Tensor (*compute)(Module& module, const Tensors& originals);
  Tensors (*invert)(Module& module, const Tensor& value);  // null without right_inverse
  bool (*can_invert)(const Module& module);
};

// The originals of one parameter and the chain of modules that computes it.
class ParametrizationList : public Module {
 public:
  Tensor value();                                       // with a graph
  const Tensor& original(size_t i = 0) const;           // throws IndexError
  size_t size() const { return child_slots().size(); }  // the number of parametrizations
  Part<Module> operator[](int64_t i) const;             // Counts from the end for negative i. Throws IndexError.
  void set(const Tensor& value);                        // by right_inverse; without one throws ValueError
  std::string describe() const override { return "ParametrizationList"; }

  // Returns the list of a parameter; null if it has none.
  static std::shared_ptr<ParametrizationList> find(const Module& module, const std::string& name);
  static bool any(const Module& module);
  static Tensor value_of(const Module& module, const std::string& name);  // of any parameter, parametrized or not
  static void add_to(Module& module, const std::string& name, std::shared_ptr<Module> parametrization,
                     const ParametrizationClass& functions, bool unsafe);
  static void remove_from(Module& module, const std::string& name, bool leave_parametrized);
  // Returns the tensor without values that the member holds between calls.
  static Tensor stand_in(const Shape& shape, DType dtype, const std::string& label);

 private:
  static std::shared_ptr<TensorSlot> slot_of(const char* where, const Module& module, const std::string& name);
  static std::shared_ptr<ParametrizationList> make_for(const Module& module, const Tensor& original, std::shared_ptr<Module> first,
                                                       const ParametrizationClass& functions, bool unsafe);
  Tensors originals() const;
  Tensor compute();  // the value, by the chain
  void append(std::shared_ptr<Module> parametrization, const ParametrizationClass& functions);
  std::vector<ParametrizationClass> classes_;  // of the children
};

inline Module& module_in(Module& module) { return module; }
template <class M>
Module& module_in(const Part<M>& part) {
  return *part;
}
template <class M>
Module& module_in(const std::shared_ptr<M>& module) {
  check<ValueError>(module != nullptr, "register_parametrization", "needs a module, got a null pointer");
  return *module;
}

// Returns the functions of M, whose forward takes one original or two.
template <class M>
ParametrizationClass parametrization_functions() {
  (void)kRegisteredClass<M>;
  ParametrizationClass functions{};
  functions.compute = [](Module& module, const Tensors& in) -> Tensor {
    if constexpr (requires(M & m, const Tensor& t) { static_cast<Tensor>(m.forward(t, t)); }) {
      if (in.size() == 2) return static_cast<M&>(module)(in[0], in[1]);
    }
    check<ValueError>(in.size() == 1, "register_parametrization", module.describe(), " takes no ", in.size(), " originals");
    return module(in[0]);
  };
  if constexpr (requires(M & m, const Tensor& t) { m.right_inverse(t); })
    functions.invert = [](Module& module, const Tensor& value) -> Tensors {
      auto made = static_cast<M&>(module).right_inverse(value);
      Tensors out;
      each_tensor(made, [&](Tensor& t) { out.push_back(t); });
      return out;
    };
  functions.can_invert = [](const Module& module) {
    if constexpr (requires(const M& m) { static_cast<bool>(m.has_right_inverse()); })
      return static_cast<const M&>(module).has_right_inverse();
    return requires(M & m, const Tensor& t) { m.right_inverse(t); };
  };
  return functions;
}

// Appends a `parametrization` to a parameter and returns the module. It is a function of a tensor, or a module whose forward takes
// the original, by value or as a shared_ptr. The module may have `Tensor right_inverse(const Tensor& value)`, which returns an
// original for about this value; without it, or if its `bool has_right_inverse() const` is false, the parameter itself becomes the
// original. If right_inverse returns `std::pair<Tensor, Tensor>`, there are two originals, and forward takes both. A further
// parametrization of the same parameter takes the result of those before it. Throws ValueError for a name that is not a parameter
// of the module and, unless `unsafe`, for a result of another shape or dtype than the parameter's.
template <class M, class P>
M register_parametrization(M&& module, const std::string& name, P&& parametrization, bool unsafe = false) {
  if constexpr (ModulePart<P>) {
    auto made = as_shared(std::forward<P>(parametrization));
    using CopiedObjects = typename decltype(made)::element_type;
    static_assert(!std::is_same_v<CopiedObjects, Module>,
                  "a parametrization is given as what it is, not as a Module or AnyModule: its right_inverse could not be found");
    ParametrizationList::add_to(module_in(module), name, made, parametrization_functions<CopiedObjects>(), unsafe);
  } else {
    static_assert(!std::derived_from<std::remove_cvref_t<P>, Module> && std::is_invocable_r_v<Tensor, P&, const Tensor&>,
                  "a parametrization is a function from a tensor to a tensor, or a module by value: std::move(m), or Net(m)");
    auto made = std::make_shared<FunctionLayer>("Function()", std::forward<P>(parametrization));
    ParametrizationList::add_to(module_in(module), name, std::move(made), parametrization_functions<FunctionLayer>(), unsafe);
  }
  return std::forward<M>(module);
}
// Makes it a plain parameter again: with its computed value, or else with its original, if it has one. Throws ValueError for a
// parameter without parametrizations.
template <class M>
M remove_parametrizations(M&& module, const std::string& name, bool leave_parametrized = true) {
  ParametrizationList::remove_from(module_in(module), name, leave_parametrized);
  return std::forward<M>(module);
}
// Returns whether this parameter, or without a name any parameter, has parametrizations.
template <class M>
bool is_parametrized(M&& module, const std::string& name = "") {
  return name.empty() ? ParametrizationList::any(module_in(module)) : ParametrizationList::find(module_in(module), name) != nullptr;
}
// Throws ValueError for a parameter without parametrizations.
template <class M>
ParametrizationList& parametrizations(M&& module, const std::string& name) {
  const auto list = ParametrizationList::find(module_in(module), name);
  check<ValueError>(list != nullptr, "parametrizations", '"', name, "\" of ", module_in(module).describe(), " has none");
  return *list;
}

// Caches the values of parametrized parameters in its scope, for all calls on this thread:
//
//   { const CachedParametrizations once; for (const Tensor& x : sequence) state = cell(x, state); }
//
// The calls share the value's graph, so one backward goes through all of them. A value is computed again after a write into its
// parametrizations' parameters, after a change of the module's mode, and if a graph or a region is active that was not when it was
// computed. Nested scopes have no effect.
class CachedParametrizations : LocalGuard {
 public:
  [[nodiscard]] CachedParametrizations();
  ~CachedParametrizations();
};

// Computes weight = g v / |v|, original0 = g and original1 = v (Salimans and Kingma, "Weight Normalization", 2016). The norm is
// over all dimensions except `dim`; over all if dim is unset or -1.
class WeightNorm : public ModuleOf<WeightNorm> {
 public:
  explicit WeightNorm(std::optional<int64_t> dim = 0) : dim_(dim == -1 ? std::nullopt : dim) {}
  Tensor forward(const Tensor& g, const Tensor& v);
  std::pair<Tensor, Tensor> right_inverse(const Tensor& weight) const;
  std::string describe() const override { return "_WeightNorm()"; }

 private:
  Tensor norm_of(const Tensor& v) const;
  std::optional<int64_t> dim_;
};
template <class M>
M weight_norm(M&& module, const std::string& name = "weight", std::optional<int64_t> dim = 0) {
  return register_parametrization(std::forward<M>(module), name, WeightNorm(dim), /*unsafe=*/true);
}

struct SpectralNormOptions {
  int64_t n_power_iterations = 1;
  double eps = 1e-12;
  std::optional<int64_t> dim = {};  // of the outputs: 0, for transposed convolutions 1
};
// Computes weight = original / s, where s is its largest singular value as a matrix [size(dim), rest] (Miyato et al., "Spectral
// Normalization for GANs", 2018). s = u^T W v; each forward in training, and each value() in training, improves u and v, the
// buffers _u and _v, by power iterations. With 1 dimension: original / |original|. Computes in float32 in a region too. Throws
// ValueError for n_power_iterations below 1, IndexError for an invalid dim.
class SpectralNorm : public Module {
 public:
  explicit SpectralNorm(const Tensor& weight, const SpectralNormOptions& options = {});
  Tensor forward(const Tensor& weight) override;
  Tensor right_inverse(const Tensor& value) const { return value; }
  std::string describe() const override { return "_SpectralNorm()"; }

 private:
  Tensor as_matrix(const Tensor& weight) const;
  void iterate(const Tensor& matrix, int64_t times);
  SpectralNormOptions options_;
  ModuleBuffer u_, v_;
};
// Returns the options, with dim filled in by the module's class.
SpectralNorm spectral_norm_of(const Module& module, const std::string& name, const SpectralNormOptions& options);
template <class M>
M spectral_norm(M&& module, const std::string& name = "weight", const SpectralNormOptions& options = {}) {
  return register_parametrization(std::forward<M>(module), name, spectral_norm_of(module_in(module), name, options));
}
template <class M>
M spectral_norm(M&& module, const std::string& name, Integer n_power_iterations, double eps = 1e-12,
                std::optional<int64_t> dim = {}) {
  return spectral_norm(std::forward<M>(module), name, SpectralNormOptions{n_power_iterations, eps, dim});
}

}  // namespace halfstep
