// SPDX-License-Identifier: Apache-2.0
// A mean is linear: its gradient is an op, which adds each g / divisor to all elements of its window, and whose gradient is the
// mean. A maximum adds its g to the element that was largest.
#include "framework/ops/window/pooling.h"

#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "framework/ops/core/composite.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/index/index_ops.h"
#include "framework/ops/index/indices.h"
#include "framework/ops/ops.h"
#include "framework/ops/window/windows.h"

namespace halfstep {
namespace {

struct PoolAttr {
  PoolArgs args;
  Spatial in{1, 1, 1}, out{1, 1, 1};
};
Attributes describe_pool(const PoolAttr& attr) {
  const int dims = attr.args.window.dims;
  const Attribute in = describe("in", attr.in, dims), out = describe("out", attr.out, dims);
  if (attr.args.adaptive) return {in, out};
  Attributes all = describe(attr.args.window);
  all.emplace_back("count_include_pad", attr.args.count_include_pad);
  all.emplace_back("divisor_override", attr.args.divisor);
  all.push_back(in);
  all.push_back(out);
  return all;
}
Shape planes_of(const Tensor& x, const Spatial& sizes, int dims) { return with_spatial(x.size(0), x.size(1), sizes, dims); }

constexpr const char* kMaxDoc = "the largest element of each window; padding counts as -inf";
constexpr const char* kAvgDoc = "the mean of each window";

struct MaxPool {
  struct Attr : PoolAttr {
    bool indices;  // whether the caller gets the indices
  };
  static constexpr OpInfo kInfo[2][3] = {
      {{.name = "max_pool1d", .doc = kMaxDoc}, {.name = "max_pool2d", .doc = kMaxDoc}, {.name = "max_pool3d", .doc = kMaxDoc}},
      {{.name = "adaptive_max_pool1d", .doc = "the largest element of each of output_size windows that cover the input evenly"},
       {.name = "adaptive_max_pool2d", .doc = "as adaptive_max_pool1d, over two dimensions"},
       {.name = "adaptive_max_pool3d", .doc = "as adaptive_max_pool1d, over three dimensions"}}};
  static const OpInfo& info_of(const Attr& attr) { return kInfo[attr.args.adaptive][attr.args.window.dims - 1]; }

  static Attributes describe(const Attr& attr) { return describe_pool(attr); }
  // Returns the narrowest integers that hold indices used only by the gradient.
  static DType indices_type(const Attr& attr) {
    const int64_t last = attr.in[0] * attr.in[1] * attr.in[2] - 1;
    if (attr.indices || last > std::numeric_limits<int32_t>::max()) return DType::i64;
    return last > std::numeric_limits<int16_t>::max() ? DType::i32 : DType::i16;
  }
  // Returns the values, and the indices if needed.
  static Tensors forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const MemoryFormat format = in[0].format();
    const Tensor x = in[0].to(format);
    const Shape shape = planes_of(x, attr.out, attr.args.window.dims);
    const Tensor out = Tensor::empty(shape, {.dtype = x.dtype(), .device = x.device(), .format = format});
    Tensors result{out};
    if (attr.indices || ctx.recording())
      result.push_back(Tensor::empty(shape, {.dtype = indices_type(attr), .device = x.device(), .format = format}));
    backend_for(x.device()).max_pool(x.view(), attr.args, out.view(), result.size() > 1 ? result[1].view() : TensorView{});
    if (ctx.recording()) {
      ctx.save(result[1]);
      ctx.state = format;
    }
    return result;
  }
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    const Tensor indices = ctx.saved();
    const auto format = std::any_cast<MemoryFormat>(ctx.state);
    const Tensor g = grads[0].to(format);
    const Shape shape = planes_of(g, attr.in, attr.args.window.dims);
    if (grad_enabled()) {
      const int64_t planes = g.size(0) * g.size(1), plane_size = attr.in[0] * attr.in[1] * attr.in[2],
                    positions = attr.out[0] * attr.out[1] * attr.out[2];
      const Tensor no_gradient = zeros({planes, plane_size}, {.dtype = g.dtype(), .device = g.device()});
      return {scatter_add(no_gradient, 1, indices.to(DType::i64).reshape({planes, positions}), g.reshape({planes, positions}))
                  .reshape(shape)};
    }
    const Tensor dx = Tensor::empty(shape, {.dtype = g.dtype(), .device = g.device(), .format = format});
    backend_for(g.device()).max_pool_backward(g.view(), indices.view(), attr.args, dx.view());
    return {dx};
  }
};

