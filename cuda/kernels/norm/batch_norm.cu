// SPDX-License-Identifier: Apache-2.0
// Batch normalisation of x [N, C, L] with one mean and variance per channel c; n = N L.
//   forward   mean_c = sum x / n, var_c = sum (x - mean_c)^2 / n, both over N and L; without training, the running ones
//             rstd = 1 / sqrt(var + eps), xhat = (x - mean) rstd, y = relu?(xhat w + b), or relu(xhat w + b + residual)
//             running = (1 - momentum) running + momentum new, where the new variance is var n / (n - 1)
//   backward  g = the gradient of y, 0 where the ReLU's result is 0;  db = sum g, dw = sum g xhat
//             dx = w rstd (g - db / n - xhat dw / n);  without training, dx = w rstd g
// Both directions compute the sums of each channel first, then take one pass over the elements.
#include <algorithm>

#include "cuda/kernels/norm/norms.cuh"

namespace halfstep::cuda {
namespace {

constexpr int kPack = kRun;

// Computes mean and rstd from the running statistics, without training.
__global__ void __launch_bounds__(kThreads)
    running_kernel(int64_t channels, double eps, Operand running_mean, Operand running_var, Operand mean, Operand rstd) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t c = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; c < channels; c += step) {
    mean.store_floating(c, running_mean.load_floating<double>(c));
    rstd.store_floating(c, 1 / ::sqrt(running_var.load_floating<double>(c) + eps));
  }
}

struct BatchNormOperands {
  Operand x, grad, weight, bias, mean, rstd, out;
  int64_t batch, channels, inner;
  int64_t first, count;  // range of channels
  bool training, relu;
};

// Owners of N neighbouring elements: the first `split` belong to channel `first`, the rest to `second`.
struct Owners {
  int64_t first, second;
  int split;

  // Loads their parameters from `base` on; `otherwise` if there are none.
  template <class C, int N>
  __device__ void load(const Operand& p, int64_t base, C otherwise, C (&v)[N]) const {
    const C value = p.data != nullptr ? p.load_floating<C>(base + first) : otherwise;
    const C next = N > 1 && p.data != nullptr && split < N ? p.load_floating<C>(base + second) : value;
#pragma unroll
    for (int j = 0; j < N; ++j) v[j] = N == 1 || j < split ? value : next;
  }
};

// Calls f(element, its channels counted from a.first, size) for each pack of `size` of the channels' elements, and for single
// elements at the end.
template <int N, class F>
__device__ inline void each_element(const BatchNormOperands& a, const F& f) {
  const int64_t row = a.count * a.inner, numel = a.batch * row;
  const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x, step = int64_t(gridDim.x) * blockDim.x;
  const auto call = [&](int64_t i, auto size) {
    const int64_t b = short_quotient(i, row), place = i - b * row, c = short_quotient(place, a.inner);
    const int64_t left = (c + 1) * a.inner - place;
    f((b * a.channels + a.first) * a.inner + place,
      Owners{c, c + 1 < a.count ? c + 1 : 0, left < size.value ? int(left) : size.value}, size);
  };
  for (int64_t p = thread; p < numel / N; p += step) call(p * N, std::integral_constant<int, N>());
  if (numel / N * N + thread < numel) call(numel / N * N + thread, std::integral_constant<int, 1>());
}

// Computes add_relu of the normalised values x, as they would be stored, and of the residual.
template <class C, int N>
__device__ inline void add_residual(DType stored, C (&x)[N], const C (&residual)[N]) {
  round_to(stored, x);
#pragma unroll
  for (int j = 0; j < N; ++j) x[j] = functor::add_relu{}(x[j], residual[j]);
}

