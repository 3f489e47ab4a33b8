// SPDX-License-Identifier: Apache-2.0
// log_probs x: [T, N, C]; labels l_1 ... l_S. The states s = 0 ... 2 S are the labels with a blank before, between and behind them.
// alpha_t(s) is the logarithm of the probability of all ways to be in state s after t frames, with (+) for logaddexp:
//
//   alpha_0(0) = 0, else -inf
//   alpha_t(s) = (alpha_t-1(s) (+) alpha_t-1(s - 1) (+) alpha_t-1(s - 2) if skip(s)) + x[t, label(s)]
//   loss = -(alpha_T(2 S) (+) alpha_T(2 S - 1))
//
// skip(s): s is a label that differs from the one before it. The loss is made of ops, which have its gradient.
#include "framework/ops/loss/ctc_loss.h"

#include <algorithm>

#include "framework/ops/core/composite.h"
#include "framework/ops/core/registry.h"

namespace halfstep {
namespace {

constexpr OpInfo kCtc{.name = "ctc_loss", .policy = CastPolicy::f32, .doc = "-ln of the probability of all alignments of a target"};
constexpr double kNever = -1e30;  // logarithm of an impossible event: finite, so that differences are not NaN

// Tables of the targets with blanks around every label, for all examples: [N, 2 S + 1].
struct Alignment {
  int64_t states = 1;                // 2 S + 1 of the longest target
  std::vector<int64_t> label, last;  // label: [N, states]; last: [N], index of the final state
  std::vector<bool> skip;            // [N, states], skip(s)

