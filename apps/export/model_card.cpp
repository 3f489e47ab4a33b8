// SPDX-License-Identifier: Apache-2.0
// Writes the README.md of an exported folder, with the header of Hugging Face's model cards.
#include <algorithm>
#include <cmath>

#include "apps/export/exporter.h"
#include "apps/terminal/quantity_text.h"
#include "framework/base/list_text.h"
#include "generated/halfstep_release.h"

namespace halfstep::app {
namespace {

std::string text_of(const Shape& shape) { return joined(shape); }

std::string quoted_list(std::vector<std::string> names) {
  constexpr size_t kMostNames = 100;
  for (std::string& name : names) name = '`' + name + '`';
  return list_text(names, kMostNames);
}

std::string columns_text(const CsvEncoding& encoding) {
  std::vector<std::string> names;
  for (const CsvEncoding::Column& c : encoding.columns) names.push_back(c.name);
  return quoted_list(names);
}

// Returns "MNIST" or "CSV, houses.csv".
std::string data_text(const Json& data) {
  std::string out = data.value("type", "");
  for (const char* key : {"path", "root", "input"})
    if (data.contains(key) && data[key].is_string()) out += ", " + data[key].get<std::string>();
  return out;
}

std::string input_text(const DataForm& form) {
  if (std::holds_alternative<ImageForm>(form.source)) return "pictures " + text_of(form.input) + ", pixels in [0, 1]";
  if (const auto* t = std::get_if<TableForm>(&form.source); t && t->options.encoding)
    return (t->options.encoding->tokens ? "texts in the columns " : "rows of a table with the columns ") +
           columns_text(*t->options.encoding);
  if (const auto* s = std::get_if<SeriesForm>(&form.source))
    return "windows " + text_of(form.input) + " of a series: rows of " + quoted_list(s->options.columns);
  if (std::holds_alternative<TextForm>(form.source))
    return "text, " + std::to_string(form.vocabulary) + " tokens, " + std::to_string(numel(form.input)) + " at a time";
  return "arrays " + text_of(form.input);
}

std::string answer_text(const DataForm& form) {
  if (form.classes == 0)
    return "numbers " + text_of(form.target) +
           (std::holds_alternative<SeriesForm>(form.source) ? ", the next of " + quoted_list(form.names) : "");
  constexpr int64_t kMostClasses = 20;  // to list
  std::string out = std::to_string(form.classes) + " classes";
  if (form.names.empty() || form.classes > kMostClasses) return out;
  for (int64_t i = 0; i < form.classes; ++i) out += (i ? ", " : ": ") + form.class_name(i);
  return out;
}

}  // namespace

std::string model_card(const ExportSource& source) {
  const Predictor& model = source.model;
  const DataForm& form = model.form();
  const Json config = stored_config(source.stored.contents);
  const std::string name = config.contains("name") && config["name"].is_string() ? config["name"].get<std::string>() : "model";
  int64_t parameters = 0;
  for (const Tensor& p : model.parts().model->parameters()) parameters += p.numel();
  std::string out =
      "---\nlibrary_name: halfstep\ntags:\n- halfstep\n- " + std::string(kind_of(form)) + "\n---\n\n# " + name + "\n\n";
  out += "Trained with halfstep " + std::string(HALFSTEP_VERSION) + ", step " + std::to_string(model.step()) +
         (model.is_averaged() ? ", averaged weights" : "") + ".\n\n";
  out += "| | |\n| --- | --- |\n| takes | " + input_text(form) + " |\n| answers with | " + answer_text(form) +
         " |\n| parameters | " + std::to_string(parameters) + " |\n| trained on | " + data_text(config["data"]["train"]) + " |\n";
  for (const auto& [key, value] : source.stored.metrics.items())
    out += "| " + key + " | " + number_text(value.get<double>(), 6) + " |\n";
  const bool text = std::holds_alternative<TextForm>(form.source);
  out +=
      "\n## Use\n\n```\n" + std::string(text ? "halfstep generate . --prompt \"...\"" : "halfstep predict . INPUT...") +
      "\n```\n\nFrom Python, the weights under PyTorch's names:\n\n```python\nfrom safetensors.torch import load_file\n"
      "weights = load_file(\"model.safetensors\")\n```\n\nFrom C++: `halfstep::app::Predictor model(\".\");`, from C: "
      "`hs_open(\".\", NULL)`.\n\n`model.safetensors` holds three golden samples with their answers: `halfstep predict . --check` "
      "compares.\n\n| file | what |\n| --- | --- |\n| `model.safetensors` | weights, and in its metadata all of the below |\n"
      "| `config.json` | the run's config |\n| `data.json` | facts about the training data: classes, columns, scales, transforms "
      "|\n";
  return out;
}

}  // namespace halfstep::app
