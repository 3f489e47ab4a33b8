// SPDX-License-Identifier: Apache-2.0
// Group normalisation of images in channels_last, x [R, L, G C]: R samples of L pixels with G groups of C channels. The formulas
// are those of normalize.cu. A block has a strip of whole groups of a sample, so that neighbouring threads read neighbouring
// channels; a thread has some of its columns, and of these the pixels at a fixed distance. The strip is read twice, the second time
// from the cache.
#include "cuda/kernels/norm/norms.cuh"

namespace halfstep::cuda {
namespace {

constexpr int64_t kStrip = 32;        // least columns of a strip; in 16 bits, two sectors of memory
constexpr int64_t kFewStrips = 128;   // with fewer strips than this, strips have one pack
constexpr int64_t kMostGroups = 32;   // most groups in a strip, as with one channel each
constexpr int64_t kOddChannels = 64;  // groups that are not whole packs are joined below this number of channels

template <class Rows>
struct Images {
  Rows x, grad, out;
  Operand weight, bias, mean, rstd;
  int64_t rows, inner, groups, channels;
  int64_t together;  // groups per strip
  double eps;

  __host__ __device__ int64_t strips() const { return (groups + together - 1) / together; }
};

// A strip, and this thread's part of it: packs of columns (of one group in strips of one group) and every pixels-th pixel.
template <class Rows>
class Strip {
 public:
  using C = typename Rows::Compute;
  static constexpr int kPack = Rows::kPack;

  __device__ Strip(const Images<Rows>& a, int64_t task) : a_(a) {
    const int64_t row = task / a.strips(), group = task % a.strips() * a.together;
    groups_ = int(a.groups - group < a.together ? a.groups - group : a.together);
    slice_ = row * a.groups + group;
    column_ = group * a.channels;
    width_ = groups_ * a.channels;
    first_ = row * a.inner * a.groups * a.channels + column_;
    lanes_ = width_ < kThreads * kPack ? int(width_ / kPack) : kThreads;
    pixels_ = kThreads / lanes_;
    lane_ = int(threadIdx.x) % lanes_;
    pixel_ = int(threadIdx.x) / lanes_;
  }
  __device__ int64_t slice() const { return slice_; }
  __device__ int groups() const { return groups_; }
  // Returns the group of the thread's j-th column.
  __device__ int group(int j) const { return (lane_ * kPack + j) / int(a_.channels); }

  // Calls begin(c) for each pack of columns, where c is the number of the first, and f(at, x) for each of its pixels: x[k] are the
  // elements of in[k] from `at` on. Reads several pixels at a time.
  template <int Batch, int Count, class Begin, class F>
  __device__ void each(const Rows (&in)[Count], const Begin& begin, const F& f) const {
    const int64_t pitch = a_.groups * a_.channels;
    for (int64_t c = lane_ * kPack; pixel_ < pixels_ && c < width_; c += lanes_ * kPack) {
      begin(column_ + c);
      for (int64_t p = pixel_; p < a_.inner; p += pixels_ * Batch) {
        typename Rows::Stored stored[Batch][Count];
#pragma unroll
        for (int b = 0; b < Batch; ++b) {
          if (p + b * pixels_ >= a_.inner) continue;
#pragma unroll
          for (int k = 0; k < Count; ++k) in[k].fetch(first_ + (p + b * pixels_) * pitch, c, stored[b][k]);
        }
#pragma unroll
        for (int b = 0; b < Batch; ++b) {
          if (p + b * pixels_ >= a_.inner) continue;
          C x[Count][kPack];
#pragma unroll
          for (int k = 0; k < Count; ++k) in[k].convert(stored[b][k], x[k]);
          f(first_ + (p + b * pixels_) * pitch + c, x);
        }
      }
    }
  }