  Alignment(const std::vector<int64_t>& targets, const std::vector<int64_t>& starts, const std::vector<int64_t>& lengths,
            int64_t blank) {
    for (int64_t n : lengths) states = std::max(states, 2 * n + 1);
    label.assign(lengths.size() * size_t(states), blank);
    skip.assign(label.size(), false);
    for (size_t i = 0; i < lengths.size(); ++i) {
      last.push_back(2 * lengths[i]);
      for (int64_t k = 0; k < lengths[i]; ++k) {
        const size_t at = i * size_t(states) + size_t(2 * k + 1);
        label[at] = targets[size_t(starts[i] + k)];
        skip[at] = k > 0 && label[at] != label[at - 2];
      }
    }
  }
};

// Checks a tensor of lengths and returns its values.
std::vector<int64_t> lengths_of(const Tensor& t, const char* name, int64_t batch, int64_t most) {
  check<DTypeError>(is_integral(t.dtype()), "ctc_loss", name, " must be integers, got ", t.dtype());
  check<ShapeError>(t.dim() <= 1 && t.numel() == batch, "ctc_loss", name, " must be [", batch, "], got ", t.shape());
  const auto lengths = t.to_vector<int64_t>();
  for (int64_t n : lengths) check<ValueError>(n >= 0 && n <= most, "ctc_loss", name, " must be between 0 and ", most, ", got ", n);
  return lengths;
}

// Throws unless every label of the targets is a class other than the blank.
void check_labels(const std::vector<int64_t>& targets, const std::vector<int64_t>& starts, const std::vector<int64_t>& lengths,
                  int64_t classes, int64_t blank) {
  for (size_t i = 0; i < lengths.size(); ++i) {
    for (int64_t k = 0; k < lengths[i]; ++k) {
      const int64_t label = targets[size_t(starts[i] + k)];
      check<IndexError>(label >= 0 && label < classes, "ctc_loss", "target ", label, " at position ", k, " of sample ", i,
                        " is outside [0, ", classes, ")");
      check<ValueError>(label != blank, "ctc_loss", "a target must not be the blank, which means no label, got ", label,
                        " at position ", k, " of sample ", i,
                        Help{"number the labels so that none is the blank, or choose another class as the blank"});
    }
  }
}

// Computes alpha for all examples. Returns the logarithms of the probabilities of the targets: [N]. x: [T, N, C]; labels:
// [1, N, states]; skip: [N, states]; frames and last: [N, 1].
Tensor log_likelihood(const Tensor& x, const Tensor& labels, const Tensor& skip, const Tensor& frames, const Tensor& last) {
  const int64_t steps = x.size(0), batch = x.size(1), states = labels.size(2);
  const TensorOptions like{.dtype = x.dtype(), .device = x.device()};
  const Tensor chosen = x.gather(2, labels.expand({steps, batch, states}));
  const Tensors emitted = where(lt(chosen, kNever), kNever, chosen).unbind(0);  // ln 0
  const Tensor never = full({batch, 1}, kNever, like), order = arange(double(states), {.dtype = DType::i64, .device = x.device()});
  // Before the first frame, the only possible state is the one before all labels.
  Tensor alpha = where(eq(order, 0.0), 0.0, full({batch, states}, kNever, like));
  const auto shifted = [&](const Tensor& a) { return states == 1 ? never : cat({never, a.narrow(1, 0, states - 1)}, 1); };
  for (int64_t t = 0; t < steps; ++t) {
    const Tensor previous = shifted(alpha), skipping = where(skip, shifted(previous), kNever);
    const Tensor next = logaddexp(logaddexp(alpha, previous), skipping) + emitted[size_t(t)];
    alpha = where(gt(frames, double(t)), next, alpha);
  }
  // The target may end in the last label or in the blank behind it.
  const Tensor label = where(gt(last, 0.0), alpha.gather(1, clamp_min(last - 1, 0)), kNever);
  return logaddexp(alpha.gather(1, last), label).squeeze(1);
}

}  // namespace

HALFSTEP_OPTIONS(CtcOptions, option("blank", &O::blank, "class that means no label").at_least(0), reduction_of<O>(),
                 option("zero_infinity", &O::zero_infinity, "the loss of labels that do not fit into the steps is 0"))

Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths, const Tensor& target_lengths,
                const CtcOptions& options) {
  constexpr std::string_view op = kCtc.name;
  check_floating(op, {log_probs});
  check<ShapeError>(log_probs.dim() == 3 || log_probs.dim() == 2, op, "log_probs must be [T, N, C] or [T, C], got ",
                    log_probs.shape());
  const bool batched = log_probs.dim() == 3;
  const int64_t steps = log_probs.size(0), batch = batched ? log_probs.size(1) : 1, classes = log_probs.size(-1);
  check_options(op, options);
  check<ValueError>(options.blank < classes, op, "blank must be below the number of classes, ", classes, ", got ", options.blank);
  check<DTypeError>(is_integral(targets.dtype()), op, "targets must be integers, got ", targets.dtype());
  check<ShapeError>(targets.dim() == 1 || (targets.dim() == 2 && targets.size(0) == batch), op, "targets must be [", batch,
                    ", S] or the targets joined, got ", targets.shape());
  check_has_values(op, {targets, input_lengths, target_lengths});
  const bool joined = targets.dim() == 1;
  const auto in_lengths = lengths_of(input_lengths, "input_lengths", batch, steps);
  const auto out_lengths = lengths_of(target_lengths, "target_lengths", batch, joined ? targets.numel() : targets.size(1));
  std::vector<int64_t> starts;
  int64_t total = 0;
  for (int64_t i = 0; i < batch; ++i) {
    starts.push_back(joined ? total : i * targets.size(1));
    total += out_lengths[size_t(i)];
  }
  check<ShapeError>(!joined || total == targets.numel(), op, "joined targets must have the sum of target_lengths, ", total,
                    ", got ", targets.numel());
  const auto labels_given = targets.to_vector<int64_t>();
  check_labels(labels_given, starts, out_lengths, classes, options.blank);
  const Alignment table(labels_given, starts, out_lengths, options.blank);

  const Device device = log_probs.device();
  const int64_t states = table.states;
  const Tensor labels = from_vector(table.label, {1, batch, states}, device),
               skip = from_vector(table.skip, {batch, states}, device);
  const Tensor frames = from_vector(in_lengths, {batch, 1}, device), last = from_vector(table.last, {batch, 1}, device);
  return composite(kCtc, {log_probs}, [&](const Tensors& in) {
    const Tensor wide = in[0].to(widened(in[0].dtype())), x = batched ? wide : wide.unsqueeze(1);  // 16 bits lack kNever
    const Tensor likelihood = log_likelihood(x, labels, skip, frames, last);
    const Tensor impossible = lt(likelihood, kNever / 10);  // a path has a step of kNever, and other terms are far smaller
    // Gives a target that does not fit an infinite loss with NaN gradients: -ln e^likelihood, where e^likelihood is 0.
    const Tensor never_fits = options.zero_infinity ? Tensor() : log(where(impossible, exp(likelihood), 1.0));
    Tensor losses = neg(options.zero_infinity ? where(impossible, 0.0, likelihood) : where(impossible, never_fits, likelihood));
    if (options.reduction == Reduction::mean) {
      std::vector<double> divisors;
      for (int64_t n : out_lengths) divisors.push_back(double(std::max<int64_t>(1, n)));
      losses = losses / tensor(divisors, {batch}, {.dtype = x.dtype(), .device = device});
    }
    return reduce_loss((batched ? losses : losses.squeeze(0)).to(in[0].dtype()), options.reduction);
  });
}

void add_ctc_loss(OpList& list) {
  list.add(kCtc, [](Args& a) { return ctc_loss(a.tensor(0), a.tensor(1), a.tensor(2), a.tensor(3), a.options<CtcOptions>()); });
}

}  // namespace halfstep
