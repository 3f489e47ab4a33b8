// Layer, RMS and group normalisation: a warp for short rows, a block for long ones. A row is read twice, the second time from the
// cache.
#include "cuda/kernels/norms.cuh"

namespace halfstep::cuda {
namespace {

constexpr int kPack = 8;

struct Norm {
  Operand x, weight, bias, out, mean, rstd;
  int64_t slices, length, groups, channels, inner;
  double eps;
  bool centered;
};

// Mean and squared distances of what a thread has seen.
template <class C>
struct Seen {
  C mean = 0, squares = 0, count = 0;

  template <int N>
  __device__ void add(const C (&x)[N], bool centered) {
    C middle = 0, spread = 0;
    if (centered) {
#pragma unroll
      for (int j = 0; j < N; ++j) middle += x[j];
      middle /= C(N);
    }
#pragma unroll
    for (int j = 0; j < N; ++j) spread += (x[j] - middle) * (x[j] - middle);
    const C d = middle - mean, share = C(N) / (count + C(N));
    squares += spread + d * d * count * share;
    mean += d * share;
    count += C(N);
  }
};

template <class C, int N, int Warps>
__global__ void __launch_bounds__(kThreads) normalize_kernel(Norm a) {
  using Group = RowGroup<Warps>;
  SHARED(double, sums, [kBlockWarps]);
  for (int64_t k = Group::first_row(); k < a.slices; k += Group::row_step()) {
    const int64_t row = k * a.length, base = k % a.groups * a.channels;
    Seen<C> seen;
    Group::template each<N>(0, a.length, [&](int64_t i, auto size) {
      C x[size.value];
      load_some(a.x, row + i, x);
      seen.add(x, a.centered);
    });
    const double n = double(a.length);
    const double mean = Group::template join<SumJoin>(double(seen.mean) * double(seen.count), &sums[0]) / n;
    const double off = double(seen.mean) - mean;
    const double squares = Group::template join<SumJoin>(double(seen.squares) + double(seen.count) * off * off, &sums[0]);
    const C m = C(mean), r = C(1 / ::sqrt(squares / n + a.eps));
    if (Group::rank() == 0) {
      if (a.mean.data != nullptr) a.mean.store_floating(k, m);
      a.rstd.store_floating(k, r);
    }
    Group::template each<N>(0, a.length, [&](int64_t i, auto size) {
      C x[size.value], w[size.value], b[size.value];
      load_some(a.x, row + i, x);
      load_parameter(a.weight, base, i, a.inner, C(1), w);
      load_parameter(a.bias, base, i, a.inner, C(0), b);
#pragma unroll
      for (int j = 0; j < size.value; ++j) x[j] = (x[j] - m) * r * w[j] + b[j];
      store_some(a.out, row + i, x);
    });
  }
}

// dx = rstd (g w - mean(g w) - xhat mean(g w xhat)); out: dx, bias: g.
template <class C, int N, int Warps>
__global__ void __launch_bounds__(kThreads) backward_kernel(Norm a) {
  using Group = RowGroup<Warps>;
  SHARED(double, sums, [kBlockWarps]);
  for (int64_t k = Group::first_row(); k < a.slices; k += Group::row_step()) {
    const int64_t row = k * a.length, base = k % a.groups * a.channels;
    const C m = a.mean.data != nullptr ? a.mean.load_floating<C>(k) : C(0), r = a.rstd.load_floating<C>(k);
    C first = 0, second = 0;
    Group::template each<N>(0, a.length, [&](int64_t i, auto size) {
      C g[size.value], x[size.value], w[size.value];
      load_some(a.bias, row + i, g);
      load_some(a.x, row + i, x);
      load_parameter(a.weight, base, i, a.inner, C(1), w);
#pragma unroll
      for (int j = 0; j < size.value; ++j) {
        first += g[j] * w[j];
        second += g[j] * w[j] * ((x[j] - m) * r);
      }
    });
    const double n = double(a.length);
    const C one = a.centered ? C(Group::template join<SumJoin>(double(first), &sums[0]) / n) : C(0);
    const C two = C(Group::template join<SumJoin>(double(second), &sums[0]) / n);
    Group::template each<N>(0, a.length, [&](int64_t i, auto size) {
      C g[size.value], x[size.value], w[size.value];
      load_some(a.bias, row + i, g);
      load_some(a.x, row + i, x);
      load_parameter(a.weight, base, i, a.inner, C(1), w);
#pragma unroll
      for (int j = 0; j < size.value; ++j) g[j] = r * (g[j] * w[j] - one - (x[j] - m) * r * two);
      store_some(a.out, row + i, g);
    });
  }
}

// f(C{}, kPack or 1, 1 or kBlockWarps): how to go through the rows.
template <class F>
void for_rows_of(const Norm& a, bool some, const F& f) {
  const auto with = [&](auto type, auto pack) {
    a.length <= kWarpRow ? f(type, pack, std::integral_constant<int, 1>())
                         : f(type, pack, std::integral_constant<int, kBlockWarps>());
  };
  if (a.x.dtype == DType::f64) return with(double{}, std::integral_constant<int, 1>());
  some ? with(float{}, std::integral_constant<int, kPack>()) : with(float{}, std::integral_constant<int, 1>());
}

Norm norm_of(const NormArgs& args, const TensorView& x, const TensorView& weight, const TensorView& bias, const TensorView& out,
             const TensorView& mean, const TensorView& rstd) {
  return {x,           weight,        bias,       out,      mean,         rstd, args.rows * args.groups, args.channels * args.inner,
          args.groups, args.channels, args.inner, args.eps, args.centered};
}
int64_t run_of(const NormArgs& a) { return a.inner == 1 ? a.channels : a.inner; }

}  // namespace

void normalize(const Queue& q, const NormArgs& args, const TensorView& x, const TensorView& weight, const TensorView& bias,
               const TensorView& out, const TensorView& mean, const TensorView& rstd) {
  const Norm a = norm_of(args, x, weight, bias, out, mean, rstd);
  if (a.slices == 0) return;
  for_rows_of(a, reads_some(kPack, {&x, &weight, &bias, &out}, run_of(args)), [&](auto type, auto pack, auto warps) {
    launch(normalize_kernel<decltype(type), pack.value, warps.value>, row_blocks(a.slices, a.length), kThreads, 0, q.stream, a);
  });
}

void normalize_backward(const Queue& q, const NormArgs& args, const TensorView& grad, const TensorView& x, const TensorView& weight,
                        const TensorView& mean, const TensorView& rstd, const TensorView& dx, const TensorView& dweight,
                        const TensorView& dbias) {
  const Norm a = norm_of(args, x, weight, grad, dx, mean, rstd);
  if (dx && a.slices > 0) {
    for_rows_of(a, reads_some(kPack, {&x, &weight, &grad, &dx}, run_of(args)), [&](auto type, auto pack, auto warps) {
      launch(backward_kernel<decltype(type), pack.value, warps.value>, row_blocks(a.slices, a.length), kThreads, 0, q.stream, a);
    });
  }
  if (!dweight && !dbias) return;
  const int64_t channels = args.groups * args.channels;
  const ChannelSums s{grad, x, mean, rstd, args.rows, channels, args.inner, args.groups, args.channels};
  for (int64_t first = 0; first < channels; first += kChannelsAtOnce)
    channel_sums(q, s, first, channels - first < kChannelsAtOnce ? channels - first : kChannelsAtOnce, dbias, dweight);
}

}  // namespace halfstep::cuda
