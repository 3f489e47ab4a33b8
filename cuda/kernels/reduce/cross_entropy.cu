// SPDX-License-Identifier: Apache-2.0
// Cross entropy of x [N, C] with targets t, class weights w, an ignored index and label smoothing s, and its gradient:
//   loss[i] = (1 - s) w[t] nll(t) + s / C sum_c w[c] nll(c),  nll(c) = lse[i] - x[i][c],  lse[i] = log(sum_c exp(x[i][c]))
//   dx[i][c] = g[i] (((1 - s) w[t] + s / C sum_k w[k]) exp(x[i][c] - lse[i]) - s / C w[c] - (c == t ? (1 - s) w[t] : 0))
// An ignored row has no loss and no gradient. The mean divides both by the sum of w[t] over the other rows. Targets out of range,
// which check_targets reports, count as ignored, and no memory is touched for them.
#include "cuda/kernels/reduce/losses.cuh"

namespace halfstep::cuda {
namespace {

// C: the compute type of rows, and the weights' type.
template <class C>
struct Classes {
  const int64_t* target;
  const C* weight;  // null: all 1
  int64_t rows, classes, row_step, out_step, target_step, weight_step, ignore_index;
  double smoothing, share;  // share = smoothing / classes

  Classes(const CrossEntropyArgs& a, const TensorView& out)
      : target(a.target.as<const int64_t>()),
        weight(a.weight.as<const C>()),
        rows(a.logits.shape[0]),
        classes(a.logits.shape[1]),
        row_step(a.logits.strides[0]),
        out_step(out ? out.strides[0] : 0),
        target_step(a.target.strides[0]),
        weight_step(a.weight ? a.weight.strides[0] : 0),
        ignore_index(a.ignore_index),
        smoothing(a.label_smoothing),
        share(smoothing / double(classes)) {}
  __device__ bool counts(int64_t t) const { return t != ignore_index && t >= 0 && t < classes; }
  __device__ C weight_of(int64_t c) const { return weight ? weight[c * weight_step] : C(1); }
};

// Returns the sum of all classes' weights, which smoothing needs. All threads of the block must call it.
template <class C>
__device__ inline double all_weights(const Classes<C>& a, double* sums) {
  if (a.smoothing == 0 || !a.weight) return double(a.classes);
  double sum = 0;
  for (int64_t c = threadIdx.x; c < a.classes; c += kThreads) sum += double(a.weight_of(c));
  return block_join<SumJoin>(sum, sums);
}

// Computes the gradient of a row's logits for a gradient g of its loss: scale exp(x - lse) - smooth w[c] - (c == t ? own : 0).
template <class C>
struct RowGradient {
  C lse, scale, smooth, own;
  int64_t t;
  bool counts;

  __device__ RowGradient(const Classes<C>& a, int64_t t, C lse, double g, double weights) : lse(lse), t(t), counts(a.counts(t)) {
    const double hit = counts ? (1 - a.smoothing) * double(a.weight_of(t)) : 0;
    scale = C(g * (hit + a.share * weights)), smooth = C(g * a.share), own = C(g * hit);
  }
  template <int N>
  __device__ void compute(const Classes<C>& a, int64_t c, const C (&x)[N], C (&dx)[N]) const {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      C d = scale * m::exp(C(x[j] - lse));
      if (a.smoothing != 0) d -= smooth * a.weight_of(c + j);
      if (c + j == t) d -= own;
      dx[j] = counts ? d : C(0);
    }
  }
};

// Returns the sum of the weights of counted targets, before the rows are read. All threads of the block must call it.
template <class C>
__device__ inline double counted_weights(const Classes<C>& a, double* sums) {
  double sum = 0;
  for (int64_t r = threadIdx.x; r < a.rows; r += kThreads) {
    const int64_t t = a.target[r * a.target_step];
    if (a.counts(t)) sum += double(a.weight_of(t));
  }
  return block_join<SumJoin>(sum, sums);
}

// row_loss: null unless the reduction is none. Gradient: also writes the gradient of each row, which is still in registers and
// cache. Blocks that hold a row in packs need so many registers that only one fits on a multiprocessor; a second would make them
// spill.
template <class Rows, int Warps, bool Gradient, class C = typename Rows::Compute>
__global__ void __launch_bounds__(kThreads, Rows::kPack > 1 && Warps > 1 ? 1 : 0)
    cross_entropy_kernel(Rows logits, Classes<C> a, C* lse, int64_t lse_step, C* row_loss, int64_t loss_step, Partials partials,
                         Operand grad, Rows out) {
  using Group = RowGroup<Warps>;
  SHARED(C, tops, [kBlockWarps]);
  SHARED(double, sums, [kBlockWarps]);
  double found[2] = {0, 0};  // losses, weights
  double g = 0, weights = 0;
  if constexpr (Gradient) {
    g = grad.load_floating<double>(0);
    if (partials.count == 0) g /= double(C(counted_weights(a, &sums[0])));  // the mean divides by the weights
    weights = all_weights(a, &sums[0]);
  }
  for (int64_t r = Group::first_row(); r < a.rows; r += Group::row_step()) {
    const int64_t row = r * a.row_step, t = a.target[r * a.target_step];
    const HeldRows<Rows, Group, 1> held({logits}, {row}, a.classes);
    Exponentials<C> e;
    held.each([&](int64_t, const auto& x) { e.add(x[0]); });
    const double total = e.template join<Group>(&tops[0], &sums[0]);
    const C row_lse = isinf(e.top) ? e.top : C(double(e.top) + ::log(total));
    double spread = 0;
    if (a.smoothing != 0) {
      held.each([&](int64_t c, const auto& x) {
#pragma unroll
        for (int j = 0; j < length_of(x[0]); ++j) spread += double(a.weight_of(c + j) * (row_lse - x[0][j]));
      });
      spread = Group::template join<SumJoin>(spread, &sums[0]);
    }
    if constexpr (Gradient) {
      const RowGradient<C> gradient(a, t, row_lse, g, weights);
      held.each([&](int64_t c, const auto& x) {
        std::remove_cvref_t<decltype(x[0])> dx;
        gradient.compute(a, c, x[0], dx);
        out.store(r * a.out_step, c, dx);
      });
    }
    if (Group::rank() != 0) continue;
    lse[r * lse_step] = row_lse;
    double value = 0;
    if (a.counts(t)) {
      const double w = double(a.weight_of(t));
      C x[1];
      logits.load(row, t, x);
      value = (1 - a.smoothing) * w * (double(row_lse) - double(x[0]));
      if (a.smoothing != 0) value += a.share * spread;
      found[0] += value;
      found[1] += w;
    }
    if (row_loss) row_loss[r * loss_step] = C(value);
  }
  partials.join(found, &sums[0]);
}

template <class Rows, int Warps, class C = typename Rows::Compute>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_backward_kernel(Rows logits, Classes<C> a, Operand grad, int64_t grad_step, const C* lse, int64_t lse_step,
                                  const C* total, Rows out) {
  using Group = RowGroup<Warps>;
  SHARED(double, sums, [kBlockWarps]);
  const double weights = all_weights(a, &sums[0]), divisor = total ? double(*total) : 1;
  for (int64_t r = Group::first_row(); r < a.rows; r += Group::row_step()) {
    const RowGradient<C> gradient(a, a.target[r * a.target_step], lse[r * lse_step],
                                  grad.load_floating<double>(r * grad_step) / divisor, weights);
    Group::template each_of<Rows>(r * a.row_step, a.classes, [&](int64_t c, auto size) {
      C x[size.value];
      logits.load(r * a.row_step, c, x);
      gradient.compute(a, c, x, x);
      out.store(r * a.out_step, c, x);
    });
  }
}

}  // namespace

