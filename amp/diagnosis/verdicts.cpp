// SPDX-License-Identifier: Apache-2.0
// Derives the cause of a step that is not finite even in float32 from the kernel that wrote the first bad value: its name, its
// pass, and the values that it read.
#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "amp/diagnosis/diagnose.h"
#include "framework/base/check.h"

namespace halfstep {
namespace {

constexpr double kSafeToSquare = 1e18;   // magnitudes below it have squares in the range of float32
constexpr double kSafeToSum = 1e30;      // many magnitudes below it have a sum in that range
constexpr double kExpNearOverflow = 80;  // float32 holds exp up to 88.7

bool is_any_of(std::string_view name, std::initializer_list<std::string_view> list) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

// The values that a kernel read; i is the position of an operand.
struct KernelReads {
  const KernelEvent& e;
  bool has_counts(size_t i) const { return i < e.reads.size() && e.reads[i].counts.has_value(); }
  bool has_zero(size_t i) const { return has_counts(i) && e.reads[i].counts->zero > 0; }
  bool has_negative(size_t i) const { return has_counts(i) && e.reads[i].counts->negative > 0; }
  bool any_zero() const {
    return std::any_of(e.reads.begin(), e.reads.end(), [](const KernelRead& r) { return r.counts && r.counts->zero > 0; });
  }
  bool any_negative() const {
    return std::any_of(e.reads.begin(), e.reads.end(), [](const KernelRead& r) { return r.counts && r.counts->negative > 0; });
  }
  double largest() const {
    double out = 0;
    for (const KernelRead& r : e.reads)
      if (r.counts) out = std::max(out, r.counts->largest);
    return out;
  }
};

// Returns whether the kernel normalises rows, of which a mask may hide all scores.
bool reads_rows_of_scores(const KernelEvent& e) {
  return is_any_of(e.kernel, {"softmax", "log_softmax"}) || e.op.find("attention") != std::string::npos || e.op == "logsumexp";
}

struct CauseRow {
  std::string cause, sentence, remedy;
};

// Explains a NaN made of infinities that were set on purpose.
CauseRow cause_of_planted(const KernelEvent& e, const std::string& place) {
  if (reads_rows_of_scores(e))
    return {"masked_row", "a mask hides a whole row of the scores in " + place,
            "let every query see a key, or use scaled_dot_product_attention, which gives zeros there"};
  if (is_any_of(e.kernel, {"mul", "mul_backward"}))
    return {"zero_times_inf", "an infinity is multiplied by 0 in " + place, "select by where(mask, x, 0) in place of a product"};
  return {};
}

// Explains a value that a kernel of the forward made from finite values. Returns an empty row for other kernels.
CauseRow cause_of_forward(const KernelEvent& e, const std::string& place) {
  const KernelReads r{e};
  const std::string& k = e.kernel;
  if (is_any_of(k, {"log", "log2", "log10", "log1p", "xlogy"}))
    return {"log_domain", "a logarithm of zero or of a negative value in " + place,
            "clamp its argument from below, or take CrossEntropyLoss or BCEWithLogitsLoss on logits"};
  if (k == "sqrt" && r.any_negative())
    return {"sqrt_domain", "a square root of a negative value in " + place, "clamp its argument at 0"};
  if (is_any_of(k, {"normalize", "batch_norm"}) && r.largest() < kSafeToSquare)
    return {"division_by_zero", "values without variance are normalised with an eps of 0 in " + place, "use an eps above 0"};
  if ((k == "div" && r.has_zero(1)) || (is_any_of(k, {"reciprocal", "rsqrt"}) && (r.any_zero() || r.any_negative())))
    return {"division_by_zero", "a division by zero in " + place, "add an eps to the divisor; normalize and layer_norm have one"};
  if (k == "pow" && (r.has_negative(0) || r.has_zero(0)))
    return {"pow_domain", "a power of zero or of a negative value in " + place, "keep the base above 0"};
  if (is_any_of(k, {"exp", "exp2", "expm1", "sinh", "cosh", "poisson_nll_loss", "poisson_rate"}) && r.largest() > kExpNearOverflow)
    return {"exp_overflow", joined("an exponential of up to ", r.largest(), " in ", place),
            k.starts_with("poisson") ? "smaller predictions: scale the inputs, or lower the learning rate"
                                     : "use log_softmax or logsumexp, or subtract the maximum first"};
  if (is_any_of(k, {"logit", "kl_div", "lgamma", "digamma", "polygamma"}) || (k == "gaussian_nll_loss" && r.any_negative()) ||
      is_any_of(k, {"asin", "acos", "atanh", "acosh", "erfinv"}))
    return {"domain", joined(k, " of a value outside its domain in ", place), "clamp its argument inside the domain"};
  if (is_any_of(e.op, {"cross_entropy", "nll_loss"}) && r.largest() < kSafeToSum)
    return {"targets_ignored", "the loss ignores every target of the batch",
            "each batch needs a target that is not ignore_index and whose class has a weight above 0"};
  // The first operand has at most one element, or all operands are numbers or empty.
  const bool few = (!e.reads.empty() && numel(e.reads[0].shape) <= 1) ||
                   std::none_of(e.reads.begin(), e.reads.end(), [](auto& x) { return !x.number && numel(x.shape) > 0; });
  if (k == "variance" || (is_any_of(k, {"mean", "sum", "div"}) && few))
    return {"too_few_values", "a variance or mean of too few values in " + place,
            "use a larger batch, drop_last for the last one, or correction 0"};
  return {};
}

// Explains a gradient that is not finite by the slope of its op. Returns an empty row for other kernels.
CauseRow cause_of_backward(const KernelEvent& e, const std::string& place) {
  const KernelReads r{e};
  const std::string& k = e.kernel;
  if (k == "sqrt_backward" && r.any_zero())
    return {"sqrt_domain", "the slope of a square root at 0 is infinite in " + place,
            "take sqrt(x + eps); norm knows its slope at 0"};
  if (is_any_of(k, {"log_backward", "log2_backward", "log10_backward", "log1p_backward", "xlogy_backward"}) && r.any_zero())
    return {"log_domain", "the slope of a logarithm at 0 is infinite in " + place, "clamp its argument from below"};
  if ((is_any_of(k, {"div_backward", "reciprocal_backward", "rsqrt_backward"}) && r.any_zero()) || (k == "div" && r.has_zero(1)))
    return {"division_by_zero", "the slope of a division by zero is infinite in " + place, "add an eps to the divisor"};
  if (k == "pow_backward" && r.any_zero())
    return {"pow_domain", "the slope of a power at 0 is infinite in " + place, "keep the base above 0"};
  if (is_any_of(k, {"asin_backward", "acos_backward", "atanh_backward", "acosh_backward", "erfinv_backward"}))
    return {"domain", joined("the slope of ", e.op, " at the edge of its domain is infinite in ", place),
            "clamp its argument inside the domain"};
  return {};
}

}  // namespace

std::string place_of(const StepReplayResult& replay) { return replay.layer.empty() ? "the loss" : replay.layer; }

Diagnosis verdict_of_origin(const StepReplayResult& replay, const StepHistory& history) {
  Diagnosis d;
  const std::string& root = replay.origin.root;
  if (!root.empty()) {
    const std::string name = root.substr(root.find(':') + 1);
    d.where = name;
    d.evidence = joined(root, " was not finite before the step");
    if (root == "input" || root == "target") {
      d.cause = root + "_nonfinite";
      d.sentence = joined("the ", root, "s hold NaN or infinities");
      d.remedies = {{"correct the data"}};
    } else {
      d.cause = root.starts_with("buffer:") ? "buffers_broken" : root.starts_with("kept:") ? "state_broken" : "weights_broken";
      d.sentence = joined(name, " was not finite before the step");
      d.remedies = {{"go back to an earlier checkpoint"}};
    }
    return d;
  }
  if (replay.event) {
    const KernelEvent& e = *replay.event;
    d.where = place_of(replay);
    d.evidence = describe(e);
    CauseRow row;
    if (replay.origin.planted) row = cause_of_planted(e, layer_phrase(d.where));
    if (row.cause.empty() && replay.nan_born && e.kernel == "fill") row = cause_of_planted(*replay.nan_born, layer_phrase(d.where));
    if (row.cause.empty() && e.pass == StepPass::forward) row = cause_of_forward(e, layer_phrase(d.where));
    if (row.cause.empty() && e.pass == StepPass::backward) row = cause_of_backward(e, layer_phrase(d.where));
    if (!row.cause.empty()) {
      d.cause = row.cause;
      d.sentence = row.sentence;
      d.remedies = {{row.remedy}};
      return d;
    }
  }
  d.cause = history.update > 1 ? "optimizer_blowup" : "divergence";
  d.sentence = history.update > 1
                   ? joined("a step changed the weights by ", history.update, " times their norm")
                   : joined("values left the range of float32", d.where.empty() ? "" : " in " + layer_phrase(d.where));
  d.remedies = {{"a lower optimizer.lr"}, {"scheduler.warmup_steps"}, {"train.clip_grad_norm"}};
  return d;
}

}  // namespace halfstep