  // Sets sums[g] to the sum of value(j) over all threads' columns of group g, in an order that depends only on the shape. All
  // threads must call it. A second call may read what the first left in `sums`: no thread writes there before all have reached the
  // barrier.
  template <class F>
  __device__ void join(double* cells, double* sums, const F& value) const {
    const int span = lanes_ * kPack, per = groups_ == 1 ? span : int(a_.channels), lane = int(threadIdx.x) % 32;
#pragma unroll
    for (int j = 0; j < kPack; ++j)
      cells[pixel_ * span + lane_ * kPack + j] = value(j);  // also by surplus threads, whose cells are not read
    __syncthreads();
    for (int g = int(threadIdx.x) / 32; g < groups_; g += kBlockWarps) {
      double sum = 0;
      for (int k = lane; k < per * pixels_; k += 32) sum += cells[k / per * span + g * per + k % per];
      sum = warp_join<SumJoin>(sum);
      if (lane == 0) sums[g] = sum;
    }
    __syncthreads();
  }

 private:
  const Images<Rows>& a_;
  int64_t slice_, column_, width_, first_;
  int groups_, lanes_, pixels_, lane_, pixel_;
};

template <class Rows>
__global__ void __launch_bounds__(kThreads) normalize_strips(Images<Rows> a) {
  using C = typename Rows::Compute;
  constexpr int kPack = Rows::kPack;
  SHARED(double, cells, [kThreads * kPack]);
  SHARED(double, sums, [kMostGroups]);
  const double n = double(a.channels * a.inner);
  for (int64_t task = blockIdx.x; task < a.rows * a.strips(); task += gridDim.x) {
    const Strip<Rows> strip(a, task);
    const int g = int(threadIdx.x);
    NearSums<C> seen[kPack];
    strip.template each<4>(
        {a.x}, [](int64_t) {},
        [&](int64_t, const auto& x) {
#pragma unroll
          for (int j = 0; j < kPack; ++j) {
            const C one[1] = {x[0][j]};
            seen[j].add(one);
          }
        });
    strip.join(&cells[0], &sums[0], [&](int j) { return seen[j].total(); });
    C m[kPack], r[kPack], w[kPack], b[kPack];
#pragma unroll
    for (int j = 0; j < kPack; ++j) m[j] = C(sums[strip.group(j)] / n);
    if (g < strip.groups()) a.mean.store_floating(strip.slice() + g, sums[g] / n);
    strip.join(&cells[0], &sums[0], [&](int j) { return seen[j].squares_about(sums[strip.group(j)] / n); });
#pragma unroll
    for (int j = 0; j < kPack; ++j) r[j] = C(1 / ::sqrt(sums[strip.group(j)] / n + a.eps));
    if (g < strip.groups()) a.rstd.store_floating(strip.slice() + g, 1 / ::sqrt(sums[g] / n + a.eps));
    strip.template each<4>(
        {a.x},
        [&](int64_t c) {
          load_parameter(a.weight, 0, c, 1, C(1), w);
          load_parameter(a.bias, 0, c, 1, C(0), b);
        },
        [&](int64_t at, auto& x) {
#pragma unroll
          for (int j = 0; j < kPack; ++j) x[0][j] = (x[0][j] - m[j]) * r[j] * w[j] + b[j];
          a.out.store(at, 0, x[0]);
        });
  }
}

// Computes dx = rstd (g w - mean(g w) - xhat mean(g w xhat))
template <class Rows>
__global__ void __launch_bounds__(kThreads) backward_strips(Images<Rows> a) {
  using C = typename Rows::Compute;
  constexpr int kPack = Rows::kPack;
  SHARED(double, cells, [kThreads * kPack]);
  SHARED(double, sums, [kMostGroups]);
  const double n = double(a.channels * a.inner);
  for (int64_t task = blockIdx.x; task < a.rows * a.strips(); task += gridDim.x) {
    const Strip<Rows> strip(a, task);
    C m[kPack], r[kPack], w[kPack], first[kPack] = {}, second[kPack] = {};
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      m[j] = a.mean.template load_floating<C>(strip.slice() + strip.group(j));
      r[j] = a.rstd.template load_floating<C>(strip.slice() + strip.group(j));
    }
    const auto begin = [&](int64_t c) { load_parameter(a.weight, 0, c, 1, C(1), w); };
    strip.template each<2>({a.x, a.grad}, begin, [&](int64_t, const auto& x) {
#pragma unroll
      for (int j = 0; j < kPack; ++j) {
        first[j] += x[1][j] * w[j];
        second[j] += x[1][j] * w[j] * ((x[0][j] - m[j]) * r[j]);
      }
    });
    strip.join(&cells[0], &sums[0], [&](int j) { return double(first[j]); });
#pragma unroll
    for (int j = 0; j < kPack; ++j) first[j] = C(sums[strip.group(j)] / n);
    strip.join(&cells[0], &sums[0], [&](int j) { return double(second[j]); });
#pragma unroll
    for (int j = 0; j < kPack; ++j) second[j] = C(sums[strip.group(j)] / n);
    strip.template each<2>({a.x, a.grad}, begin, [&](int64_t at, auto& x) {
#pragma unroll
      for (int j = 0; j < kPack; ++j) x[0][j] = r[j] * (x[1][j] * w[j] - first[j] - (x[0][j] - m[j]) * r[j] * second[j]);
      a.out.store(at, 0, x[0]);
    });
  }
}

// Returns the least number of groups that fill a strip with whole packs. Depends only on the shape.
int64_t groups_together(const NormArgs& a, int pack) {
  const int64_t least = a.rows * a.groups * a.channels < kFewStrips * kStrip ? pack : kStrip;
  int64_t n = 1;
  while (n < a.groups && (n * a.channels < least || n * a.channels % pack != 0)) ++n;
  return n;
}

// Calls f(Rows*) for the kind of rows that fits these operands.
template <class F>
void for_strips(const NormArgs& a, std::initializer_list<const TensorView*> operands, DType x, const F& f) {
  if (x == DType::f64) return f(static_cast<AnyRows<double>*>(nullptr));
  const bool joins_to_packs = a.channels % kRun == 0 || a.channels < kOddChannels;
  if (joins_to_packs && reads_some(kRun, operands, a.groups * a.channels)) return f(static_cast<RunRows*>(nullptr));
  f(static_cast<AnyRows<float>*>(nullptr));
}

template <class Rows>
Images<Rows> images_of(const NormArgs& a, const TensorView& x, const TensorView& grad, const TensorView& weight,
                       const TensorView& bias, const TensorView& out, const TensorView& mean, const TensorView& rstd) {
  return {Rows(x, 1), Rows(grad, 1), Rows(out, 1), weight,   bias,       mean,
          rstd,       a.rows,        a.inner,      a.groups, a.channels, groups_together(a, Rows::kPack),
          a.eps};
}

}  // namespace