void cross_entropy(const Queue& q, const CrossEntropyArgs& args, const TensorView& loss, const TensorView& lse,
                   const TensorView& total, const LossGradient& gradient) {
  const int64_t rows = args.logits.shape[0], classes = args.logits.shape[1];
  const bool unreduced = args.reduction == Reduction::none, shorter = classes <= kWarpRow;
  const unsigned blocks = partial_blocks(rows, shorter ? kBlockWarps : 1);
  const Partials partials(q, unreduced ? Operand() : Operand(loss), total, args.reduction == Reduction::mean ? 0.0 : 1.0);
  const TensorView& out = gradient.out;
  bool together = false;  // whether the gradient's rows are written as those of the logits are read
  for_rows({&args.logits}, 1, [&](auto* kind) {
    using Rows = std::remove_pointer_t<decltype(kind)>;
    using C = typename Rows::Compute;
    if (out) for_rows({&args.logits, &out}, 1, [&](auto* both) { together = std::is_same_v<decltype(kind), decltype(both)>; });
    const auto run = [&](auto kernel) {
      launch(kernel, blocks, kThreads, 0, q.stream, Rows(args.logits, args.logits.strides[1]), Classes<C>(args, out), lse.as<C>(),
             lse.strides[0], unreduced ? loss.as<C>() : nullptr, unreduced ? loss.strides[0] : 0, partials, Operand(gradient.grad),
             together ? Rows(out, out.strides[1]) : Rows());
    };
    if (together)
      run(shorter ? cross_entropy_kernel<Rows, 1, true> : cross_entropy_kernel<Rows, kBlockWarps, true>);
    else
      run(shorter ? cross_entropy_kernel<Rows, 1, false> : cross_entropy_kernel<Rows, kBlockWarps, false>);
  });
  if (out && !together) cross_entropy_backward(q, args, gradient.grad, lse, total, out);
}

void cross_entropy_backward(const Queue& q, const CrossEntropyArgs& args, const TensorView& grad, const TensorView& lse,
                            const TensorView& total, const TensorView& out) {
  const int64_t rows = args.logits.shape[0], classes = args.logits.shape[1];
  if (rows == 0 || classes == 0) return;
  const bool shorter = classes <= kWarpRow;
  for_rows({&args.logits, &out}, 1, [&](auto* kind) {
    using Rows = std::remove_pointer_t<decltype(kind)>;
    using C = typename Rows::Compute;
    launch(shorter ? cross_entropy_backward_kernel<Rows, 1> : cross_entropy_backward_kernel<Rows, kBlockWarps>,
           row_blocks(rows, classes), kThreads, 0, q.stream, Rows(args.logits, args.logits.strides[1]), Classes<C>(args, out),
           Operand(grad), grad.shape.empty() ? 0 : grad.strides[0], lse.as<const C>(), lse.strides[0],
           args.reduction == Reduction::mean ? total.as<const C>() : nullptr, Rows(out, out.strides[1]));
  });
}

}  // namespace halfstep::cuda