struct AvgPool {
  using Attr = PoolAttr;
  static constexpr OpInfo kInfo[2][3] = {
      {{.name = "avg_pool1d", .doc = kAvgDoc}, {.name = "avg_pool2d", .doc = kAvgDoc}, {.name = "avg_pool3d", .doc = kAvgDoc}},
      {{.name = "adaptive_avg_pool1d", .doc = "the mean of each of output_size windows that cover the input evenly"},
       {.name = "adaptive_avg_pool2d", .doc = "as adaptive_avg_pool1d, over two dimensions"},
       {.name = "adaptive_avg_pool3d", .doc = "as adaptive_avg_pool1d, over three dimensions"}}};
  static const OpInfo& info_of(const Attr& attr) { return kInfo[attr.args.adaptive][attr.args.window.dims - 1]; }

  static Attributes describe(const Attr& attr) { return describe_pool(attr); }
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const MemoryFormat format = in[0].format();
    if (ctx.recording()) ctx.state = format;
    const Tensor x = in[0].to(format);
    const Tensor out =
        Tensor::empty(planes_of(x, attr.out, attr.args.window.dims), {.dtype = x.dtype(), .device = x.device(), .format = format});
    backend_for(x.device()).avg_pool(x.view(), attr.args, out.view());
    return out;
  }
  static Tensors backward(const BackwardContext&, const Attr& attr, const Tensors& grads);
};
struct AvgPoolBackward {
  struct Attr : PoolAttr {
    MemoryFormat format;  // of the forward's input
  };
  static constexpr OpInfo info{.name = "avg_pool_backward", .doc = "each value, divided, on all that its window covers"};

  static Attributes describe(const Attr& attr) { return describe_pool(attr); }
  static Tensor forward(OpContext&, const Attr& attr, const Tensors& in) {
    const Tensor g = in[0].to(attr.format);
    const Tensor out = Tensor::empty(planes_of(g, attr.in, attr.args.window.dims),
                                     {.dtype = g.dtype(), .device = g.device(), .format = attr.format});
    backend_for(g.device()).avg_pool_backward(g.view(), attr.args, out.view());
    return out;
  }
  static Tensors backward(const BackwardContext&, const Attr& attr, const Tensors& grads) {
    return {call<AvgPool>({grads[0]}, attr)};
  }
};
Tensors AvgPool::backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
  return {call<AvgPoolBackward>({grads[0]}, {attr, std::any_cast<MemoryFormat>(ctx.state)})};
}

// Throws unless x can be pooled over its last `dims` dimensions.
void check_input(std::string_view op, const Tensor& x, int dims) {
  check<DTypeError>(x.is_floating_point(), op, "input must be floating, got ", x.dtype());
  bool fits = x.dim() == dims + 1 || x.dim() == dims + 2;
  for (int d = x.dim() == dims + 2 ? 1 : 0; fits && d < x.dim(); ++d) fits = x.size(d) > 0;
  check<ShapeError>(fits, op, "input must be [N, C, in...] or [C, in...] with ", dims, " spatial dimension", dims > 1 ? "s" : "",
                    " and no size of 0 but N's, got ", x.shape());
}

// Returns the sizes of the input and the output of sliding windows.
PoolAttr sliding(std::string_view op, const Tensor& x, int dims, const Dims& kernel_size, const MaxPoolOptions& options) {
  check_input(op, x, dims);
  PoolAttr attr;
  const Spatial size = per_dimension(op, "kernel_size", kernel_size, dims, 1);
  attr.args.window =
      window_of(op, dims, size, options.stride.empty() ? kernel_size : options.stride, options.padding, options.dilation);
  const Window& window = attr.args.window;
  for (int d = 0; d < dims; ++d) {
    const auto i = size_t(d);
    const int64_t reach = window.dilation[i] * (window.size[i] - 1) + 1, in = x.size(d - dims);
    check<ValueError>(window.padding[i] <= reach / 2, op, "padding must be at most half the kernel's reach of ", reach, ", got ",
                      window.padding[i]);
    const int64_t room = in + 2 * window.padding[i] - reach;
    int64_t out = room < 0 ? 0 : (room + (options.ceil_mode ? window.stride[i] - 1 : 0)) / window.stride[i] + 1;
    if (room < 0 && options.ceil_mode && room + window.stride[i] - 1 >= 0) out = 1;
    if (options.ceil_mode && (out - 1) * window.stride[i] >= in + window.padding[i]) --out;
    check<ShapeError>(out > 0, op, "a kernel that reaches over ", reach, " elements does not fit input ", x.shape(),
                      " with padding ", window.padding[i], " in spatial dimension ", d);
    attr.in[i] = in;
    attr.out[i] = out;
  }
  return attr;
}

