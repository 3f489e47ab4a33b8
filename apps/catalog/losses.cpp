// SPDX-License-Identifier: Apache-2.0
#include "apps/catalog/losses.h"

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

}  // namespace halfstep::app
