// SPDX-License-Identifier: Apache-2.0
// The part of a model's preparation that an export includes: scaling from the units of a table or a series, and Normalize. A graph
// has no transforms that change sizes: they, and everything before them, stay outside.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "apps/use/predictor.h"
#include "framework/data/transforms/transforms.h"

namespace halfstep::app {

// The included part as a function of inputs, and the rest. `raw`: the included part is empty.
struct Preparation {
  InputUnits units;                           // of columns, or of a series
  std::vector<const ChannelScaling*> inside;  // included, in order
  Json outside = Json::array();               // not included, as in the config
  std::string wide{};                         // columns for which inputs must be float64, as wide_inputs names them

  explicit Preparation(const Predictor& model, bool raw = false);
  Tensor operator()(Tensor x) const;
  DType dtype() const { return wide.empty() ? DType::f32 : DType::f64; }  // of inputs of columns and series
  bool is_empty() const { return units.mean.empty() && units.fill.empty() && inside.empty(); }
};

// Returns golden inputs before the preparation: after the outside transforms, in the units of the file.
Tensor golden_inputs(const Predictor& model, const Preparation& prepare);
// Computes the model's outputs for unprepared inputs x; numbers are in the units of the file.
Tensor prepared_output(const Predictor& model, const Preparation& prepare, const Tensor& x);
// Returns the dtype of answers: float64 if float32 does not have a thousandth of the targets' deviation.
DType answer_dtype(const DataForm& form);
bool has_scale(const DataForm& form);  // whether numbers * std + mean are in the file's units
// Returns mean and std of each number of an answer, for targets of several columns.
std::pair<std::vector<double>, std::vector<double>> numbers_of_scale(const DataForm& form);
// Returns the loss's activation of numbers: "sigmoid", "exp" or "" for none.
std::string last_step_code(const Predictor& model);
// Formats a transform with its arguments: Resize {"size":14}.
std::string transform_text(const Json& transform);
// Returns the `tokenizers` file that converts a table's texts to inputs; "" for other models.
std::string tokenizer_file(const DataForm& form);
// Describes the inputs of a table in order, and the answer: "input 0: height".
std::vector<std::string> input_lines(const DataForm& form);

}  // namespace halfstep::app