template <class C, int N, bool Add>
__global__ void __launch_bounds__(kThreads) forward_kernel(BatchNormOperands a, Operand residual) {
  each_element<N>(a, [&](int64_t i, const Owners& owners, auto size) {
    C x[size.value], mean[size.value], rstd[size.value], w[size.value], b[size.value];
    [[maybe_unused]] C added[size.value];
    load_some(a.x, i, x);
    if constexpr (Add) load_some(residual, i, added);
    owners.load(a.mean, a.first, C(0), mean);
    owners.load(a.rstd, a.first, C(1), rstd);
    owners.load(a.weight, a.first, C(1), w);
    owners.load(a.bias, a.first, C(0), b);
#pragma unroll
    for (int j = 0; j < size.value; ++j) {
      x[j] = normalized(x[j], mean[j], rstd[j] * w[j], b[j]);
      if (!Add && a.relu) x[j] = functor::relu{}(x[j]);
    }
    if constexpr (Add) add_residual(a.out.dtype, x, added);
    store_some(a.out, i, x);
  });
}

// Computes dx = rstd w (g - sum g / n - xhat sum(g xhat) / n); without training only the first term. plain, scaled: the sums over
// n, from a.first on. With Relu, g is 0 where the forward's result was, which is recomputed; `zero`: stored_as_zero.
template <class C, int N, bool Relu>
__global__ void __launch_bounds__(kThreads) backward_kernel(BatchNormOperands a, Operand plain, Operand scaled, C zero) {
  each_element<N>(a, [&](int64_t i, const Owners& owners, auto size) {
    C g[size.value], x[size.value] = {}, mean[size.value] = {}, rstd[size.value], w[size.value];
    load_some(a.grad, i, g);
    owners.load(a.rstd, a.first, C(1), rstd);
    owners.load(a.weight, a.first, C(1), w);
    if (Relu || a.training) {
      load_some(a.x, i, x);
      owners.load(a.mean, a.first, C(0), mean);
    }
    if constexpr (Relu) {
      C b[size.value];
      owners.load(a.bias, a.first, C(0), b);
#pragma unroll
      for (int j = 0; j < size.value; ++j) {
        if (normalized(x[j], mean[j], rstd[j] * w[j], b[j]) <= zero) g[j] = 0;
      }
    }
    if (a.training) {
      C first[size.value], second[size.value];
      owners.load(plain, 0, C(0), first);
      owners.load(scaled, 0, C(0), second);
#pragma unroll
      for (int j = 0; j < size.value; ++j) g[j] = g[j] - first[j] - (x[j] - mean[j]) * rstd[j] * second[j];
    }
#pragma unroll
    for (int j = 0; j < size.value; ++j) g[j] *= rstd[j] * w[j];
    store_some(a.out, i, g);
  });
}

// inner = 1, in packs: a thread has the same channels in all its rows, so that their parameters stay in registers.
struct RowsOfThread {
  int64_t column, row, step;  // first channel, counted from a.first; first row, and distance to the next

  __device__ explicit RowsOfThread(const BatchNormOperands& a) {
    const int64_t thread = int64_t(blockIdx.x) * kThreads + threadIdx.x, per_row = a.count / kPack;
    row = short_quotient(thread, per_row);
    step = short_quotient(int64_t(gridDim.x) * kThreads, per_row);
    column = (thread - row * per_row) * kPack;
    if (row >= step) row = a.batch;  // more threads than whole rows
  }
};

struct ChannelScale {
  float mean[kPack], scale[kPack];

  __device__ ChannelScale(const BatchNormOperands& a, int64_t channel) {
    float w[kPack];
    load_parameter(a.mean, 0, channel, 1, 0.0f, mean);
    load_parameter(a.rstd, 0, channel, 1, 1.0f, scale);
    load_parameter(a.weight, 0, channel, 1, 1.0f, w);
#pragma unroll
    for (int j = 0; j < kPack; ++j) scale[j] *= w[j];
  }
};

// Packs of each operand that a thread loads ahead; with one more, a multiprocessor would run fewer blocks.
constexpr int kForwardBatch = 3, kBackwardBatch = 2;

