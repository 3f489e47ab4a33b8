// SPDX-License-Identifier: Apache-2.0
// Runs a batch on Device::meta through the layers of a model config.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apps/catalog/modules.h"
#include "framework/base/generator.h"

namespace halfstep::app {

// Restores the default generator at its end: random weights on Device::meta advance it as any others do.
class SavedGenerator {
 public:
  [[nodiscard]] SavedGenerator() : state_(default_generator().state()) {}
  ~SavedGenerator() { default_generator().set_state(state_); }
  SavedGenerator(const SavedGenerator&) = delete;

 private:
  Generator::State state_;
};

// A place in a model config. Rows of container layers get it, and run the batch through their children with it.
class Inference {
 public:
  struct Run {
    const DataFacts& facts;
    const ModelPrecision& precision;
    Issues& issues;
    std::vector<LayerRow>& rows;
    int64_t& built;              // number of layers and parameter tensors so far
    std::string unfolded_at = {};  // path of the layer that expands to the layers that run; empty: the config spells them out
  };
  Inference(Run& run, std::string path, std::string name) : run_(run), path_(std::move(path)), name_(std::move(name)) {}

  // Runs this config's layer on x. Returns undefined after an error, which it adds to the issues.
  Tensor layer(Json& self, const Tensor& x);
  // Runs the child `name`, whose config is at `key` below this one.
  Tensor child(Json& self, const std::string& key, const std::string& name, const Tensor& x);
  // Runs layers that this one's config expands to. Their issues are reported at this one's place.
  Tensor run_unfolded(Json& self, const Tensor& x);
  // Joins outputs of layers by join(), and appends a row for it, of type `what`, at `key` below this place, named `name`.
  Tensor infer_join(const std::string& what, const std::function<Tensor()>& join, const std::string& key = "",
              const std::string& name = "");
  // Runs layers of the config again. Their issues become one issue, whose text says `which` run it was.
  Tensor infer_again(const std::string& which, const std::function<Tensor(Inference&)>& follow);
  Tensor reject(const std::string& key, const std::string& message);  // key "": the layer itself
  void warn(const std::string& key, const std::string& message);
  // Fills in the fields of `self` that depend on the input or on the data. Returns false after an error.
  bool fill_widths(Json& self, const Component& component, const Tensor& x);

 private:
  Tensor run_leaf(const Json& self, const ModuleRow& row, const Tensor& x);
  void check_initial(const Json& self);
  bool fill_stateful(Json& self, const std::string& key);
  bool fill_from_input(Json& self, const std::string& type, const Field& f, const Tensor& x);
  // Runs `follow` with issues of its own, and reports the first at this place, with the text of `text_of`.
  Tensor report_here(const std::function<Tensor(Inference&)>& follow, const std::function<std::string(const Issue&)>& text_of);
  Tensor record(const std::function<Tensor(LayerRow&)>& run, const std::string& of);
  std::optional<DType> inherited() const;
  Run& run_;
  std::string path_;  // "model.layers.2"
  std::string name_;  // "2"; "" for the model itself
};

// Formats an error of the framework as one line of a config's errors: without the layer, which the line's path names.
std::string one_line(const Error& e);

}  // namespace halfstep::app
