// SPDX-License-Identifier: Apache-2.0
#include "apps/export/preparation.h"

#include <numeric>

#include "apps/catalog/losses.h"
#include "apps/use/answer_text.h"
#include "apps/use/wide_inputs.h"

namespace halfstep::app {
namespace {

// Returns one number for each column, or one for all, as a tensor that broadcasts over inputs [N, columns].
Tensor column_tensor(const std::vector<double>& numbers, DType dtype = DType::f32) { return tensor(numbers).to(dtype); }

// Computes (x - mean) / std for each channel by ops, as the transform does.
Tensor normalized(const Tensor& x, const ChannelScaling& scaling) {
  const auto channels = [&](const std::vector<float>& v) {
    Shape shape = Dims::filled(x.dim(), 1);
    shape[v.size() == 1 ? 0 : 1] = int64_t(v.size());
    return from_vector(v, shape, Device::cpu);
  };
  return (x - channels(scaling.mean)) / channels(scaling.std);
}

}  // namespace

Preparation::Preparation(const Predictor& model, bool raw) {
  const Transforms& transforms = model.transforms();
  size_t first = transforms.size();  // the first of those that are included
  while (!raw && first > 0 && (transforms[first - 1]->as_scaling() || dynamic_cast<const ToTensor*>(transforms[first - 1].get())))
    --first;
  for (size_t i = first; i < transforms.size(); ++i)
    if (const ChannelScaling* s = transforms[i]->as_scaling()) inside.push_back(s);
  for (size_t i = 0; i < first; ++i) outside.push_back(model.stored_transforms()[i]);
  if (!raw && first == 0) units = input_units(model.form()), wide = wide_inputs(model.form());
}

Tensor Preparation::operator()(Tensor x) const {
  if (!units.fill.empty()) x = where(eq(x, x), x, column_tensor(units.fill, dtype()));  // NaN is a missing value
  if (!units.mean.empty())  // in double: keeps differences of large numbers, such as times
    x = ((x.to(DType::f64) - tensor(units.mean, {.dtype = DType::f64})) / tensor(units.std, {.dtype = DType::f64})).to(DType::f32);
  for (const ChannelScaling* s : inside) x = normalized(x, *s);
  return x;
}

Tensor golden_inputs(const Predictor& model, const Preparation& prepare) {
  Batch batch{golden_inputs(model.form()), {}};
  std::vector<int64_t> places(size_t(batch.input.size(0)));
  std::iota(places.begin(), places.end(), 0);
  for (size_t i = 0; i < prepare.outside.size(); ++i)
    batch = model.transforms()[i]->apply(batch, {.indices = places, .classes = model.form().classes});
  const Tensor x = batch.input;
  const DType dtype = prepare.dtype();
  return prepare.units.mean.empty()
             ? x
             : x.to(dtype) * column_tensor(prepare.units.std, dtype) + column_tensor(prepare.units.mean, dtype);
}

std::string last_step_code(const Predictor& model) {
  const Json& loss = model.config().loss;
  if (model.form().classes > 0) return "";
  if (loss["type"] == "BCEWithLogitsLoss") return "sigmoid";
  return loss["type"] == "PoissonNLLLoss" && loss.value("log_input", true) ? "exp" : "";
}

std::string transform_text(const Json& transform) {
  Json arguments = transform;
  arguments.erase("type");
  return transform.value("type", "a transform") + (arguments.empty() ? "" : " " + line_of(arguments));
}

std::vector<std::string> input_lines(const DataForm& form) {
  if (const auto* series = std::get_if<SeriesForm>(&form.source); series && series->options.columns.size() > 1) {
    std::vector<std::string> out;
    for (const std::string& name : series->options.columns) out.push_back(joined("column ", out.size(), " of the window: ", name));
    for (const std::string& name : form.names) out.push_back("answers, for each step: " + name);
    return out;
  }
  const auto* table = std::get_if<TableForm>(&form.source);
  if (!table || !table->options.encoding) return {};
  const CsvEncoding& e = *table->options.encoding;
  std::vector<std::string> out;
  if (e.tokens) {
    std::string columns;
    for (const CsvEncoding::Column& c : e.columns) columns += (columns.empty() ? "" : ", ") + c.name;
    out.push_back(joined("inputs: ", e.tokens->options().length, " tokens of ", columns, ", as tokenizer.json makes them"));
  }
  const auto add = [&](const std::string& input) { out.push_back(joined("input ", out.size(), ": ", input)); };
  for (const CsvEncoding::Column& c : e.tokens ? std::vector<CsvEncoding::Column>() : e.columns) {
    if (!c.categories.empty() && table->options.one_hot) {
      for (const std::string& category : c.categories) add(c.name + ", 1 if it is \"" + category + "\", else 0");
    } else if (!c.categories.empty()) {
      add(c.name + ", the number of the category in " + Json(c.categories).dump() +
          (c.categories.front().empty() ? ", or NaN for a missing value" : ""));
    } else if (!c.date.empty()) {
      for (const std::string& part : c.date)
        add(c.name + (part == "days" ? ", days since 1970-01-01" : part == "weekday" ? ", weekday (Monday is 0)" : ", " + part));
    } else {
      add(c.name);
    }
  }
  out.push_back("answers: " + (form.classes > 0 ? std::string("a number for each class") : e.target));
  return out;
}

std::pair<std::vector<double>, std::vector<double>> numbers_of_scale(const DataForm& form) {
  std::pair<std::vector<double>, std::vector<double>> out;
  for (int64_t i = 0; i < numel(form.target); ++i) {
    const ColumnScale& scale = form.scale.each[size_t(i) % form.scale.each.size()];
    out.first.push_back(scale.mean), out.second.push_back(scale.std);
  }
  return out;
}

std::string tokenizer_file(const DataForm& form) {
  const auto* table = std::get_if<TableForm>(&form.source);
  const bool has_texts = table && table->options.encoding && table->options.encoding->tokens;
  return has_texts ? table->options.encoding->tokens->tokenizer_json() : "";
}

DType answer_dtype(const DataForm& form) { return form.classes == 0 && needs_double(form) ? DType::f64 : DType::f32; }

bool has_scale(const DataForm& form) { return form.classes == 0 && form.scale != ColumnScale(); }

Tensor prepared_output(const Predictor& model, const Preparation& prepare, const Tensor& x) {
  const FreshStates begin(*model.parts().model);
  const Tensor y = (*model.parts().model)(prepare(x)).to(DType::f32);
  return model.form().classes == 0 ? answers_of(y.to(answer_dtype(model.form())), model.config().loss, model.form()) : y;
}

}  // namespace halfstep::app
