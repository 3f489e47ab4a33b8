// SPDX-License-Identifier: Apache-2.0
// x: [N, C, in...]; windows of `kernel`; out: [N, C, out...]. For each plane and dimension a sample u in [0, 1) gives the starts
//
//   start(i) = floor((i + u) step) - floor(u step) for i < out - 1,   start(out - 1) = in - kernel,   step = (in - kernel) / (out -
//   1)
//
// and out[o] is the largest element of the window that begins at start(o). One gather reads all windows, and one max reduces them.
#include "framework/ops/window/fractional_pool.h"

#include <cmath>
#include <string_view>
#include <vector>

#include "framework/ops/core/composite.h"
#include "framework/ops/core/registry.h"

namespace halfstep {
namespace {

constexpr const char* kFractionalDoc = "largest element of windows at random steps; made of gather and max";
constexpr OpInfo kFractionalInfo[] = {{.name = "fractional_max_pool2d", .doc = kFractionalDoc},
                                      {.name = "fractional_max_pool3d", .doc = kFractionalDoc}};

struct FractionalPlan {
  std::string_view op;
  int dims;
  Dims in, kernel, out;  // of the spatial dimensions
};

// Returns one entry for each of `dims` dimensions; a single one counts for all.
Dims one_per_dim(std::string_view op, const char* what, const Dims& given, int dims) {
  check<ValueError>(given.size() == 1 || given.size() == dims, op, what, " must have one entry or ", dims, ", got ", given);
  return given.size() == dims ? given : Dims(std::vector<int64_t>(size_t(dims), given[0]));
}

// Checks the arguments and computes the sizes of the output.
FractionalPlan fractional_plan(int dims, const Tensor& x, const Dims& kernel_size, const FractionalMaxPoolOptions& o) {
  FractionalPlan p{.op = kFractionalInfo[dims - 2].name, .dims = dims, .in = {}, .kernel = {}, .out = {}};
  check<ValueError>(x.defined(), p.op, "the input is undefined");
  check<ShapeError>(x.dim() == dims + 1 || x.dim() == dims + 2, p.op, "needs an input of ", dims + 1, " or ", dims + 2,
                    " dimensions, got ", x.shape());
  check<ValueError>(o.output_size.empty() != o.output_ratio.empty(), p.op, "takes exactly one of output_size and output_ratio");
  for (int d = 0; d < dims; ++d) p.in.push_back(x.size(d - dims));
  p.kernel = one_per_dim(p.op, "kernel_size", kernel_size, dims);
  if (!o.output_size.empty()) {
    p.out = one_per_dim(p.op, "output_size", o.output_size, dims);
  } else {
    const size_t n = o.output_ratio.size();
    check<ValueError>(n == 1 || n == size_t(dims), p.op, "output_ratio must have one entry or ", dims, ", got ", n);
    for (int d = 0; d < dims; ++d) {
      const double ratio = o.output_ratio[n == 1 ? 0 : size_t(d)];
      check<ValueError>(ratio > 0 && ratio < 1, p.op, "output_ratio must lie in (0, 1), got ", ratio);
      p.out.push_back(int64_t(std::floor(double(p.in[d]) * ratio)));
    }
  }
  for (int d = 0; d < dims; ++d) {
    check<ValueError>(p.kernel[d] > 0, p.op, "kernel_size must be positive, got ", p.kernel);
    check<ShapeError>(p.out[d] > 0 && p.kernel[d] <= p.in[d] && p.out[d] <= p.in[d] - p.kernel[d] + 1, p.op, "output_size ", p.out,
                      " and kernel_size ", p.kernel, " do not fit an input of ", x.shape(),
                      Help{"output_size + kernel_size - 1 is at most the input's size"});
  }
  return p;
}

// Returns the starts of the windows in dimension d, [planes, out]. u: [planes], float32 or float64, whose rounding decides as in
// PyTorch.
Tensor starts(const FractionalPlan& p, int d, const Tensor& u) {
  const int64_t out = p.out[d], room = p.in[d] - p.kernel[d];
  const Tensor last = full({u.size(0), 1}, room, {.dtype = DType::i64, .device = u.device()});
  if (out == 1) return last;
  double step = double(room) / double(out - 1);
  if (u.dtype() == DType::f32) step = double(float(room) / float(out - 1));
  const Tensor i = arange(out - 1).to(u.device()).to(u.dtype()), at = u.unsqueeze(1);
  return cat({floor((i + at) * step) - floor(at * step), last.to(u.dtype())}, 1).to(DType::i64);
}

// Returns the index in the input's plane of each element of each window, [planes, out..., kernel...].
Tensor window_indices(const FractionalPlan& p, const Tensor& samples) {
  Tensor at;
  for (int d = 0; d < p.dims; ++d) {
    const Tensor u = samples.select(1, p.dims == 2 ? 1 - d : d);
    const Tensor offsets = arange(p.kernel[d]).to(u.device());
    Shape shape{samples.size(0)};
    for (int k = 0; k < 2 * p.dims; ++k) shape.push_back(1);
    shape[1 + d] = p.out[d];
    shape[1 + p.dims + d] = p.kernel[d];
    const Tensor along = (starts(p, d, u).unsqueeze(2) + offsets).reshape(shape);
    at = at.defined() ? at * p.in[d] + along : along;
  }
  return at;
}

// Returns the largest elements and their indices in the planes of x.
std::pair<Tensor, Tensor> pool(int dims, const Tensor& x, const Dims& kernel_size, const FractionalMaxPoolOptions& o) {
  const FractionalPlan p = fractional_plan(dims, x, kernel_size, o);
  const bool batched = x.dim() == dims + 2;
  const int64_t n = batched ? x.size(0) : 1, channels = x.size(batched ? 1 : 0), planes = n * channels;
  const Shape wanted{n, channels, dims};
  const DType dtype = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
  Tensor samples = o.random_samples;
  if (samples.defined()) {
    check<ShapeError>(samples.shape() == wanted, p.op, "random_samples must be ", wanted, ", got ", samples.shape());
    check<DTypeError>(samples.is_floating_point(), p.op, "random_samples must be floating, got ", samples.dtype());
    check_same_device(p.op, {x, samples});
    samples = samples.detach().to(dtype);
  } else {
    samples = rand(wanted, {.dtype = dtype, .device = x.device()}, o.generator);
  }
  int64_t size = 1, window = 1;
  Shape out = batched ? Shape{n, channels} : Shape{channels};
  for (int d = 0; d < dims; ++d) size *= p.in[d], window *= p.kernel[d], out.push_back(p.out[d]);
  Tensor indices;
  const Tensor values = composite(kFractionalInfo[dims - 2], {x}, [&](const Tensors& in) {
    const Tensor at =
        window_indices(p, samples.reshape({planes, dims})).reshape({planes, planes == 0 ? 0 : numel(out) / planes, window});
    const Tensor elements = gather(in[0].reshape({planes, size}), 1, at.flatten(1));
    const auto [largest, which] = max(elements.reshape(at.shape()), 2);
    indices = gather(at, 2, which.unsqueeze(2)).reshape(out);
    return largest.reshape(out);
  });
  return {values, indices};
}

FractionalMaxPoolOptions fractional_options(Args& a) {
  return {.output_size = a.ints("output_size", Dims()),
          .output_ratio = a.numbers("output_ratio", std::vector<double>()),
          .random_samples = a.tensor_or_none(1)};
}

}  // namespace

Tensor fractional_max_pool2d(const Tensor& x, const Dims& kernel_size, const FractionalMaxPoolOptions& options) {
  return pool(2, x, kernel_size, options).first;
}
Tensor fractional_max_pool3d(const Tensor& x, const Dims& kernel_size, const FractionalMaxPoolOptions& options) {
  return pool(3, x, kernel_size, options).first;
}
std::pair<Tensor, Tensor> fractional_max_pool2d_with_indices(const Tensor& x, const Dims& kernel_size,
                                                             const FractionalMaxPoolOptions& options) {
  return pool(2, x, kernel_size, options);
}
std::pair<Tensor, Tensor> fractional_max_pool3d_with_indices(const Tensor& x, const Dims& kernel_size,
                                                             const FractionalMaxPoolOptions& options) {
  return pool(3, x, kernel_size, options);
}

void add_fractional_pool(OpList& list) {
  for (int dims = 2; dims <= 3; ++dims) {
    list.add(kFractionalInfo[dims - 2], [dims](Args& a) {
      const Tensor x = a.tensor(0);
      const FractionalMaxPoolOptions o = fractional_options(a);
      const auto [values, indices] = pool(dims, x, a.ints("kernel_size"), o);
      return a.flag("return_indices", false) ? Tensors{values, indices} : Tensors{values};
    });
  }
}

}  // namespace halfstep
