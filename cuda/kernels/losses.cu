// Cross entropy with class weights, an ignored index and label smoothing, and the mean squared error.
//   loss[i] = (1 - s) w[t] nll(t) + s / C sum_c w[c] nll(c),  nll(c) = logsumexp(x[i]) - x[i][c];  an ignored row's loss is 0.
// Sums over rows: a partial for each block, whose number the shape alone fixes, then the partials in order.
#include "cuda/kernels/rows.cuh"

namespace halfstep::cuda {
namespace {

constexpr int kMostPartials = 1024;

struct Classes {
  Operand logits, weight;  // weight.data null: all 1
  const int64_t* target;
  int64_t rows, classes, row_step, class_step, target_step, weight_step, ignore_index;
  double smoothing;

  template <class C>
  __device__ C logit(int64_t r, int64_t c) const {
    return logits.load<C>(r * row_step + c * class_step);
  }
  __device__ double weight_of(int64_t c) const { return weight.data ? weight.load<double>(c * weight_step) : 1.0; }
};

// Partials: [gridDim.x][2], the losses and the weights of the block's rows. row_loss: used when the reduction is none.
template <class C>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_kernel(Classes a, Operand lse, int64_t lse_step, Operand row_loss, int64_t loss_step, double* partials) {
  SHARED(C, tops, [kBlockWarps]);
  SHARED(double, sums, [kBlockWarps]);
  double losses = 0, weights = 0;
  for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
    C top = C(-INFINITY);
    for (int64_t c = threadIdx.x; c < a.classes; c += kThreads) top = MaxJoin::join(top, a.logit<C>(r, c));
    top = block_join<MaxJoin>(top, &tops[0]);
    C sum = 0;
    for (int64_t c = threadIdx.x; c < a.classes; c += kThreads) sum += m::exp(C(a.logit<C>(r, c) - top));
    const double total = block_join<SumJoin>(double(sum), &sums[0]);
    const C row_lse = isinf(top) ? top : C(double(top) + ::log(total));
    double spread = 0;
    if (a.smoothing != 0) {
      for (int64_t c = threadIdx.x; c < a.classes; c += kThreads)
        spread += a.weight_of(c) * (double(row_lse) - double(a.logit<C>(r, c)));
      spread = block_join<SumJoin>(spread, &sums[0]);
    }
    if (threadIdx.x != 0) continue;
    lse.store(r * lse_step, row_lse);
    const int64_t t = a.target[r * a.target_step];
    double value = 0;
    if (t != a.ignore_index) {
      const double w = a.weight_of(t);
      value = (1 - a.smoothing) * w * (double(row_lse) - double(a.logit<C>(r, t)));
      if (a.smoothing != 0) value += a.smoothing / double(a.classes) * spread;
      losses += value;
      weights += w;
    }
    if (row_loss.data) row_loss.store(r * loss_step, value);
  }
  if (threadIdx.x == 0) {
    partials[2 * blockIdx.x] = losses;
    partials[2 * blockIdx.x + 1] = weights;
  }
}

// One block. loss may be absent (reduction none), so may the weights (mse, which divides by `count`).
__global__ void finish_loss(const double* partials, int blocks, int each, Operand loss, Operand total, double count) {
  if (threadIdx.x != 0) return;
  double sum = 0, weights = 0;
  for (int b = 0; b < blocks; ++b) {
    sum += partials[b * each];
    if (each == 2) weights += partials[b * each + 1];
  }
  if (total.data) total.store(0, weights);
  if (loss.data) loss.store(0, count == 0 ? sum / weights : sum / count);
}

template <class C>
__global__ void __launch_bounds__(kThreads) cross_entropy_backward_kernel(Classes a, Operand grad, int64_t grad_step, Operand lse,
                                                                          int64_t lse_step, Operand total, bool mean, Operand out) {
  SHARED(double, sums, [kBlockWarps]);
  double all_weights = double(a.classes);
  if (a.smoothing != 0 && a.weight.data) {
    double mine = 0;
    for (int64_t c = threadIdx.x; c < a.classes; c += kThreads) mine += a.weight_of(c);
    all_weights = block_join<SumJoin>(mine, &sums[0]);
  }
  const double share = a.smoothing / double(a.classes), divisor = mean ? total.load<double>(0) : 1;
  for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
    const int64_t t = a.target[r * a.target_step];
    const bool counts = t != a.ignore_index;
    const double g = grad.load<double>(r * grad_step) / divisor, hit = counts ? (1 - a.smoothing) * a.weight_of(t) : 0;
    const C row_lse = lse.load<C>(r * lse_step), scale = C(g * (hit + share * all_weights)), smooth = C(g * share);
    for (int64_t c = threadIdx.x; c < a.classes; c += kThreads) {
      C d = 0;
      if (counts) d = scale * m::exp(C(a.logit<C>(r, c) - row_lse)) - smooth * C(a.weight_of(c)) - (c == t ? C(g * hit) : C(0));
      out.store(r * a.classes + c, d);
    }
  }
}

