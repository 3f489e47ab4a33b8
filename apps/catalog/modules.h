// SPDX-License-Identifier: Apache-2.0
// The catalogue of layers. A row has a layer's fields and factory; omitted widths, output shapes and dtypes are inferred by
// running the layer on Device::meta.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "amp/autocast/autocast.h"
#include "apps/catalog/catalog.h"
#include "apps/catalog/facts.h"
#include "apps/catalog/option_fields.h"
#include "framework/backend/op_log.h"
#include "framework/base/dtype.h"
#include "layers/module/module.h"

namespace halfstep::app {

class Inference;  // apps/catalog/infer.h

// A layer whose config is inside another layer's.
struct LayerPart {
  std::string key;   // path of its config within the other's: "layers.2"
  std::string name;  // its name within the other: "2"
  Json* config;
};
struct ModuleRow {
  Component component;
  std::function<std::shared_ptr<Module>(const Json& self)> make;
  // Runs a batch through the children of a container, and fills in fields that their configs omit.
  std::function<Tensor(Json& self, const Tensor& x, Inference& at)> follow = {};
  std::function<std::vector<LayerPart>(Json& self)> parts = {};
  // Number of fields that the class takes by position, by default all; the others follow by name in braces.
  size_t positional = std::numeric_limits<size_t>::max();
};
Catalog<ModuleRow>& module_catalog();
inline const Family& module_family() { return module_catalog().family(); }

// Makes the row of a layer whose constructor takes the values of its fields, in order.
template <class M, class... Ts>
ModuleRow module_row(std::string type, std::string doc, Arg<Ts>... args) {
  return {{std::move(type), std::move(doc), {args.field...}},
          [args...](const Json& self) -> std::shared_ptr<Module> { return std::make_shared<M>(value_of(self, args)...); }};
}

// Constructs M from a config's values of its required arguments, and `last`.
template <class M, class... T, class... Last>
std::shared_ptr<Module> make_listed(const Json& self, const Arguments<T...>& arguments, const Last&... last) {
  return [&]<size_t... i>(std::index_sequence<i...>)->std::shared_ptr<Module> {
    return halfstep::make<M>(ReadArg<T>::from(self[arguments.each[i].name])..., last...);
  }
  (std::index_sequence_for<T...>());
}
// Makes the row of a layer of this library, with a field for each required argument and each option. M has kName; arguments() and
// Options, where it takes some; and kDims, if its sizes have a fixed number of dimensions. `defaults`: of configs, where they
// differ from the class's.
template <class M, class O>
ModuleRow class_row(std::string doc, const O& defaults) {
  FieldRules rules;
  if constexpr (requires { M::kDims; }) rules.dims = M::kDims;
  static const auto& arguments = [&]() -> const auto& {
    static const Arguments<> none({});
    if constexpr (requires { M::arguments(); })
      return M::arguments();
    else
      return none;
  }
  ();
  ModuleRow row{{M::kName, std::move(doc), {}}, {}};
  for (const halfstep::Argument& a : arguments.each) row.component.fields.push_back(field_of(a, {}, rules));
  if constexpr (HasOptionList<O>) {
    for (Field& f : fields_of<O>(defaults, rules)) row.component.fields.push_back(std::move(f));
    row.positional = arguments.kCount;
    row.make = [](const Json& self) {
      O options;
      read_options(self, options);
      return make_listed<M>(self, arguments, options);
    };
  } else {
    row.make = [](const Json& self) { return make_listed<M>(self, arguments); };
  }
  return row;
}
template <class M>
ModuleRow class_row(std::string doc) {
  if constexpr (requires { typename M::Options; })
    return class_row<M>(std::move(doc), typename M::Options());
  else
    return class_row<M>(std::move(doc), nullptr);
}

// A layer of a model, as infer_model ran it.
struct LayerRow {
  std::string name;  // as in the state_dict: "0", "head"
  std::string path;  // path in the config: "model.layers.0"
  std::string what;  // "Linear(in_features=784, out_features=512, bias=True)"
  Shape output;      // of one sample
  int64_t parameters = 0;
  DType dtype = DType::f32;            // of the output
  std::vector<LoggedCall> calls = {};  // of its forward alone, on `samples`
  int64_t samples = 0;
};

struct InferredModel {
  Json model;                   // with all widths filled in
  std::optional<Shape> output;  // of one sample; unset after an issue
  DType dtype = DType::f32;     // of the output
  std::vector<LayerRow> layers;
};

// The parts of "amp" that affect models and losses.
struct ModelPrecision {
  std::optional<DType> low = {};                            // of autocast; unset: off, and the others have no effect
  OpPolicies policies = {};                                 // "amp.policy"
  std::vector<std::pair<std::string, DType>> modules = {};  // "amp.modules": patterns of names
  AutocastOptions region() const { return {.dtype = low, .enabled = low.has_value(), .policies = policies}; }
};

// Runs a checked model config layer by layer on Device::meta, on samples described by `facts`, in the region of `precision`.
// `path`: its place in the document.
InferredModel infer_model(const Json& model, const DataFacts& facts, const ModelPrecision& precision, const std::string& path,
                          Issues& issues);

// Constructs `model`, as infer_model returned it, on the default device. Weights are drawn from the default generator, by the
// layers' own rules or by `init`; load_weights reads the files of `weights` (apps/catalog/weights.h).
std::shared_ptr<Module> build_model(const Json& model);

// Makes the modules that "train.checkpoint_activations" (a pattern or a list of patterns) names recompute their activations in
// backward (Module::recompute_in_backward); "auto" names none. Throws ConfigError for a pattern that matches no module's name.
void recompute_activations(Module& model, const Json& patterns);

// Returns the dtype that ModelPrecision sets for the module `name`: that of the pattern with the longest match.
std::optional<DType> dtype_for(const std::string& name, const ModelPrecision& precision);
// Sets the precisions of `model`, which is called `prefix`, and of its descendants.
void set_precisions(Module& model, const ModelPrecision& precision, const std::string& prefix = "");
// Throws ConfigError for a pattern of precision.modules that matches no module's name, and for two that match equally much of a
// name and set different dtypes. For the whole model.
void check_precisions(Module& model, const ModelPrecision& precision);

// ---- initial values

// An initialiser, named as in torch.nn.init without the last underscore.
struct InitRow {
  Component component;
  std::function<void(const Json& self, const Tensor& parameter)> fill;
};
Catalog<InitRow>& init_catalog();
void add_init_rows(Catalog<InitRow>& catalog);

// Returns the keys that every layer has.
std::vector<Field> initial_fields();

// Applies `init`, `tie`, `freeze` and `freeze_statistics` of the config of `module`. Throws ConfigError for a pattern that matches
// no name, for an initialiser that does not fit a parameter, and for layers that cannot share a weight.
void initialise(Module& module, const Json& self);

}  // namespace halfstep::app

// Registers a class of yours as a layer of JSON configs, under its own name, with fields that its constructor takes in order:
//   HALFSTEP_REGISTER_MODULE(TwoTowers, arg<int64_t>(integer("width", 64, "of a tower").at_least(1)),
//                            arg<double>(number("p", 0.1, "probability of Dropout")));
// Use it outside functions, with `using namespace halfstep::app`. The width of the input is a field `.from_input_dim(-1)`.
#define HALFSTEP_REGISTER_MODULE(Class, ...) HALFSTEP_REGISTER(module, Class __VA_OPT__(, ) __VA_ARGS__)
