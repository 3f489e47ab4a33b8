// The catalogue of layers: for each its config fields, its output shape and how it is made.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/build/facts.h"
#include "apps/config/schema.h"
#include "layers/module.h"

namespace halfstep::app {

const Family& module_family();

// One layer of a dry run's table.
struct LayerRow {
  std::string name;  // as in the state_dict: "0", "head"
  std::string what;  // "Linear(784, 512)"
  Shape output;      // of one sample
  int64_t parameters = 0;
  char precision = '=';  // under autocast: 'l' low, 'f' float32, '=' that of its input
};

struct InferredModel {
  Json model;                   // with in_features, and out_features where "auto", filled in
  std::optional<Shape> output;  // of one sample; nothing when an issue was found
  std::vector<LayerRow> layers;
};

// Follows the shape of a sample through the layers of a checked model config. `path`: where it stands in the document.
InferredModel infer_model(const Json& model, const DataFacts& facts, const std::string& path, Issues& issues);

// `model` as infer_model returned it. Weights come from the default generator. On the CPU.
std::shared_ptr<Module> build_model(const Json& model);

}  // namespace halfstep::app
