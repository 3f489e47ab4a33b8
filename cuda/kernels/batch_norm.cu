// Batch normalisation: the statistics and sums of each channel first, then one pass over the elements.
#include "cuda/kernels/norms.cuh"

namespace halfstep::cuda {
namespace {

constexpr int kPack = 8;

// mean and variance (in rstd) -> mean and rstd, and the new running statistics.
__global__ void __launch_bounds__(kThreads)
    statistics_kernel(BatchNormArgs a, Operand running_mean, Operand running_var, Operand mean, Operand rstd) {
  const double count = double(a.batch) * double(a.inner);
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t c = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; c < a.channels; c += step) {
    const double m = a.training ? mean.load_floating<double>(c) : running_mean.load_floating<double>(c);
    const double var = a.training ? rstd.load_floating<double>(c) : running_var.load_floating<double>(c);
    mean.store_floating(c, m);
    rstd.store_floating(c, 1 / ::sqrt(var + a.eps));
    if (!a.training || running_mean.data == nullptr || count == 0) continue;
    const double keep = 1 - a.momentum;
    running_mean.store_floating(c, multiply_add(a.momentum * m, keep, running_mean.load_floating<double>(c)));
    running_var.store_floating(c,
                               multiply_add(a.momentum * (var * count / (count - 1)), keep, running_var.load_floating<double>(c)));
  }
}

struct BatchNorm {
  Operand x, grad, weight, bias, mean, rstd, out;
  int64_t batch, channels, inner;
  int64_t first, count;  // which channels
  bool training;
};

// f(element, place among the channels' elements) for each pack of the channels.
template <int N, class F>
__device__ inline void each_element(const BatchNorm& a, const F& f) {
  const int64_t row = a.count * a.inner, step = int64_t(gridDim.x) * blockDim.x * N;
  for (int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * N; i < a.batch * row; i += step) {
    const int64_t b = short_quotient(i, row), place = a.first * a.inner + i - b * row;
    f(b * a.channels * a.inner + place, place);
  }
}

template <class C, int N>
__global__ void __launch_bounds__(kThreads) forward_kernel(BatchNorm a) {
  each_element<N>(a, [&](int64_t i, int64_t place) {
    C x[N], mean[N], rstd[N], w[N], b[N];
    load_some(a.x, i, x);
    load_parameter(a.mean, 0, place, a.inner, C(0), mean);
    load_parameter(a.rstd, 0, place, a.inner, C(1), rstd);
    load_parameter(a.weight, 0, place, a.inner, C(1), w);
    load_parameter(a.bias, 0, place, a.inner, C(0), b);
#pragma unroll
    for (int j = 0; j < N; ++j) x[j] = (x[j] - mean[j]) * (rstd[j] * w[j]) + b[j];
    store_some(a.out, i, x);
  });
}

// dx = rstd w (g - sum g / n - xhat sum(g xhat) / n); without training only the first. plain, scaled: the sums, from a.first on.
template <class C, int N>
__global__ void __launch_bounds__(kThreads) backward_kernel(BatchNorm a, Operand plain, Operand scaled) {
  const C n = C(a.batch * a.inner);
  each_element<N>(a, [&](int64_t i, int64_t place) {
    C g[N], rstd[N], w[N];
    load_some(a.grad, i, g);
    load_parameter(a.rstd, 0, place, a.inner, C(1), rstd);
    load_parameter(a.weight, 0, place, a.inner, C(1), w);
    if (a.training) {
      C x[N], mean[N], first[N], second[N];
      load_some(a.x, i, x);
      load_parameter(a.mean, 0, place, a.inner, C(0), mean);
      load_parameter(plain, 0, place - a.first * a.inner, a.inner, C(0), first);
      load_parameter(scaled, 0, place - a.first * a.inner, a.inner, C(0), second);
#pragma unroll
      for (int j = 0; j < N; ++j) g[j] = g[j] - first[j] / n - (x[j] - mean[j]) * rstd[j] * (second[j] / n);
    }
#pragma unroll
    for (int j = 0; j < N; ++j) g[j] *= rstd[j] * w[j];
    store_some(a.out, i, g);
  });
}

// f(C{}, kPack or 1)
template <class F>
void for_elements(DType x, bool some, const F& f) {
  if (x == DType::f64) return f(double{}, std::integral_constant<int, 1>());
  some ? f(float{}, std::integral_constant<int, kPack>()) : f(float{}, std::integral_constant<int, 1>());
}
int64_t run_of(const BatchNormArgs& a) { return a.inner == 1 ? a.channels : a.inner; }

TensorView of_channels(const TensorView& v, int64_t channels) {
  TensorView out = v;
  out.shape = {1, channels, 1};
  out.strides = {channels, 1, 1};
  return out;
}

}  // namespace