template <bool Add>
__global__ void __launch_bounds__(kThreads) forward_packs(BatchNormOperands a, Operand residual) {
  const RowsOfThread own(a);
  const ChannelScale c(a, a.first + own.column);
  float b[kPack];
  load_parameter(a.bias, 0, a.first + own.column, 1, 0.0f, b);
  const auto at = [&](int64_t r) { return r * a.channels + a.first + own.column; };
  for (int64_t r = own.row; r < a.batch; r += own.step * kForwardBatch) {
    RawPack packs[kForwardBatch];
    [[maybe_unused]] RawPack more[kForwardBatch];
#pragma unroll
    for (int k = 0; k < kForwardBatch; ++k) {
      if (r + k * own.step >= a.batch) continue;
      load_raw(a.x, at(r + k * own.step), packs[k]);
      if constexpr (Add) load_raw(residual, at(r + k * own.step), more[k]);
    }
#pragma unroll
    for (int k = 0; k < kForwardBatch; ++k) {
      if (r + k * own.step >= a.batch) continue;
      float x[kPack];
      unpack(packs[k], a.x.dtype, x);
#pragma unroll
      for (int j = 0; j < kPack; ++j) {
        x[j] = normalized(x[j], c.mean[j], c.scale[j], b[j]);
        if (!Add && a.relu) x[j] = functor::relu{}(x[j]);
      }
      if constexpr (Add) {
        float added[kPack];
        unpack(more[k], residual.dtype, added);
        add_residual(a.out.dtype, x, added);
      }
      store_run(a.out, at(r + k * own.step), x);
    }
  }
}

template <bool Relu>
__global__ void __launch_bounds__(kThreads) backward_packs(BatchNormOperands a, Operand plain, Operand scaled, float zero) {
  const RowsOfThread own(a);
  const ChannelScale c(a, a.first + own.column);
  float b[kPack], first[kPack] = {}, second[kPack] = {};
  if constexpr (Relu) load_parameter(a.bias, 0, a.first + own.column, 1, 0.0f, b);
  if (a.training) {
    float rstd[kPack];
    load_parameter(a.rstd, 0, a.first + own.column, 1, 1.0f, rstd);
    load_parameter(plain, 0, own.column, 1, 0.0f, first);
    load_parameter(scaled, 0, own.column, 1, 0.0f, second);
#pragma unroll
    for (int j = 0; j < kPack; ++j) second[j] *= rstd[j];
  }
  const bool reads_x = Relu || a.training;
  const auto at = [&](int64_t r) { return r * a.channels + a.first + own.column; };
  for (int64_t r = own.row; r < a.batch; r += own.step * kBackwardBatch) {
    RawPack grads[kBackwardBatch], inputs[kBackwardBatch];
#pragma unroll
    for (int k = 0; k < kBackwardBatch; ++k) {
      if (r + k * own.step >= a.batch) continue;
      load_raw(a.grad, at(r + k * own.step), grads[k]);
      if (reads_x) load_raw(a.x, at(r + k * own.step), inputs[k]);
    }
#pragma unroll
    for (int k = 0; k < kBackwardBatch; ++k) {
      if (r + k * own.step >= a.batch) continue;
      float g[kPack], x[kPack];
      unpack(grads[k], a.grad.dtype, g);
      unpack(inputs[k], a.x.dtype, x);
#pragma unroll
      for (int j = 0; j < kPack; ++j) {
        if (Relu && normalized(x[j], c.mean[j], c.scale[j], b[j]) <= zero) g[j] = 0;
        if (a.training) g[j] = g[j] - first[j] - (x[j] - c.mean[j]) * second[j];
        g[j] *= c.scale[j];
      }
      store_run(a.out, at(r + k * own.step), g);
    }
  }
}

// Returns the number of blocks: threads for at least `batch` packs each, and for a row of all channels; at most one full load of
// the device, so that what each thread reads before its first pack serves many.
unsigned pack_blocks(const BatchNormOperands& a, int batch) {
  const int64_t per_row = a.count / kPack, most = resident_threads() / kThreads;
  const auto blocks = [](int64_t items, int64_t each) { return (items + each - 1) / each; };
  return unsigned(std::max(blocks(per_row, kThreads), std::min(blocks(a.batch * per_row, kThreads * batch), most)));
}

// Calls f(C{}, kPack or 1).
template <class F>
void for_elements(DType x, bool packed, const F& f) {
  if (x == DType::f64) return f(double{}, std::integral_constant<int, 1>());
  packed ? f(float{}, std::integral_constant<int, kPack>()) : f(float{}, std::integral_constant<int, 1>());
}
// Returns a length that is a whole number of packs if elements can be read in packs. Channels of at least one pack may have any
// length if all are processed at once: a pack then has elements of at most two of them.
int64_t run_of(const BatchNormArgs& a) {
  if (a.inner == 1) return a.channels;
  return a.inner >= kPack && a.channels <= kChannelsAtOnce ? kPack : a.inner;
}

}  // namespace

