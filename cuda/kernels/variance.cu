// Mean and variance. As reductions are: the elements of an output are cut into segments by shape alone. A segment is read twice,
// for its mean and for the squares about it, the second time from the cache; segments are joined in double, in order.
#include "cuda/kernels/reduce.cuh"

namespace halfstep::cuda {
namespace {

struct Moments {
  double mean, squares, count;  // squares: sum (x - mean)^2

  // From sums of x - center and (x - center)^2.
  __device__ static Moments about(double center, double sum, double squares, int64_t n) {
    const double rest = squares - sum * sum / double(n);
    return {center + sum / double(n), rest < 0 ? 0 : rest, double(n)};  // a NaN stays
  }
  __device__ void join(const Moments& o) {
    if (o.count == 0) return;
    const double d = o.mean - mean, n = count + o.count;
    mean = count == 0 ? o.mean : mean + d * (o.count / n);
    squares = count == 0 ? o.squares : squares + o.squares + d * d * (count * o.count / n);
    count = n;
  }
};

// Where results go: with several segments, to partials, (mean, squares) segment by segment.
struct Target {
  Operand var, mean;  // mean.data may be null
  double* partials;
  int64_t outputs, count, segments, segment;
  double correction;

  __device__ int64_t begin(int64_t s) const { return s * segment; }
  __device__ int64_t end(int64_t s) const { return (s + 1) * segment < count ? (s + 1) * segment : count; }
  __device__ void finish(const int64_t (&at)[3], const Moments& m) const {
    const double left = double(count) - correction;
    var.store_floating(at[0], m.squares / (left > 0 ? left : 0));
    if (mean.data) mean.store_floating(at[2], count > 0 ? m.mean : double(NAN));
  }
  __device__ void put(int64_t output, int64_t s, const int64_t (&at)[3], const Moments& m) const {
    if (!partials) return finish(at, m);
    partials[2 * (s * outputs + output)] = m.mean;
    partials[2 * (s * outputs + output) + 1] = m.squares;
  }
};

// kept: the outputs (offsets in var, x and mean). Task = output * segments + segment.
template <class C, int Warps>
__global__ void __launch_bounds__(kThreads) moments_of_rows(Scattered<C> x, Space<3> kept, Target target) {
  using Group = RowGroup<Warps>;
  SHARED(double, sums, [kBlockWarps]);
  SHARED(double, squares, [kBlockWarps]);
  const int64_t tasks = kept.numel * target.segments;
  for (int64_t task = Group::first_row(); task < tasks; task += Group::row_step()) {
    const int64_t output = task / target.segments, s = task % target.segments, begin = target.begin(s), end = target.end(s);
    int64_t at[3];
    kept.offsets(output, at);
    C sum = 0, square = 0;
    Group::template each<1>(begin, end, [&](int64_t i, auto) {
      C v[1];
      x.load(at[1], i, v);
      sum += v[0];
    });
    const C center = C(Group::template join<SumJoin>(double(sum), &sums[0]) / double(end - begin));
    sum = 0;
    Group::template each<1>(begin, end, [&](int64_t i, auto) {
      C v[1];
      x.load(at[1], i, v);
      const C d = v[0] - center;
      sum += d;
      square += d * d;
    });
    const double all = Group::template join<SumJoin>(double(sum), &sums[0]);
    const double all_squares = Group::template join<SumJoin>(double(square), &squares[0]);
    if (Group::rank() == 0) target.put(output, s, at, Moments::about(double(center), all, all_squares, end - begin));
  }
}

// Kept elements lie side by side in x: 32 columns a block, its warps' rows joined at the end.
template <class C>
__global__ void __launch_bounds__(kThreads) moments_of_columns(Scattered<C> x, Space<3> kept, Target target) {
  SHARED(double, sums, [kBlockWarps][33]);
  SHARED(double, squares, [kBlockWarps][33]);
  const int column = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const int64_t column_blocks = (kept.numel + 31) / 32;
  for (int64_t task = blockIdx.x; task < column_blocks * target.segments; task += gridDim.x) {
    const int64_t s = task % target.segments, o = task / target.segments * 32 + column, begin = target.begin(s),
                  end = target.end(s);
    const bool inside = o < kept.numel;
    int64_t at[3] = {0, 0, 0};
    if (inside) kept.offsets(o, at);
    C sum = 0, square = 0;
    for (int64_t i = begin + warp; inside && i < end; i += kBlockWarps) {
      C v[1];
      x.load(at[1], i, v);
      sum += v[0];
    }
    __syncthreads();  // the last task's values have been read
    sums[warp][column] = double(sum);
    __syncthreads();
    double all = 0;
    for (int w = 0; w < kBlockWarps; ++w) all += sums[w][column];
    const C center = C(all / double(end - begin));
    sum = 0;
    for (int64_t i = begin + warp; inside && i < end; i += kBlockWarps) {
      C v[1];
      x.load(at[1], i, v);
      const C d = v[0] - center;
      sum += d;
      square += d * d;
    }
    __syncthreads();  // the sums have been read
    sums[warp][column] = double(sum);
    squares[warp][column] = double(square);
    __syncthreads();
    if (warp == 0 && inside) {
      all = 0;
      double all_squares = 0;
      for (int w = 0; w < kBlockWarps; ++w) {
        all += sums[w][column];
        all_squares += squares[w][column];
      }
      target.put(o, s, at, Moments::about(double(center), all, all_squares, end - begin));
    }
  }
}

// A warp an output.
__global__ void __launch_bounds__(kThreads) join_moments(Space<3> kept, Target target) {
  using Group = RowGroup<1>;
  for (int64_t o = Group::first_row(); o < kept.numel; o += Group::row_step()) {
    Moments m{0, 0, 0};
    for (int64_t s = Group::rank(); s < target.segments; s += Group::kSize) {
      const double* p = target.partials + 2 * (s * target.outputs + o);
      m.join({p[0], p[1], double(target.end(s) - target.begin(s))});
    }
#pragma unroll
    for (int bits = 16; bits > 0; bits /= 2) {
      m.join({__shfl_xor_sync(kFullMask, m.mean, bits), __shfl_xor_sync(kFullMask, m.squares, bits),
              __shfl_xor_sync(kFullMask, m.count, bits)});
    }
    if (Group::rank() != 0) continue;
    int64_t at[3];
    kept.offsets(o, at);
    target.finish(at, m);
  }
}

template <class C>
void variance_as(const Queue& q, const TensorView& x, double correction, const TensorView& mean, const TensorView& var) {
  const Strides& mean_strides = mean ? mean.strides : var.strides;
  Shape kept_shape, reduced_shape;
  Strides kept_var, kept_in, kept_mean, reduced_in;
  for (int d = 0; d < x.shape.size(); ++d) {
    const bool goes = var.shape[d] == 1 && x.shape[d] != 1;
    (goes ? reduced_shape : kept_shape).push_back(x.shape[d]);
    (goes ? reduced_in : kept_in).push_back(x.strides[d]);
    if (!goes) kept_var.push_back(var.strides[d]);
    if (!goes) kept_mean.push_back(mean_strides[d]);
  }
  const Space<3> kept(kept_shape, {&kept_var, &kept_in, &kept_mean});
  const Space<1> reduced(reduced_shape, {&reduced_in});
  const int64_t kept_step = kept.rank > 0 ? kept.strides[1][kept.rank - 1] : 0;
  const int64_t reduced_step = reduced.rank > 0 ? reduced.strides[0][reduced.rank - 1] : 0;
  const auto magnitude = [](int64_t v) { return v < 0 ? -v : v; };
  const bool columns = kept.rank > 0 && reduced.rank > 0 && kept.shape[kept.rank - 1] >= 8 && reduced.numel > 1 &&
                       magnitude(kept_step) < magnitude(reduced_step);
  const Cut cut(reduced.numel, 2 * kept.numel, columns ? 512 : kSegment);
  Target target{var,         mean,      cut.segments > 1 ? q.scratch : nullptr, kept.numel, reduced.numel, cut.segments,
                cut.segment, correction};
  const Scattered<C> elements(x, reduced);
  if (columns) {
    const int64_t blocks = (kept.numel + 31) / 32 * cut.segments;
    launch(moments_of_columns<C>, blocks_for(blocks, 1), kThreads, 0, q.stream, elements, kept, target);
  } else {
    const auto kernel = cut.segment <= kWarpRow ? moments_of_rows<C, 1> : moments_of_rows<C, kBlockWarps>;
    launch(kernel, row_blocks(kept.numel * cut.segments, cut.segment), kThreads, 0, q.stream, elements, kept, target);
  }
  if (cut.segments > 1) launch(join_moments, blocks_for(kept.numel, kBlockWarps), kThreads, 0, q.stream, kept, target);
}

}  // namespace

void variance(const Queue& q, const TensorView& x, double correction, const TensorView& mean, const TensorView& var) {
  if (var.numel() == 0) return;
  x.dtype == DType::f64 ? variance_as<double>(q, x, correction, mean, var) : variance_as<float>(q, x, correction, mean, var);
}

}  // namespace halfstep::cuda
