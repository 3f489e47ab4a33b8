// SPDX-License-Identifier: Apache-2.0
// Cross entropy of x [N, C] with targets t, class weights w, an ignored index and label smoothing s (PyTorch's definition):
//   loss[i] = (1 - s) w[t] nll(t) + s / C sum_c w[c] nll(c),  nll(c) = lse[i] - x[i][c],  lse[i] = log(sum_c exp(x[i][c]))
//   dx[i][c] = g[i] (((1 - s) w[t] + s / C sum_k w[k]) exp(x[i][c] - lse[i]) - s / C w[c] - (c == t ? (1 - s) w[t] : 0))
// An ignored row has no loss and no gradient. The mean divides both by the sum of w[t] over the other rows; over no rows it is
// NaN.
#include <algorithm>
#include <vector>

#include "framework/backend/cpu/kernels.h"
#include "framework/backend/cpu/reduce/rows.h"
#include "framework/math/scalar.h"

namespace halfstep::cpu {
namespace {

// Returns the class weights as C, all 1 if none are given.
template <class C>
std::vector<C> class_weights(const CrossEntropyArgs& args, int64_t classes) {
  std::vector<C> w(size_t(classes), C(1));
  if (args.weight) load<C>(args.weight.dtype, args.weight.data, args.weight.strides[0], w.data(), classes);
  return w;
}

int64_t target_at(const TensorView& target, int64_t i) { return target.as<const int64_t>()[i * target.strides[0]]; }

// Returns the sum of w[c] nll(c) over all classes.
template <class C>
double weighted_nll(const C* x, const C* w, double lse, int64_t n) {
  double sum = 0;
  for (int64_t c = 0; c < n; ++c) sum += double(w[c]) * (lse - double(x[c]));
  return sum;
}

// Computes out[c] = scale e^(x[c] - lse) - smooth w[c].
template <class C>
HS_CLONES void gradient_row(const C* x, const C* w, C lse, C scale, C smooth, C* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t c = 0; c < n; ++c) out[c] = scale * m::exp(C(x[c] - lse)) - smooth * w[c];
}

// The gradients of the rows' logits, for a gradient of the loss.
template <class C>
class RowGradients {
 public:
  RowGradients(const CrossEntropyArgs& args, const std::vector<C>& weight, const TensorView& grad, const TensorView& total,
               const TensorView& out)
      : args_(args), weight_(weight), grad_(grad), out_(out), classes_(args.logits.shape[1]), row_step_(out ? out.strides[0] : 0) {
    for (C w : weight) all_weights_ += double(w);
    if (args.reduction == Reduction::mean) divisor_ = load_one<double>(total.dtype, total.data);
  }
  // Writes row r, given the row and its log_sum_exp; `work` holds a row, and may not be x.
  void write(int64_t r, const C* x, C lse, C* work) const {
    const bool direct = out_.dtype == dtype_of<C>;
    C* const to = direct ? out_.as<C>() + r * row_step_ : work;
    const int64_t t = target_at(args_.target, r);
    if (t == args_.ignore_index) {
      std::fill_n(to, classes_, C(0));
    } else {
      const double share = args_.label_smoothing / double(classes_), hit = (1 - args_.label_smoothing) * double(weight_[size_t(t)]);
      const double g = load_one<double>(grad_.dtype, at(grad_, grad_.shape.empty() ? 0 : r * grad_.strides[0])) / divisor_;
      gradient_row(x, weight_.data(), lse, C(g * (hit + share * all_weights_)), C(g * share), to, classes_);
      to[t] -= C(g * hit);
    }
    if (!direct) store<C>(out_.dtype, to, at(out_, r * row_step_), 1, classes_);
  }