Classes classes_of(const CrossEntropyArgs& args) {
  Classes a;
  a.logits = args.logits;
  if (args.weight) a.weight = args.weight;
  a.target = args.target.as<const int64_t>();
  a.rows = args.logits.shape[0];
  a.classes = args.logits.shape[1];
  a.row_step = args.logits.strides[0];
  a.class_step = args.logits.strides[1];
  a.target_step = args.target.strides[0];
  a.weight_step = args.weight ? args.weight.strides[0] : 0;
  a.ignore_index = args.ignore_index;
  a.smoothing = args.label_smoothing;
  return a;
}

int partial_count(int64_t items) { return int(items < 1 ? 1 : items < kMostPartials ? items : kMostPartials); }

template <class C>
__global__ void __launch_bounds__(kThreads) mse_kernel(Operand a, Operand b, Space<2> space, double* partials) {
  SHARED(double, sums, [kBlockWarps]);
  double sum = 0;
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < space.numel; i += int64_t(gridDim.x) * kThreads) {
    int64_t at[2];
    space.offsets(i, at);
    const C d = a.load<C>(at[0]) - b.load<C>(at[1]);
    sum += double(d * d);
  }
  sum = block_join<SumJoin>(sum, &sums[0]);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

// factor: sign 2 / n, times the gradient on the device.
template <class C>
__global__ void __launch_bounds__(kThreads)
    mse_backward_kernel(Operand a, Operand b, Operand grad, Operand out, Space<3> space, double sign, double n) {
  const C factor = C(sign * 2 * grad.load<double>(0) / n);
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < space.numel; i += int64_t(gridDim.x) * kThreads) {
    int64_t at[3];
    space.offsets(i, at);
    out.store(at[0], C((a.load<C>(at[1]) - b.load<C>(at[2])) * factor));
  }
}

}  // namespace

void cross_entropy(const Queue& q, const CrossEntropyArgs& args, const TensorView& loss, const TensorView& lse,
                   const TensorView& total) {
  const Classes a = classes_of(args);
  const int blocks = partial_count(a.rows);
  const bool each = args.reduction == Reduction::none;
  const Operand row_loss = each ? Operand(loss) : Operand();
  const auto kernel = args.logits.dtype == DType::f64 ? cross_entropy_kernel<double> : cross_entropy_kernel<float>;
  launch(kernel, unsigned(blocks), kThreads, 0, q.stream, a, Operand(lse), lse.strides[0], row_loss, each ? loss.strides[0] : 0,
         q.scratch);
  launch(finish_loss, 1, 32, 0, q.stream, q.scratch, blocks, 2, each ? Operand() : Operand(loss), Operand(total),
         args.reduction == Reduction::mean ? 0.0 : 1.0);
}

void cross_entropy_backward(const Queue& q, const CrossEntropyArgs& args, const TensorView& grad, const TensorView& lse,
                            const TensorView& total, const TensorView& out) {
  const Classes a = classes_of(args);
  if (a.rows == 0 || a.classes == 0) return;
  const auto kernel =
      args.logits.dtype == DType::f64 ? cross_entropy_backward_kernel<double> : cross_entropy_backward_kernel<float>;
  launch(kernel, blocks_for(a.rows, 1), kThreads, 0, q.stream, a, Operand(grad), grad.shape.empty() ? 0 : grad.strides[0],
         Operand(lse), lse.strides[0], Operand(total), args.reduction == Reduction::mean, Operand(out));
}

void mse(const Queue& q, const TensorView& a, const TensorView& b, Reduction reduction, const TensorView& loss) {
  const Space<2> space(a.shape, {&a.strides, &b.strides});
  const int blocks = partial_count((space.numel + kThreads - 1) / kThreads);
  const auto kernel = a.dtype == DType::f64 || b.dtype == DType::f64 ? mse_kernel<double> : mse_kernel<float>;
  launch(kernel, unsigned(blocks), kThreads, 0, q.stream, Operand(a), Operand(b), space, q.scratch);
  // A count of 0 divides by the weights, of which there are none: the mean of nothing is NaN.
  launch(finish_loss, 1, 32, 0, q.stream, q.scratch, blocks, 1, Operand(loss), Operand(),
         reduction == Reduction::mean ? double(space.numel) : 1.0);
}

void mse_backward(const Queue& q, const TensorView& a, const TensorView& b, const TensorView& grad, Reduction reduction,
                  double sign, const TensorView& out) {
  const Space<3> space(out.shape, {&out.strides, &a.strides, &b.strides});
  if (space.numel == 0) return;
  const bool wide = a.dtype == DType::f64 || b.dtype == DType::f64 || out.dtype == DType::f64;
  launch(wide ? mse_backward_kernel<double> : mse_backward_kernel<float>, blocks_for(space.numel, kThreads), kThreads, 0, q.stream,
         Operand(a), Operand(b), Operand(grad), Operand(out), space, sign,
         reduction == Reduction::mean ? double(space.numel) : 1.0);
}

}  // namespace halfstep::cuda