// Returns the sizes of the input and the output of adaptive pooling.
PoolAttr covering(std::string_view op, const Tensor& x, int dims, const OutputSize& output_size) {
  check_input(op, x, dims);
  check<ShapeError>(output_size.size() == 1 || output_size.size() == size_t(dims), op, "output_size must have 1 or ", dims,
                    " entries, got ", output_size.size());
  PoolAttr attr;
  attr.args.window.dims = dims;
  attr.args.adaptive = true;
  for (int d = 0; d < dims; ++d) {
    const auto i = size_t(d);
    attr.in[i] = x.size(d - dims);
    attr.out[i] = output_size[output_size.size() == 1 ? 0 : i].value_or(attr.in[i]);
    check<ValueError>(attr.out[i] >= 0 && attr.out[i] <= kMostWindow, op, "output_size must lie in [0, ", kMostWindow, "], got ",
                      attr.out[i]);
  }
  return attr;
}

std::pair<Tensor, Tensor> run_max(const Tensor& x, const PoolAttr& attr, bool indices) {
  const int dims = attr.args.window.dims;
  const bool unbatched = x.dim() == dims + 1;
  const Tensor batch = unbatched ? x.unsqueeze(0) : x;
  check_size(MaxPool::info_of({attr, indices}).name, planes_of(batch, attr.out, dims));
  const Tensors found = call<MaxPool>({batch}, {attr, indices});
  const auto shaped = [&](const Tensor& t) { return unbatched ? t.squeeze(0) : t; };
  return {shaped(found[0]), indices ? shaped(found[1]) : Tensor()};
}
Tensor run_avg(const Tensor& x, const PoolAttr& attr) {
  return batched(x, attr.args.window.dims + 2, [&](const Tensor& batch) {
    check_size(AvgPool::info_of(attr).name, planes_of(batch, attr.out, attr.args.window.dims));
    return call<AvgPool>({batch}, attr);
  });
}

std::pair<Tensor, Tensor> max_pool(const Tensor& x, int dims, const Dims& kernel_size, const MaxPoolOptions& options,
                                   bool indices) {
  return run_max(x, sliding(MaxPool::kInfo[0][dims - 1].name, x, dims, kernel_size, options), indices);
}
std::pair<Tensor, Tensor> adaptive_max_pool(const Tensor& x, int dims, const OutputSize& size, bool indices) {
  return run_max(x, covering(MaxPool::kInfo[1][dims - 1].name, x, dims, size), indices);
}
Tensor avg_pool(const Tensor& x, int dims, const Dims& kernel_size, const AvgPoolOptions& options) {
  const std::string_view op = AvgPool::kInfo[0][dims - 1].name;
  PoolAttr attr =
      sliding(op, x, dims, kernel_size, {.stride = options.stride, .padding = options.padding, .ceil_mode = options.ceil_mode});
  check<ValueError>(options.divisor_override != 0, op, "divisor_override must not be 0");
  attr.args.count_include_pad = options.count_include_pad;
  attr.args.divisor = options.divisor_override.value_or(0);
  return run_avg(x, attr);
}
Tensor adaptive_avg_pool(const Tensor& x, int dims, const OutputSize& size) {
  return run_avg(x, covering(AvgPool::kInfo[1][dims - 1].name, x, dims, size));
}

constexpr OpInfo kLpInfo[3] = {{.name = "lp_pool1d", .doc = "(sum of x^p over each window)^(1/p); made of avg_pool1d"},
                               {.name = "lp_pool2d", .doc = "(sum of x^p over each window)^(1/p); made of avg_pool2d"},
                               {.name = "lp_pool3d", .doc = "(sum of x^p over each window)^(1/p); made of avg_pool3d"}};
