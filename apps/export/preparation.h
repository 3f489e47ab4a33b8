// SPDX-License-Identifier: Apache-2.0
// What happens to inputs in front of a model, as far as an export carries it: scaling from the units of a table or a series, and
// Normalize. Transforms that change sizes are code that no graph has: they stay outside, and so does all that comes before them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "apps/use/predictor.h"
#include "framework/data/transforms/transforms.h"

namespace halfstep::app {

struct Preparation {
  InputUnits units;                           // of columns, or of a series
  std::vector<const ChannelScaling*> inside;  // in order
  Json outside = Json::array();               // transforms, as the config has them

  explicit Preparation(const Predictor& model, bool raw = false);
  Tensor operator()(Tensor x) const;
  bool is_empty() const { return units.mean.empty() && units.fill.empty() && inside.empty(); }
};

// Golden inputs as they are in front of the preparation: behind the transforms that are outside, in the units of the file.
Tensor golden_inputs(const Predictor& model, const Preparation& prepare);
// With preparation, and with numbers in the units of the file.
Tensor prepared_output(const Predictor& model, const Preparation& prepare, const Tensor& x);
bool has_scale(const DataForm& form);  // numbers * std + mean are in the file's units
// Of targets from several columns: mean and std of each number of an answer.
std::pair<std::vector<double>, std::vector<double>> numbers_of_scale(const DataForm& form);
// What the loss's last step does to numbers: "sigmoid", "exp" or "" for nothing.
std::string last_step_code(const Predictor& model);
// A transform with its arguments: Resize {"size":14}.
std::string transform_text(const Json& transform);
// A model of a table's texts: the file that makes its inputs of texts, for the package `tokenizers`; "": another model.
std::string tokenizer_file(const DataForm& form);
// What the inputs of a table are, in order, and what is answered: "input 0: height".
std::vector<std::string> input_lines(const DataForm& form);

}  // namespace halfstep::app
