// SPDX-License-Identifier: Apache-2.0
// Rows of losses.
#include "apps/catalog/losses.h"
#include "apps/catalog/rows/layer_rows.h"
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
LossRow option_row(std::string doc, Targets targets, TargetNumbers numbers = TargetNumbers::any) {
  using O = typename L::Options;
  std::vector<Field> fields;
  for (const Field& f : fields_of(O{})) fields.push_back(targets == Targets::classes ? or_balanced(of_config(f)) : of_config(f));
  return {{L::kName, std::move(doc), std::move(fields)},
          [](const Json& self) -> std::unique_ptr<Loss> {
            O options;
            read_options(self, options);
            return std::make_unique<L>(options);
          },
          targets, numbers};
}

void add_number_rows(Catalog<LossRow>& catalog) {
  const Targets numbers = Targets::numbers;
  catalog.add(option_row<MSELoss>("mean of (output - target)^2", numbers));
  catalog.add(option_row<L1Loss>("mean of |output - target|", numbers));
  catalog.add(option_row<SmoothL1Loss>("(output - target)^2 / (2 beta), |output - target| - beta/2 from beta on", numbers));
  catalog.add(option_row<HuberLoss>("(output - target)^2 / 2, delta (|output - target| - delta/2) from delta on", numbers));
  catalog.add(option_row<PoissonNLLLoss>("exp(output) - target output", numbers, TargetNumbers::not_negative));
  catalog.add(option_row<KLDivLoss>("target (ln(target) - output), output in log space", numbers));
  catalog.add(option_row<BCELoss>(
      "-(target ln(output) + (1 - target) ln(1 - output)), output a probability; not with mixed precision", numbers,
      TargetNumbers::probabilities));
  catalog.add(option_row<BCEWithLogitsLoss>("BCELoss of sigmoid(output), without its rounding", numbers,
                                            TargetNumbers::probabilities));
  catalog.add(option_row<SoftMarginLoss>("ln(1 + exp(-target output)), target 1 or -1", numbers, TargetNumbers::signs));
  catalog.add(option_row<HingeEmbeddingLoss>("output for target 1, max(0, margin - output) for target -1", numbers,
                                             TargetNumbers::signs));
  catalog.add(option_row<MultiLabelMarginLoss>(
      "max(0, 1 - output[t] + output[j]) over classes t before the first -1 of the target and all others j", numbers));
  catalog.add(option_row<MultiLabelSoftMarginLoss>("BCEWithLogitsLoss, averaged over the classes", numbers,
                                                  TargetNumbers::probabilities));
}

void add_class_rows(Catalog<LossRow>& catalog) {
  const Targets classes = Targets::classes;
  catalog.add(option_row<CrossEntropyLoss>("negative log-likelihood of the class under softmax(output)", classes));
  catalog.add(option_row<NLLLoss>("-output[class], output in log space, as of LogSoftmax", classes));
  catalog.add(option_row<MultiMarginLoss>("max(0, margin - output[class] + output[j])^p over the other classes j", classes));
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

}  // namespace

void add_loss_rows(Catalog<LossRow>& catalog) {
  add_number_rows(catalog);
  add_class_rows(catalog);
  catalog.add(option_row<LabelsCtc>(
      "negative log-likelihood of the labels under all ways to spread them over the steps; output in log space, as of LogSoftmax",
      Targets::labels));
}

}  // namespace halfstep::app