void normalize_channels_last(const Queue& q, const NormArgs& args, const TensorView& x, const TensorView& weight,
                             const TensorView& bias, const TensorView& out, const TensorView& mean, const TensorView& rstd) {
  for_strips(args, {&x, &weight, &bias, &out}, x.dtype, [&](auto* kind) {
    using Rows = std::remove_pointer_t<decltype(kind)>;
    const auto a = images_of<Rows>(args, x, TensorView(), weight, bias, out, mean, rstd);
    launch(normalize_strips<Rows>, blocks_for(a.rows * a.strips(), 1), kThreads, 0, q.stream, a);
  });
}

void normalize_channels_last_backward(const Queue& q, const NormArgs& args, const TensorView& grad, const TensorView& x,
                                      const TensorView& weight, const TensorView& mean, const TensorView& rstd,
                                      const TensorView& dx) {
  for_strips(args, {&grad, &x, &weight, &dx}, x.dtype, [&](auto* kind) {
    using Rows = std::remove_pointer_t<decltype(kind)>;
    const auto a = images_of<Rows>(args, x, grad, weight, TensorView(), dx, mean, rstd);
    launch(backward_strips<Rows>, blocks_for(a.rows * a.strips(), 1), kThreads, 0, q.stream, a);
  });
}

}  // namespace halfstep::cuda