 private:
  const CrossEntropyArgs& args_;
  const std::vector<C>& weight_;
  const TensorView &grad_, &out_;
  int64_t classes_, row_step_;
  double all_weights_ = 0, divisor_ = 1;
};

template <class C>
void forward(const CrossEntropyArgs& args, const TensorView& loss, const TensorView& lse, const TensorView& total,
             const LossGradient& gradient) {
  const int64_t rows = args.logits.shape[0], classes = args.logits.shape[1], step = args.logits.strides[1];
  const std::vector<C> weight = class_weights<C>(args, classes);
  const double eps = args.label_smoothing;
  double weights = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t t = target_at(args.target, r);
    if (t != args.ignore_index) weights += double(weight[size_t(t)]);
  }
  store_one<double>(total.dtype, weights, total.data);
  const RowGradients<C> gradients(args, weight, gradient.grad, total, gradient.out);
  std::vector<double> losses(static_cast<size_t>(rows));
  parallel_for(rows, 1, rows * classes * (gradient.out ? 16 : 8), [&](int64_t begin, int64_t end) {
    std::vector<C> memory(size_t(2 * classes));
    C* const work = memory.data() + classes;
    for (int64_t r = begin; r < end; ++r) {
      const C* x = read_row<C>(args.logits, r * args.logits.strides[0], step, classes, memory.data());
      const C sum = log_sum_exp(x, work, classes);
      store_one<C>(lse.dtype, sum, at(lse, r * lse.strides[0]));
      if (const int64_t t = target_at(args.target, r); t != args.ignore_index) {
        losses[size_t(r)] = (1 - eps) * double(weight[size_t(t)]) * (double(sum) - double(x[t]));
        if (eps != 0) losses[size_t(r)] += eps / double(classes) * weighted_nll(x, weight.data(), double(sum), classes);
      }
      if (gradient.out) gradients.write(r, x, sum, work);
    }
  });
  double sum = 0;
  for (double value : losses) sum += value;
  switch (args.reduction) {
    case Reduction::none: return store<double>(loss.dtype, losses.data(), loss.data, rows ? loss.strides[0] : 1, rows);
    case Reduction::sum: return store_one<double>(loss.dtype, sum, loss.data);
    case Reduction::mean: return store_one<double>(loss.dtype, sum / weights, loss.data);
  }
}

template <class C>
void backward(const CrossEntropyArgs& args, const TensorView& grad, const TensorView& lse, const TensorView& total,
              const TensorView& out) {
  const int64_t rows = args.logits.shape[0], classes = args.logits.shape[1], step = args.logits.strides[1];
  if (rows == 0 || classes == 0) return;
  const std::vector<C> weight = class_weights<C>(args, classes);
  const RowGradients<C> gradients(args, weight, grad, total, out);
  parallel_for(rows, 1, rows * classes * 8, [&](int64_t begin, int64_t end) {
    std::vector<C> memory(size_t(2 * classes));
    for (int64_t r = begin; r < end; ++r) {
      const C* x = read_row<C>(args.logits, r * args.logits.strides[0], step, classes, memory.data() + classes);
      gradients.write(r, x, load_one<C>(lse.dtype, at(lse, r * lse.strides[0])), memory.data());
    }
  });
}

}  // namespace

void cross_entropy(const CrossEntropyArgs& args, const TensorView& loss, const TensorView& lse, const TensorView& total,
                   const LossGradient& gradient) {
  if (args.logits.dtype == DType::f64)
    forward<double>(args, loss, lse, total, gradient);
  else
    forward<float>(args, loss, lse, total, gradient);
}

void cross_entropy_backward(const CrossEntropyArgs& args, const TensorView& grad, const TensorView& lse, const TensorView& total,
                            const TensorView& out) {
  if (args.logits.dtype == DType::f64)
    backward<double>(args, grad, lse, total, out);
  else
    backward<float>(args, grad, lse, total, out);
}

int64_t check_targets(const TensorView& target, int64_t classes, int64_t ignore_index) {
  const Space s(target.shape, {&target.strides});
  Cursor cursor(s, 0, 0);
  for (int64_t i = 0; i < s.numel; ++i, cursor.advance(1)) {
    const int64_t t = target.as<const int64_t>()[cursor.offset()];
    if ((t < 0 || t >= classes) && t != ignore_index) return i;
  }
  return -1;
}

}  // namespace halfstep::cpu