void batch_norm(const Queue& q, const BatchNormArgs& args, const TensorView& x, const TensorView& weight, const TensorView& bias,
                const TensorView& residual, const TensorView& running_mean, const TensorView& running_var,
                const TensorView& batches, const TensorView& out, const TensorView& mean, const TensorView& rstd) {
  if (args.channels == 0) return;
  if (args.training)
    batch_statistics(q, args, x, running_mean, running_var, batches, mean, rstd);
  else
    launch(running_kernel, blocks_for(args.channels, kThreads), kThreads, 0, q.stream, args.channels, args.eps,
           Operand(running_mean), Operand(running_var), Operand(mean), Operand(rstd));
  const int64_t numel = args.batch * args.channels * args.inner;
  if (numel == 0) return;
  const BatchNormOperands a{x,          {}, weight,        bias,          mean,     rstd, out, args.batch, args.channels,
                            args.inner, 0,  args.channels, args.training, args.relu};
  const bool packed = reads_some(kPack, {&x, &weight, &bias, &residual, &mean, &rstd, &out}, run_of(args));
  const Operand added(residual);
  if (packed && args.inner == 1) {
    const auto kernel = residual ? forward_packs<true> : forward_packs<false>;
    return launch(kernel, pack_blocks(a, kForwardBatch), kThreads, 0, q.stream, a, added);
  }
  for_elements(x.dtype, packed, [&](auto type, auto pack) {
    using C = decltype(type);
    const auto kernel = residual ? forward_kernel<C, pack.value, true> : forward_kernel<C, pack.value, false>;
    launch(kernel, blocks_for(numel / pack.value, kThreads), kThreads, 0, q.stream, a, added);
  });
}

void batch_norm_backward(const Queue& q, const BatchNormArgs& args, const TensorView& grad, const TensorView& x,
                         const TensorView& weight, const TensorView& bias, const TensorView& mean, const TensorView& rstd,
                         const TensorView& dx, const TensorView& dweight, const TensorView& dbias) {
  const bool packed = reads_some(kPack, {&grad, &x, &weight, &bias, &mean, &rstd, &dx}, run_of(args));
  const ChannelSumArgs sums{grad, x, mean, rstd, args.batch, args.channels, args.inner, 0, 1, 1, args.relu, weight, bias};
  BatchNormOperands a{x, grad, weight, bias, mean, rstd, dx, args.batch, args.channels, args.inner, 0, 0, args.training, args.relu};
  for (a.first = 0; a.first < args.channels; a.first += kChannelsAtOnce) {
    a.count = args.channels - a.first < kChannelsAtOnce ? args.channels - a.first : kChannelsAtOnce;
    if (args.training || dweight || dbias) channel_sums(q, sums, a.first, a.count, dbias, dweight);
    const int64_t numel = args.batch * a.count * args.inner;
    if (!dx || numel == 0) continue;
    // The results of channel_sums: float or double.
    Operand plain, scaled;
    plain.dtype = scaled.dtype = x.dtype == DType::f64 ? DType::f64 : DType::f32;
    plain.data = totals_of(q);
    scaled.data = static_cast<char*>(plain.data) + size_t(a.count) * size_of(plain.dtype);
    const double zero = stored_as_zero(x.dtype);
    if (packed && args.inner == 1) {
      launch(a.relu ? backward_packs<true> : backward_packs<false>, pack_blocks(a, kBackwardBatch), kThreads, 0, q.stream, a, plain,
             scaled, float(zero));
      continue;
    }
    for_elements(x.dtype, packed, [&](auto type, auto pack) {
      using C = decltype(type);
      const auto kernel = a.relu ? backward_kernel<C, pack.value, true> : backward_kernel<C, pack.value, false>;
      launch(kernel, blocks_for(numel / pack.value, kThreads), kThreads, 0, q.stream, a, plain, scaled, C(zero));
    });
  }
}

}  // namespace halfstep::cuda
