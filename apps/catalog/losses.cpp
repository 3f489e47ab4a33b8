#include "apps/catalog/losses.h"

#include "apps/catalog/infer.h"
#include "apps/schema/suggest.h"
#include "framework/autograd/grad_mode.h"

namespace halfstep::app {
namespace {

// The training step weighs batches by their samples, which takes a mean.
Field reduction() { return not_yet("reduction", "mean", "another reduction"); }

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
    made->add({{"MSELoss", "mean of (output - target)^2", {reduction()}},
               [](const Json&) { return std::make_unique<MSELoss>(); },
               Targets::numbers});
    made->add(
        {{"CrossEntropyLoss",
          "negative log-likelihood of the class under softmax(output)",
          {reduction(), number("label_smoothing", 0.0, "share spread over all classes").at_least(0).at_most(1),
           integer("ignore_index", -100, "class that is not counted"), not_yet("weight", nullptr, "CrossEntropyLoss weight")}},
         [](const Json& self) {
           CrossEntropyOptions options;
           options.label_smoothing = self["label_smoothing"];
           options.ignore_index = self["ignore_index"];
           return std::make_unique<CrossEntropyLoss>(options);
         },
         Targets::classes});
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
