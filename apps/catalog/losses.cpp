#include "apps/catalog/losses.h"

#include "apps/catalog/infer.h"
#include "apps/catalog/layer_rows.h"
#include "apps/schema/suggest.h"
#include "framework/autograd/grad_mode.h"

namespace halfstep::app {
namespace {

// The training step weighs batches by their samples, which takes a mean. Programs and tests that make a loss by itself may put
// "sum" or "none" into what was checked.
Field reduction() { return not_yet("reduction", "mean", "another reduction"); }
Reduction reduction_of(const Json& self) {
  const Json& r = self["reduction"];
  return r == "sum" ? Reduction::sum : r == "none" ? Reduction::none : Reduction::mean;
}
Field class_weights(const char* key = "weight") { return weights(key, "one for each class; left out: all the same"); }

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
  const Field ignore_index = integer("ignore_index", -100, "class that is not counted");
  all.add({{"CrossEntropyLoss",
            "negative log-likelihood of the class under softmax(output)",
            {class_weights(), ignore_index, reduction(),
             number("label_smoothing", 0.0, "share spread over all classes").at_least(0).at_most(1)}},
           [](const Json& self) {
             return std::make_unique<CrossEntropyLoss>(CrossEntropyOptions{weights_of(self["weight"]), self["ignore_index"],
                                                                           reduction_of(self), self["label_smoothing"]});
           },
           Targets::classes});
  all.add({{"NLLLoss", "-output[class], output in log space, as of LogSoftmax", {class_weights(), ignore_index, reduction()}},
           [](const Json& self) {
             return std::make_unique<NLLLoss>(NllLossOptions{weights_of(self["weight"]), self["ignore_index"], reduction_of(self)});
           },
           Targets::classes});
  all.add(
      {{"MultiMarginLoss",
        "max(0, margin - output[class] + output[j])^p over the other classes j",
        {integer("p", 1, "exponent").at_least(1).at_most(2), number("margin", 1.0, "how far apart"), class_weights(), reduction()}},
       [](const Json& self) {
         return std::make_unique<MultiMarginLoss>(
             MultiMarginOptions{self["p"], self["margin"], weights_of(self["weight"]), reduction_of(self)});
       },
       Targets::classes});
}

std::string losses_for(Targets targets) {
  std::vector<std::string> names;
  for (const LossRow& row : loss_catalog().rows()) {
    if (row.targets == targets) names.push_back(row.component.type);
  }
  return one_of(names);
}

// What a loss of classes wants of the output: a score for each.
bool scores_fit(const Shape& output, const DataFacts& facts, Issues& issues) {
  if (output.size() != 1 || output[0] < facts.classes) {
    issues.error("model", "the output must have shape [" + std::to_string(facts.classes) + "], one a class, got " + joined(output) +
                              (output.size() > 1 ? "; put \"Flatten\" before the last Linear" : ""));
    return false;
  }
  if (output[0] > facts.classes) {
    issues.warn("model",
                "the output has " + std::to_string(output[0]) + " values for " + std::to_string(facts.classes) + " classes");
  }
  return true;
}

}  // namespace

Catalog<LossRow>& loss_catalog() {
  static Catalog<LossRow>& all = *[] {
    auto* const made = new Catalog<LossRow>("loss", {});
    add_number_rows(*made);
    add_class_rows(*made);
    return made;
  }();
  return all;
}

std::unique_ptr<Loss> build_loss(const Json& loss) { return loss_catalog().row(loss).make(loss); }

void check_loss(const Json& loss, const InferredModel& model, const DataFacts& facts, Issues& issues) {
  const LossRow& row = loss_catalog().row(loss);
  const Targets given = facts.targets();
  const Shape& output = *model.output;
  if (row.targets != given) {
    const bool classes = given == Targets::classes;
    return issues.error("loss", row.component.type +
                                    (classes ? " needs numbers as targets, but data.train has classes; use "
                                             : " needs data with classes, but data.train has numbers as targets; use ") +
                                    losses_for(given));
  }
  if (given == Targets::classes && !scores_fit(output, facts, issues)) return;
  if (given == Targets::numbers && !(output == facts.target))
    return issues.error("model", "the output must have the target's shape " + joined(facts.target) + ", got " + joined(output));
  try {
    const DefaultDevice on(Device::meta);
    const NoGrad off;
    const Tensor value = (*row.make(loss))(empty(with_batch(1, output), {.dtype = model.dtype}),
                                           empty(with_batch(1, facts.target), {.dtype = facts.target_dtype()}));
    if (value.numel() != 1) issues.error("loss", "must make one number of a batch, but made " + joined(value.shape()));
  } catch (const Error& e) { issues.error("loss", one_line(e)); }
}

}  // namespace halfstep::app
