// SPDX-License-Identifier: Apache-2.0
#include "apps/catalog/losses.h"

#include "amp/autocast/autocast.h"
#include "apps/catalog/infer.h"
#include "apps/catalog/rows/layer_rows.h"
#include "apps/schema/suggest.h"
#include "framework/autograd/grad_mode.h"
#include "framework/ops/ops.h"

namespace halfstep::app {
namespace {

// Restricts "reduction" to "mean": the training step weighs batches by their denominators. Programs and tests that construct a
// loss alone may put "sum" or "none" into the checked config.
Field of_config(Field f) {
  if (f.key == "reduction") std::erase_if(f.words, [](const std::string& word) { return word == "sum" || word == "none"; });
  return f;
}
// Allows the word "balanced", which the rules of a config replace by numbers.
Field or_balanced(Field f) {
  if (f.key != "weight") return f;
  f.doc += "; \"balanced\": computed from the training data so that all classes count the same";
  return f.or_word("balanced");
}

// Makes the row of a loss whose constructor takes its options.
template <class L>
LossRow option_row(std::string doc, Targets targets) {
  using O = typename L::Options;
  std::vector<Field> fields;
  for (const Field& f : fields_of(O{})) fields.push_back(targets == Targets::classes ? or_balanced(of_config(f)) : of_config(f));
  return {{L::kName, std::move(doc), std::move(fields)},
          [](const Json& self) -> std::unique_ptr<Loss> {
            O options;
            read_options(self, options);
            return std::make_unique<L>(options);
          },
          targets};
}

void add_number_rows(Catalog<LossRow>& all) {
  const Targets numbers = Targets::numbers;
  all.add(option_row<MSELoss>("mean of (output - target)^2", numbers));
  all.add(option_row<L1Loss>("mean of |output - target|", numbers));
  all.add(option_row<SmoothL1Loss>("(output - target)^2 / (2 beta), |output - target| - beta/2 from beta on", numbers));
  all.add(option_row<HuberLoss>("(output - target)^2 / 2, delta (|output - target| - delta/2) from delta on", numbers));
  all.add(option_row<PoissonNLLLoss>("exp(output) - target output", numbers));
  all.add(option_row<KLDivLoss>("target (ln(target) - output), output in log space", numbers));
  all.add(option_row<BCELoss>("-(target ln(output) + (1 - target) ln(1 - output)), output a probability; not with mixed precision",
                              numbers));
  all.add(option_row<BCEWithLogitsLoss>("BCELoss of sigmoid(output), without its rounding", numbers));
  all.add(option_row<SoftMarginLoss>("ln(1 + exp(-target output)), target 1 or -1", numbers));
  all.add(option_row<HingeEmbeddingLoss>("output for target 1, max(0, margin - output) for target -1", numbers));
  all.add(option_row<MultiLabelMarginLoss>(
      "max(0, 1 - output[t] + output[j]) over classes t before the first -1 of the target and all others j", numbers));
  all.add(option_row<MultiLabelSoftMarginLoss>("BCEWithLogitsLoss, averaged over the classes", numbers));
}

void add_class_rows(Catalog<LossRow>& all) {
  const Targets classes = Targets::classes;
  all.add(option_row<CrossEntropyLoss>("negative log-likelihood of the class under softmax(output)", classes));
  all.add(option_row<NLLLoss>("-output[class], output in log space, as of LogSoftmax", classes));
  all.add(option_row<MultiMarginLoss>("max(0, margin - output[class] + output[j])^p over the other classes j", classes));
}

// CTCLoss over all steps of each sample's output, and over its target up to the first -1: the mean over rows of each row's mean.
class LabelsCtc : public Loss {
 public:
  using Options = CtcOptions;
  static constexpr const char* kName = "CTCLoss";
  explicit LabelsCtc(const CtcOptions& options) : loss_{options} {}
  Tensor operator()(const Tensor& output, const Tensor& target) const override {
    const int64_t batch = output.size(0), steps = output.size(1), blank = loss_.options.blank;
    // On a dry run, which has no labels, assumes the most possible, with a blank around each.
    const Tensor labels = target.device().is_meta()
                              ? full(target.shape(), blank == 0 ? 1.0 : 0.0, {.dtype = DType::i64, .device = Device::cpu})
                              : target.to(Device::cpu);
    const Tensor lengths = sum(ge(labels, 0.0).to(DType::i64), {1});
    return loss_(output.transpose(0, 1), labels, full({batch}, double(steps), {.dtype = DType::i64, .device = Device::cpu}),
                 lengths);
  }
  std::string describe() const override { return "CTCLoss()"; }

 private:
  CTCLoss loss_;
};

void add_label_rows(Catalog<LossRow>& all) {
  all.add(option_row<LabelsCtc>(
      "negative log-likelihood of the labels under all ways to spread them over the steps; output in log space, as of LogSoftmax",
      Targets::labels));
}

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

const char* has(Targets targets) {
  return targets == Targets::classes ? "classes" : targets == Targets::numbers ? "numbers as targets" : "rows of labels as targets";
}
const char* needs(Targets targets) { return targets == Targets::classes ? "data with classes" : has(targets); }

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
  static Catalog<LossRow>& all = *[] {
    auto* const made = new Catalog<LossRow>("loss", {});
    add_number_rows(*made);
    add_class_rows(*made);
    add_label_rows(*made);
    return made;
  }();
  return all;
}

ComparedTensors by_position(const Tensor& output, const Tensor& target) {
  if (target.dtype() != DType::i64 || target.dim() < 2 || output.dim() != target.dim() + 1) return {output, target};
  return {output.reshape({-1, output.size(-1)}), target.reshape({-1})};
}

ComparedTensors as_measured(const Tensor& output, const Tensor& target, const Json& loss, const DataForm& form) {
  if (form.label_sequences) return {output, target};
  if (form.classes > 0) return by_position(output, target);
  return {answers_of(output, loss, form), form.scale.in_units(target)};
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
    return issues.error("loss", joined(row.component.type, " needs ", needs(row.targets), ", but data.train has ", has(given),
                                       "; use ", losses_for(given)));
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
