// SPDX-License-Identifier: Apache-2.0
// x: [N, C, in...]; windows of `kernel`; out: [N, C, out...]. For each plane and dimension a sample u in [0, 1) gives the starts of
// the windows:
//
//   start(i) = floor((i + u) step) - floor(u step) for i < out - 1,   start(out - 1) = in - kernel
//   step = (in - kernel) / (out - 1)
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
FractionalPlan fractional_plan(int dims, const Tensor& x, const Dims& kernel_size, const FractionalMaxPoolOptions& options) {
  FractionalPlan plan{.op = kFractionalInfo[dims - 2].name, .dims = dims, .in = {}, .kernel = {}, .out = {}};
  check<ValueError>(x.defined(), plan.op, "the input is undefined");
  check<ShapeError>(x.dim() == dims + 1 || x.dim() == dims + 2, plan.op, "needs an input of ", dims + 1, " or ", dims + 2,
                    " dimensions, got ", x.shape());
  check<ValueError>(options.output_size.empty() != options.output_ratio.empty(), plan.op,
                    "takes exactly one of output_size and output_ratio");
  for (int d = 0; d < dims; ++d) plan.in.push_back(x.size(d - dims));
  plan.kernel = one_per_dim(plan.op, "kernel_size", kernel_size, dims);
  if (!options.output_size.empty()) {
    plan.out = one_per_dim(plan.op, "output_size", options.output_size, dims);
  } else {
    const size_t n = options.output_ratio.size();
    check<ValueError>(n == 1 || n == size_t(dims), plan.op, "output_ratio must have one entry or ", dims, ", got ", n);
    for (int d = 0; d < dims; ++d) {
      const double ratio = options.output_ratio[n == 1 ? 0 : size_t(d)];
      check<ValueError>(ratio > 0 && ratio < 1, plan.op, "output_ratio must lie in (0, 1), got ", ratio);
      plan.out.push_back(int64_t(std::floor(double(plan.in[d]) * ratio)));
    }
  }
  for (int d = 0; d < dims; ++d) {
    check<ValueError>(plan.kernel[d] > 0, plan.op, "kernel_size must be positive, got ", plan.kernel);
    check<ShapeError>(plan.out[d] > 0 && plan.kernel[d] <= plan.in[d] && plan.out[d] <= plan.in[d] - plan.kernel[d] + 1, plan.op,
                      "output_size ", plan.out, " and kernel_size ", plan.kernel, " do not fit an input of ", x.shape(),
                      Help{"output_size + kernel_size - 1 is at most the input's size"});
  }
  return plan;
}

// Returns the starts of the windows in dimension d, [planes, out]. u: [planes], float32 or float64, whose rounding decides as in
// PyTorch.
Tensor starts(const FractionalPlan& plan, int d, const Tensor& u) {
  const int64_t out = plan.out[d], room = plan.in[d] - plan.kernel[d];
  const Tensor last = full({u.size(0), 1}, room, {.dtype = DType::i64, .device = u.device()});
  if (out == 1) return last;
  double step = double(room) / double(out - 1);
  if (u.dtype() == DType::f32) step = double(float(room) / float(out - 1));
  const Tensor i = arange(out - 1).to(u.device()).to(u.dtype()), u_column = u.unsqueeze(1);
  return cat({floor((i + u_column) * step) - floor(u_column * step), last.to(u.dtype())}, 1).to(DType::i64);
}

// Returns the index in the input's plane of each element of each window, [planes, out..., kernel...].
Tensor window_indices(const FractionalPlan& plan, const Tensor& samples) {
  Tensor indices;
  for (int d = 0; d < plan.dims; ++d) {
    const Tensor u = samples.select(1, plan.dims == 2 ? 1 - d : d);
    const Tensor offsets = arange(plan.kernel[d]).to(u.device());
    Shape shape{samples.size(0)};
    for (int k = 0; k < 2 * plan.dims; ++k) shape.push_back(1);
    shape[1 + d] = plan.out[d];
    shape[1 + plan.dims + d] = plan.kernel[d];
    const Tensor along = (starts(plan, d, u).unsqueeze(2) + offsets).reshape(shape);
    indices = indices.defined() ? indices * plan.in[d] + along : along;
  }
  return indices;
}

// Returns the largest elements and their indices in the planes of x.
std::pair<Tensor, Tensor> pool(int dims, const Tensor& x, const Dims& kernel_size, const FractionalMaxPoolOptions& options) {
  const FractionalPlan plan = fractional_plan(dims, x, kernel_size, options);
  const bool batched = x.dim() == dims + 2;
  const int64_t n = batched ? x.size(0) : 1, channels = x.size(batched ? 1 : 0), planes = n * channels;
  const Shape wanted{n, channels, dims};
  const DType dtype = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
  Tensor samples = options.random_samples;
  if (samples.defined()) {
    check<ShapeError>(samples.shape() == wanted, plan.op, "random_samples must be ", wanted, ", got ", samples.shape());
    check<DTypeError>(samples.is_floating_point(), plan.op, "random_samples must be floating, got ", samples.dtype());
    check_same_device(plan.op, {x, samples});
    samples = samples.detach().to(dtype);
  } else {
    samples = rand(wanted, {.dtype = dtype, .device = x.device()}, options.generator);
  }
  int64_t plane_size = 1, window_size = 1;
  Shape out = batched ? Shape{n, channels} : Shape{channels};
  for (int d = 0; d < dims; ++d) plane_size *= plan.in[d], window_size *= plan.kernel[d], out.push_back(plan.out[d]);
  Tensor indices;
  const Tensor values = composite(kFractionalInfo[dims - 2], {x}, [&](const Tensors& in) {
    const Tensor at =
        window_indices(plan, samples.reshape({planes, dims})).reshape({planes, planes == 0 ? 0 : numel(out) / planes, window_size});
    const Tensor elements = gather(in[0].reshape({planes, plane_size}), 1, at.flatten(1));
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
      const FractionalMaxPoolOptions options = fractional_options(a);
      const auto [values, indices] = pool(dims, x, a.ints("kernel_size"), options);
      return a.flag("return_indices", false) ? Tensors{values, indices} : Tensors{values};
    });
  }
}

}  // namespace halfstep
