// SPDX-License-Identifier: Apache-2.0
#include "apps/catalog/losses.h"

#include "amp/autocast/autocast.h"
#include "apps/catalog/infer.h"
#include "apps/catalog/layer_rows.h"
#include "apps/schema/suggest.h"
#include "framework/autograd/grad_mode.h"
#include "framework/ops/ops.h"

namespace halfstep::app {
namespace {

// The training step weighs batches by their denominators, which takes a mean. Programs and tests that make a loss by itself may put
// "sum" or "none" into the checked config.
Field reduction() { return choice("reduction", "mean", {"mean"}, "over the batch; training takes no other"); }
Reduction reduction_of(const Json& self) {
  const Json& r = self["reduction"];
  return r == "sum" ? Reduction::sum : r == "none" ? Reduction::none : Reduction::mean;
}
Field class_weights() { return weights("weight", "one for each class; left out: all the same"); }
// The rules of a config replace the word by numbers.
Field class_weights_of_data() {
  return weights("weight",
                 "one for each class; left out: all the same; \"balanced\": computed from the training data so that all "
                 "classes count the same")
      .or_word("balanced");
}

// A loss whose constructor takes the reduction, and then the values of its fields.
template <class L, class... Ts>
LossRow reduced_row(const char* type, const char* doc, Targets targets, Arg<Ts>... args) {
  return {{type, doc, {reduction(), args.field...}},
          [args...](const Json& self) -> std::unique_ptr<Loss> {
            return std::make_unique<L>(reduction_of(self), value_of(self, args)...);
          },
          targets};
}

void add_number_rows(Catalog<LossRow>& all) {
  const Targets numbers = Targets::numbers;
  all.add(reduced_row<MSELoss>("MSELoss", "mean of (output - target)^2", numbers));
  all.add(reduced_row<L1Loss>("L1Loss", "mean of |output - target|", numbers));
  all.add(reduced_row<SmoothL1Loss>("SmoothL1Loss", "(output - target)^2 / (2 beta), |output - target| - beta/2 from beta on",
                                    numbers, arg<double>(number("beta", 1.0, "where it becomes linear").at_least(0))));
  all.add(reduced_row<HuberLoss>("HuberLoss", "(output - target)^2 / 2, delta (|output - target| - delta/2) from delta on", numbers,
                                 arg<double>(number("delta", 1.0, "where it becomes linear").above(0))));
  all.add(
      {{"PoissonNLLLoss",
        "exp(output) - target output",
        {boolean("log_input", true, "false: output - target ln(output + eps)"), boolean("full", false, "add ln(target!), nearly"),
         number("eps", 1e-8, "keeps logarithms finite").above(0), reduction()}},
       [](const Json& self) {
         return std::make_unique<PoissonNLLLoss>(
             PoissonNllOptions{self["log_input"], self["full"], self["eps"], reduction_of(self)});
       },
       numbers});
  all.add({{"KLDivLoss",
            "target (ln(target) - output), output in log space",
            {choice("reduction", "mean", {"mean", "batchmean"}, "\"batchmean\": the sum over the batch's size"),
             boolean("log_target", false, "the target is in log space, too")}},
           [](const Json& self) {
             const Json& r = self["reduction"];
             const KlReduction reduction = r == "batchmean" ? KlReduction::batchmean : KlReduction(reduction_of(self));
             return std::make_unique<KLDivLoss>(reduction, self["log_target"].get<bool>());
           },
           numbers});
  all.add({{"BCELoss",
            "-(target ln(output) + (1 - target) ln(1 - output)), output a probability; not with mixed precision",
            {weights("weight", "one for each output; left out: all the same"), reduction()}},
           [](const Json& self) {
             return std::make_unique<BCELoss>(BCEOptions{weights_of(self["weight"]), reduction_of(self)});
           },
           numbers});
  all.add({{"BCEWithLogitsLoss",
            "BCELoss of sigmoid(output), without its rounding",
            {weights("weight", "one for each output; left out: all the same"), reduction(),
             weights("pos_weight", "of the part of positive targets, one for each output")}},
           [](const Json& self) {
             return std::make_unique<BCEWithLogitsLoss>(
                 BceWithLogitsOptions{weights_of(self["weight"]), weights_of(self["pos_weight"]), reduction_of(self)});
           },
           numbers});
  all.add(reduced_row<SoftMarginLoss>("SoftMarginLoss", "ln(1 + exp(-target output)), target 1 or -1", numbers));
  all.add({{"HingeEmbeddingLoss",
            "output for target 1, max(0, margin - output) for target -1",
            {number("margin", 1.0, "how far apart"), reduction()}},
           [](const Json& self) { return std::make_unique<HingeEmbeddingLoss>(self["margin"].get<double>(), reduction_of(self)); },
           numbers});
  all.add(reduced_row<MultiLabelMarginLoss>(
      "MultiLabelMarginLoss", "max(0, 1 - output[t] + output[j]) over classes t before the first -1 of the target and all others j",
      numbers));
  all.add(
      {{"MultiLabelSoftMarginLoss", "BCEWithLogitsLoss, averaged over the classes", {class_weights(), reduction()}},
       [](const Json& self) { return std::make_unique<MultiLabelSoftMarginLoss>(weights_of(self["weight"]), reduction_of(self)); },
       numbers});
}

void add_class_rows(Catalog<LossRow>& all) {
  const Field ignore_index = integer("ignore_index", -100, "class that the loss ignores");
  all.add({{"CrossEntropyLoss",
            "negative log-likelihood of the class under softmax(output)",
            {class_weights_of_data(), ignore_index, reduction(),
             number("label_smoothing", 0.0, "share spread over all classes").at_least(0).at_most(1)}},
           [](const Json& self) {
             return std::make_unique<CrossEntropyLoss>(CrossEntropyOptions{weights_of(self["weight"]), self["ignore_index"],
                                                                           reduction_of(self), self["label_smoothing"]});
           },
           Targets::classes});
  all.add(
      {{"NLLLoss", "-output[class], output in log space, as of LogSoftmax", {class_weights_of_data(), ignore_index, reduction()}},
       [](const Json& self) {
         return std::make_unique<NLLLoss>(NllLossOptions{weights_of(self["weight"]), self["ignore_index"], reduction_of(self)});
       },
       Targets::classes});
  all.add(
      {{"MultiMarginLoss",
        "max(0, margin - output[class] + output[j])^p over the other classes j",
        {integer("p", 1, "exponent").at_least(1).at_most(2), number("margin", 1.0, "how far apart"), class_weights_of_data(),
         reduction()}},
       [](const Json& self) {
         return std::make_unique<MultiMarginLoss>(
             MultiMarginOptions{self["p"], self["margin"], weights_of(self["weight"]), reduction_of(self)});
       },
       Targets::classes});
}

// CTCLoss of all steps of each sample's output, and of a target up to its first -1: the mean over rows of each row's mean.
class LabelsCtc : public Loss {
 public:
  explicit LabelsCtc(const CtcOptions& options) : loss_{options} {}
  Tensor operator()(const Tensor& output, const Tensor& target) const override {
    const int64_t batch = output.size(0), steps = output.size(1), blank = loss_.options.blank;
    // A dry run has no labels: as many as there may be, each with a step for a blank around it.
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
  all.add(
      {{"CTCLoss",
        "negative log-likelihood of the labels under all ways to spread them over the steps; output in log space, as of LogSoftmax",
        {integer("blank", 0, "class that means no label").at_least(0).at_most(kMaxSample), reduction(),
         boolean("zero_infinity", false, "the loss of labels that do not fit into the steps is 0")}},
       [](const Json& self) {
         return std::make_unique<LabelsCtc>(CtcOptions{self["blank"], reduction_of(self), self["zero_infinity"]});
       },
       Targets::labels});
}

// A loss of classes, given a class for each position as one for each sample.
class ByPosition : public Loss {
 public:
  explicit ByPosition(std::unique_ptr<Loss> loss) : loss_(std::move(loss)) {}
  Tensor operator()(const Tensor& output, const Tensor& target) const override {
    const Compared rows = by_position(output, target);
    return (*loss_)(rows.output, rows.target);
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

// What a loss of classes wants of the output: a score for each, at every position that has one.
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

Compared by_position(const Tensor& output, const Tensor& target) {
  if (target.dtype() != DType::i64 || target.dim() < 2 || output.dim() != target.dim() + 1) return {output, target};
  return {output.reshape({-1, output.size(-1)}), target.reshape({-1})};
}

Compared as_measured(const Tensor& output, const Tensor& target, const Json& loss, const DataForm& form) {
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
