// SPDX-License-Identifier: Apache-2.0
#include "apps/catalog/losses.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "amp/autocast/autocast.h"
#include "apps/catalog/infer.h"
#include "apps/schema/suggest.h"
#include "framework/autograd/grad_mode.h"
#include "framework/ops/ops.h"

namespace halfstep::app {
namespace {

// Applies a loss of classes to sequences: a class for each position counts as a sample.
class ByPosition : public Loss {
 public:
  explicit ByPosition(std::unique_ptr<Loss> loss) : loss_(std::move(loss)) {}
  Tensor operator()(const Tensor& output, const Tensor& target) const override { return with_seed(output, target, {}); }
  Tensor with_seed(const Tensor& output, const Tensor& target, const Tensor& seed) const override {
    const ComparedTensors rows = by_position(output, target);
    return loss_->with_seed(rows.output, rows.target, seed);
  }
  Denominator denominator(const Tensor& target) const override { return loss_->denominator(target); }
  bool is_recordable() const override { return loss_->is_recordable(); }
  std::string describe() const override { return loss_->describe(); }

 private:
  std::unique_ptr<Loss> loss_;
};

std::string losses_for(Targets targets) {
  std::vector<std::string> names;
  for (const LossRow& row : loss_catalog().rows()) {
    if (row.targets == targets) names.push_back(row.component.type);
  }
  return one_of(names);
}

// Completes "data.train has".
const char* present_targets(Targets targets) {
  return targets == Targets::classes ? "classes" : targets == Targets::numbers ? "numbers as targets" : "rows of labels as targets";
}
// Completes "a loss needs".
const char* needed_targets(Targets targets) { return targets == Targets::classes ? "data with classes" : present_targets(targets); }

// Checks that the output has a score for each class, at each position that has a class.
bool scores_fit(const Shape& output, const DataFacts& facts, Issues& issues) {
  Shape wanted = facts.target;
  wanted.push_back(facts.classes);
  const bool labels = facts.targets() == Targets::labels;
  Shape positions = output;
  if (!positions.empty()) positions.erase(positions.size() - 1);
  if (labels ? output.size() != 2 : output.empty() || !(positions == facts.target)) {
    issues.error("model",
                 labels ? joined("the output must have shape [steps, ", facts.classes, "], a score for each class, got ", output)
                        : joined("the output must have shape ", wanted, ", one a class, got ", output,
                                 output.size() > wanted.size() ? "; put \"Flatten\" before the last Linear" : ""));
    return false;
  }
  const int64_t scores = output.back();
  if (scores < facts.classes) {
    issues.error("model", joined("the output must have shape ", labels ? joined("[steps, ", facts.classes, "]") : joined(wanted),
                                 ", one a class, got ", output));
    return false;
  }
  if (labels && output[0] < facts.target[0]) {
    issues.error("model", joined("the output must have at least as many steps as a sample may have labels, ", facts.target[0],
                                 ", got ", output));
    return false;
  }
  if (scores > facts.classes) issues.warn("model", joined("the output has ", scores, " values for ", facts.classes, " classes"));
  return true;
}

}  // namespace

Catalog<LossRow>& loss_catalog() {
  static Catalog<LossRow>& catalog = *[] {
    auto* const made = new Catalog<LossRow>("loss", {});
    add_loss_rows(*made);
    return made;
  }();
  return catalog;
}

ComparedTensors by_position(const Tensor& output, const Tensor& target) {
  if (target.dtype() != DType::i64 || target.dim() < 2 || output.dim() != target.dim() + 1) return {output, target};
  return {output.reshape({-1, output.size(-1)}), target.reshape({-1})};
}

ComparedTensors as_measured(const Tensor& output, const Tensor& target, const Json& loss, const DataForm& form) {
  if (form.label_sequences) return {output, target};
  if (form.classes > 0) return by_position(output, target);
  if (form.scale == ColumnScale()) return {answers_of(output, loss, form), target};
  return {answers_of(output.to(DType::f64), loss, form), form.scale.in_units(target.to(DType::f64))};
}

Tensor answers_of(const Tensor& outputs, const Json& loss, const DataForm& form) {
  const std::string type = loss["type"];
  const bool is_log = type == "NLLLoss" || (type == "PoissonNLLLoss" && loss.value("log_input", true));
  if (form.classes > 0) return type == "CrossEntropyLoss" ? softmax(outputs, -1) : is_log ? exp(outputs) : outputs;
  return form.scale.in_units(type == "BCEWithLogitsLoss" ? sigmoid(outputs) : is_log ? exp(outputs) : outputs);
}

std::optional<int64_t> ignored_class(const Json& loss) {
  if (!loss.is_object() || !loss.contains("ignore_index") || !loss["ignore_index"].is_number_integer()) return {};
  return loss["ignore_index"].get<int64_t>();
}

bool gives_probabilities(const Json& loss) { return loss["type"] == "CrossEntropyLoss" || loss["type"] == "NLLLoss"; }

std::unique_ptr<Loss> build_loss(const Json& loss) {
  const LossRow& row = loss_catalog().row(loss);
  auto made = row.make(loss);
  return row.targets == Targets::classes ? std::make_unique<ByPosition>(std::move(made)) : std::move(made);
}

void check_loss(const Json& loss, const InferredModel& model, const DataFacts& facts, const ModelPrecision& precision,
                Issues& issues) {
  const LossRow& row = loss_catalog().row(loss);
  const Targets given = facts.targets();
  const Shape& output = *model.output;
  if (row.targets != given) {
    return issues.error("loss", joined(row.component.type, " needs ", needed_targets(row.targets), ", but data.train has ",
                                       present_targets(given), "; use ", losses_for(given)));
  }
  if (given != Targets::numbers && !scores_fit(output, facts, issues)) return;
  if (given == Targets::numbers && !(output == facts.target))
    return issues.error("model", "the output must have the target's shape " + joined(facts.target) + ", got " + joined(output));
  try {
    const DefaultDevice on(Device::meta);
    const NoGrad off;
    const Autocast region(Device::meta, precision.region());
    const Tensor value = (*build_loss(loss))(empty(with_batch(1, output), {.dtype = model.dtype}),
                                             empty(with_batch(1, facts.target), {.dtype = facts.target_dtype()}));
    if (value.numel() != 1) issues.error("loss", "must make one number of a batch, but made " + joined(value.shape()));
  } catch (const Error& e) { issues.error("loss", one_line(e)); }
}

namespace {

bool fits(double x, TargetNumbers numbers) {
  switch (numbers) {
    case TargetNumbers::any: return true;
    case TargetNumbers::probabilities: return x >= 0 && x <= 1;
    case TargetNumbers::not_negative: return x >= 0;
    case TargetNumbers::signs: return x == 1 || x == -1;
  }
  return true;
}

const char* text_of(TargetNumbers numbers) {
  return numbers == TargetNumbers::signs           ? "1 and -1"
         : numbers == TargetNumbers::probabilities ? "numbers from 0 to 1"
                                                   : "no numbers below 0";
}

// A last layer that a loss cannot follow, by the beginning of its description.
struct UnfitEnd {
  const char *loss, *layer, *advice;
};
constexpr const char* kScores = "takes scores, to which it applies the sigmoid itself: leave it out";
constexpr const char* kLogarithms = "takes log-probabilities: put LogSoftmax in its place";
constexpr UnfitEnd kUnfitEnds[] = {
    {"CrossEntropyLoss", "Softmax(", "which CrossEntropyLoss applies itself; leave it out"},
    {"CrossEntropyLoss", "Sigmoid(", "takes scores of any size: leave it out"},
    {"NLLLoss", "Linear(", "takes log-probabilities: put LogSoftmax behind it, or use CrossEntropyLoss"},
    {"NLLLoss", "Softmax(", kLogarithms},
    {"NLLLoss", "Sigmoid(", kLogarithms},
    {"KLDivLoss", "Linear(", "takes log-probabilities: put LogSoftmax behind it"},
    {"KLDivLoss", "Softmax(", kLogarithms},
    {"KLDivLoss", "Sigmoid(", kLogarithms},
    {"BCELoss", "Linear(", "takes probabilities: put Sigmoid behind it, or use BCEWithLogitsLoss"},
    {"BCEWithLogitsLoss", "Sigmoid(", kScores},
    {"BCEWithLogitsLoss", "Softmax(", kScores},
    {"MultiLabelSoftMarginLoss", "Sigmoid(", kScores},
    {"MultiLabelSoftMarginLoss", "Softmax(", kScores},
    {"SoftMarginLoss", "Sigmoid(", "takes scores of both signs: leave it out"},
    {"SoftMarginLoss", "Softmax(", "takes scores of both signs: leave it out"},
};

}  // namespace

bool limits_targets(const Json& loss) {
  const bool is_known = loss.is_object() && loss.contains("type") && loss["type"].is_string() &&
                        loss_family().find(loss["type"].get<std::string>());
  return is_known && loss_catalog().row(loss).numbers != TargetNumbers::any;
}

std::string unfit_targets(const Json& loss, const Dataset& data) {
  constexpr int64_t kMostSamples = 65536, kBatch = 256;
  const LossRow& row = loss_catalog().row(loss);
  const int64_t count = std::min(data.size(), kMostSamples);
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < count; ++i) {
    samples.push_back(i * data.size() / count);
    if (std::ssize(samples) < kBatch && i + 1 < count) continue;
    for (const double x : data.batch(samples).target.to(DType::f64).to_vector<double>()) {
      if (!std::isnan(x) && !fits(x, row.numbers))
        return joined("has targets such as ", float(x), ", but ", row.component.type, " is for ", text_of(row.numbers));
    }
    samples.clear();
  }
  return {};
}

void check_last_layer(const Json& loss, const std::vector<LayerRow>& layers, Issues& issues) {
  const auto keeps_values = [](const LayerRow& layer) {
    constexpr std::string_view kKeep[] = {"Flatten(", "Unflatten(", "Identity(", "Dropout("};
    return std::any_of(std::begin(kKeep), std::end(kKeep), [&](std::string_view name) { return layer.what.starts_with(name); });
  };
  const auto last = std::find_if_not(layers.rbegin(), layers.rend(), keeps_values);
  if (last == layers.rend()) return;
  const std::string layer = last->what.substr(0, last->what.find('(')), type = loss["type"];
  for (const UnfitEnd& end : kUnfitEnds) {
    if (type != end.loss || !last->what.starts_with(end.layer)) continue;
    const bool is_applied = std::string_view(end.advice).starts_with("which");
    issues.warn("model", joined("ends in ", layer, ", ", is_applied ? "" : "but " + type + ' ', end.advice));
  }
  if (layer.ends_with("Softmax") && last->what.find("dim=0") != std::string::npos)
    issues.warn("model", joined("ends in ", last->what, ", whose sums run over the samples of a batch: leave \"dim\" out"));
}

}  // namespace halfstep::app