void batch_norm(const Queue& q, const BatchNormArgs& args, const TensorView& x, const TensorView& weight, const TensorView& bias,
                const TensorView& running_mean, const TensorView& running_var, const TensorView& out, const TensorView& mean,
                const TensorView& rstd) {
  if (args.channels == 0) return;
  if (args.training) {
    TensorView view = x;
    view.shape = {args.batch, args.channels, args.inner};
    view.strides = {args.channels * args.inner, args.inner, 1};
    variance(q, view, 0, of_channels(mean, args.channels), of_channels(rstd, args.channels));
  }
  launch(statistics_kernel, blocks_for(args.channels, kThreads), kThreads, 0, q.stream, args, Operand(running_mean),
         Operand(running_var), Operand(mean), Operand(rstd));
  const int64_t numel = args.batch * args.channels * args.inner;
  if (numel == 0) return;
  const BatchNorm a{x, {}, weight, bias, mean, rstd, out, args.batch, args.channels, args.inner, 0, args.channels, args.training};
  for_elements(x.dtype, reads_some(kPack, {&x, &weight, &bias, &mean, &rstd, &out}, run_of(args)), [&](auto type, auto pack) {
    launch(forward_kernel<decltype(type), pack.value>, blocks_for(numel / pack.value, kThreads), kThreads, 0, q.stream, a);
  });
}

void batch_norm_backward(const Queue& q, const BatchNormArgs& args, const TensorView& grad, const TensorView& x,
                         const TensorView& weight, const TensorView& mean, const TensorView& rstd, const TensorView& dx,
                         const TensorView& dweight, const TensorView& dbias) {
  const bool some = reads_some(kPack, {&grad, &x, &weight, &mean, &rstd, &dx}, run_of(args));
  const ChannelSums sums{grad, x, mean, rstd, args.batch, args.channels, args.inner, 0, 1};
  BatchNorm a{x, grad, weight, {}, mean, rstd, dx, args.batch, args.channels, args.inner, 0, 0, args.training};
  for (a.first = 0; a.first < args.channels; a.first += kChannelsAtOnce) {
    a.count = args.channels - a.first < kChannelsAtOnce ? args.channels - a.first : kChannelsAtOnce;
    if (args.training || dweight || dbias) channel_sums(q, sums, a.first, a.count, dbias, dweight);
    const int64_t numel = args.batch * a.count * args.inner;
    if (!dx || numel == 0) continue;
    for_elements(x.dtype, some, [&](auto type, auto pack) {
      using C = decltype(type);
      C* totals = reinterpret_cast<C*>(totals_of(q));
      Operand plain, scaled;
      plain.dtype = scaled.dtype = x.dtype == DType::f64 ? DType::f64 : DType::f32;
      plain.data = totals;
      scaled.data = totals + a.count;
      launch(backward_kernel<C, pack.value>, blocks_for(numel / pack.value, kThreads), kThreads, 0, q.stream, a, plain, scaled);
    });
  }
}

}  // namespace halfstep::cuda