Tensor lp_pool(const Tensor& x, int dims, double p, const Dims& kernel_size, const Dims& stride, bool ceil_mode) {
  const OpInfo& info = kLpInfo[dims - 1];
  check<ValueError>(p != 0 && !std::isnan(p), info.name, "norm_type must not be 0, got ", p);
  if (std::isinf(p)) {  // the largest or smallest absolute value
    constexpr auto kMax = std::array{max_pool1d, max_pool2d, max_pool3d};
    return composite(info, {x}, [&](const Tensors& in) {
      const double sign = p > 0 ? 1 : -1;
      const Tensor most = kMax[size_t(dims - 1)](abs(in[0]) * sign, kernel_size, {.stride = stride, .ceil_mode = ceil_mode});
      return most * sign;
    });
  }
  const PoolAttr attr = sliding(info.name, x, dims, kernel_size, {.stride = stride, .ceil_mode = ceil_mode});
  const Spatial& size = attr.args.window.size;
  return composite(info, {x}, [&](const Tensors& in) {
    const Tensor total = run_avg(pow(in[0], p), attr) * double(size[0] * size[1] * size[2]);
    return pow(where(eq(total, 0.0), 0.0, total), 1 / p);  // as in PyTorch, a total of 0 passes on no gradient
  });
}

constexpr const char* kUnpoolDoc = "zeros, with x where the indices of a max_pool say; made of scatter";
constexpr OpInfo kUnpoolInfo[3] = {{.name = "max_unpool1d", .doc = kUnpoolDoc},
                                   {.name = "max_unpool2d", .doc = kUnpoolDoc},
                                   {.name = "max_unpool3d", .doc = kUnpoolDoc}};
Tensor max_unpool(const Tensor& x, const Tensor& indices, int dims, const Dims& kernel_size, const MaxUnpoolOptions& options) {
  const std::string_view op = kUnpoolInfo[dims - 1].name;
  check_input(op, x, dims);
  check<DTypeError>(indices.dtype() == DType::i64, op, "indices must be int64, got ", indices.dtype());
  check<ShapeError>(indices.shape() == x.shape(), op, "indices must have the input's shape ", x.shape(), ", got ", indices.shape());
  Spatial sizes{1, 1, 1};
  if (options.output_size.empty()) {
    const Window window = window_of(op, dims, per_dimension(op, "kernel_size", kernel_size, dims, 1),
                                    options.stride.empty() ? kernel_size : options.stride, options.padding, {1});
    for (size_t d = 0; d < size_t(dims); ++d)
      sizes[d] = (x.size(int64_t(d) - dims) - 1) * window.stride[d] - 2 * window.padding[d] + window.size[d];
  } else {
    // Accepts sizes of the whole output, or only the spatial ones.
    Dims given = options.output_size;
    while (given.size() > dims) given.erase(0);
    sizes = per_dimension(op, "output_size", given, dims, 1);
  }
  int64_t plane_size = 1;
  Shape out = x.shape();
  for (int d = 0; d < dims; ++d) out[out.size() - dims + d] = sizes[size_t(d)];
  for (int d = 0; d < dims; ++d) check<ShapeError>(sizes[size_t(d)] > 0, op, "the output would be ", out);
  check_size(op, out);
  for (int64_t size : sizes) plane_size *= size;
  const int64_t planes = x.dim() == dims + 1 ? x.size(0) : x.size(0) * x.size(1), positions = planes ? x.numel() / planes : 0;
  const Tensor none = zeros({planes, plane_size}, {.dtype = x.dtype(), .device = x.device()});
  if (planes == 0) return none.reshape(out);
  check_index(op, indices, plane_size);
  const autocast::Off off;
  return scatter(none, 1, indices.reshape({planes, positions}), x.reshape({planes, positions})).reshape(out);
}

// ---- by name

MaxPoolOptions max_options(Args& a) {
  return {.stride = a.ints("stride", Dims()),
          .padding = a.ints("padding", Dims{0}),
          .dilation = a.ints("dilation", Dims{1}),
          .ceil_mode = a.flag("ceil_mode", false)};
}
OutputSize output_size(Args& a) {
  const nlohmann::json* v = a.raw("output_size");
  if (v && !v->is_array()) return {a.integer("output_size")};
  OutputSize sizes;
  check<ValueError>(v != nullptr, a.op(), "argument 'output_size' is missing");
  for (const auto& x : *v) {
    check<ValueError>(x.is_null() || x.is_number_integer(), a.op(), "'output_size' must hold integers and nulls, got ", v->dump());
    sizes.push_back(x.is_null() ? std::nullopt : std::optional(x.get<int64_t>()));
  }
  return sizes;
}
Tensors as_list(const std::pair<Tensor, Tensor>& found) {
  return found.second.defined() ? Tensors{found.first, found.second} : Tensors{found.first};
}

}  // namespace

#define HS_POOLS(dims)                                                                                                      \
  Tensor max_pool##dims##d(const Tensor& x, const Dims& k, const MaxPoolOptions& options) {                                 \
    return max_pool(x, dims, k, options, false).first;                                                                      \
  }                                                                                                                         \
  std::pair<Tensor, Tensor> max_pool##dims##d_with_indices(const Tensor& x, const Dims& k, const MaxPoolOptions& options) { \
    return max_pool(x, dims, k, options, true);                                                                             \
  }                                                                                                                         \
  Tensor avg_pool##dims##d(const Tensor& x, const Dims& k, const AvgPoolOptions& options) {                                 \
    return avg_pool(x, dims, k, options);                                                                                   \
  }                                                                                                                         \
  Tensor adaptive_avg_pool##dims##d(const Tensor& x, const OutputSize& size) { return adaptive_avg_pool(x, dims, size); }   \
  Tensor adaptive_max_pool##dims##d(const Tensor& x, const OutputSize& size) {                                              \
    return adaptive_max_pool(x, dims, size, false).first;                                                                   \
  }                                                                                                                         \
  std::pair<Tensor, Tensor> adaptive_max_pool##dims##d_with_indices(const Tensor& x, const OutputSize& size) {              \
    return adaptive_max_pool(x, dims, size, true);                                                                          \
  }                                                                                                                         \
  Tensor lp_pool##dims##d(const Tensor& x, double p, const Dims& k, const Dims& stride, bool ceil) {                        \
    return lp_pool(x, dims, p, k, stride, ceil);                                                                            \
  }                                                                                                                         \
  Tensor max_unpool##dims##d(const Tensor& x, const Tensor& indices, const Dims& k, const MaxUnpoolOptions& options) {      \
    return max_unpool(x, indices, dims, k, options);                                                                        \
  }
HS_POOLS(1)
HS_POOLS(2)
HS_POOLS(3)
#undef HS_POOLS

void add_pooling(OpList& list) {
  for (int dims = 1; dims <= 3; ++dims) {
    list.add(MaxPool::kInfo[0][dims - 1], [dims](Args& a) {
      const Tensor x = a.tensor(0);
      const Dims kernel = a.ints("kernel_size");
      return as_list(max_pool(x, dims, kernel, max_options(a), a.flag("return_indices", false)));
    });
    list.add(MaxPool::kInfo[1][dims - 1], [dims](Args& a) {
      const Tensor x = a.tensor(0);
      const OutputSize size = output_size(a);
      return as_list(adaptive_max_pool(x, dims, size, a.flag("return_indices", false)));
    });
    list.add(AvgPool::kInfo[0][dims - 1], [dims](Args& a) {
      const Tensor x = a.tensor(0);
      const Dims kernel = a.ints("kernel_size");
      return avg_pool(x, dims, kernel,
                      {.stride = a.ints("stride", Dims()),
                       .padding = a.ints("padding", Dims{0}),
                       .ceil_mode = a.flag("ceil_mode", false),
                       .count_include_pad = a.flag("count_include_pad", true),
                       .divisor_override = a.integer_or_none("divisor_override")});
    });
    list.add(AvgPool::kInfo[1][dims - 1], [dims](Args& a) { return adaptive_avg_pool(a.tensor(0), dims, output_size(a)); });
    list.add(kLpInfo[dims - 1], [dims](Args& a) {
      const Tensor x = a.tensor(0);
      const double p = a.number("norm_type");
      const Dims kernel = a.ints("kernel_size");
      return lp_pool(x, dims, p, kernel, a.ints("stride", Dims()), a.flag("ceil_mode", false));
    });
    list.add(kUnpoolInfo[dims - 1], [dims](Args& a) {
      const Tensor x = a.tensor(0), indices = a.tensor(1);
      const MaxUnpoolOptions options{
          .stride = a.ints("stride", Dims()), .padding = a.ints("padding", Dims{0}), .output_size = a.ints("output_size", Dims())};
      return max_unpool(x, indices, dims, a.ints("kernel_size", options.output_size.empty() ? std::optional<Dims>() : Dims{1}),
                        options);
    });
  }
}

}  // namespace halfstep
