// SPDX-License-Identifier: Apache-2.0
// With xhat = (x - mean) rstd, rstd = 1 / sqrt(var + eps), gw = g weight, and means over the normalised elements:
//
//   dx = rstd (gw - mean(gw) - xhat mean(gw xhat))     dweight = sum g xhat     dbias = sum g
//
// rms_norm has mean 0, so dx = rstd (gw - xhat mean(gw xhat)).
#include "framework/ops/reduce/normalization.h"

#include <algorithm>
#include <memory>

#include "framework/autograd/column_sums.h"
#include "framework/ops/core/composite.h"
#include "framework/ops/core/promotion.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/reduce/norm_parts.h"

namespace halfstep {
namespace {

// ---- statistics of a group of elements of one sample

struct NormOverGroup {
  enum Kind { layer, rms, group, instance, native };
  struct Attr {
    Kind kind;
    NormArgs args;
    Shape parameter;  // of weight and bias
    std::optional<DType> dtype = {};
    std::shared_ptr<Tensors> statistics = {};  // where to store mean and rstd
    std::optional<DType> rounded = {};         // y's dtype, where it differs from that of the graph
  };
  static constexpr OpInfo kInfo[5] = {
      {.name = "layer_norm",
       .policy = CastPolicy::f32,
       .doc = "(x - mean) / sqrt(var + eps) * weight + bias, over the last dimensions",
       .reads_half = true,
       .takes_dtype = true},
      {.name = "rms_norm",
       .policy = CastPolicy::f32,
       .doc = "x / sqrt(mean(x^2) + eps) * weight, over the last dimensions",
       .reads_half = true,
       .takes_dtype = true},
      {.name = "group_norm",
       .policy = CastPolicy::f32,
       .doc = "as layer_norm, over groups of channels",
       .reads_half = true,
       .takes_dtype = true},
      {.name = "instance_norm", .doc = "as layer_norm, over the positions of each channel; or by running statistics"},
      {.name = "native_layer_norm",
       .policy = CastPolicy::f32,
       .doc = "layer_norm with its mean and 1/sqrt(var + eps)",
       .reads_half = true,
       .takes_dtype = true}};
  static const OpInfo& info_of(const Attr& attr) { return kInfo[attr.kind]; }

  static void check(const Attr& attr, const Tensors& in) {
    const std::string_view op = info_of(attr).name;
    check_floating(op, {in[0]});
    check_parameter(op, "weight", in[1], attr.parameter, in[0].dtype(), attr.dtype.has_value());
    check_parameter(op, "bias", in[2], attr.parameter, in[0].dtype(), attr.dtype.has_value());
  }
  enum Saved : size_t { kX, kWeight, kBias, kMean, kRstd };  // the inputs, then the statistics
  // Returns the format for the kernels, which accept groups of channels in either format. For normalisation over the last
  // dimensions, x is copied to rows, and the result returned in the input's format.
  static MemoryFormat format_of(const Attr& attr, const Tensor& x) {
    return attr.kind == group || attr.kind == instance ? x.format() : MemoryFormat::contiguous;
  }
  // Returns whether a constant channel gives 0: PyTorch's instance_norm reads 1 / sqrt(0) as 0; its other normalisations give NaN.
  static bool zero_of_constant(const Attr& attr) { return attr.kind == instance && attr.args.eps == 0; }
  static Attributes describe(const Attr& attr) {
    return {{"normalized_shape", attr.parameter}, {"groups", attr.args.groups}, {"eps", attr.args.eps}};
  }
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const MemoryFormat format = format_of(attr, in[0]);
    const Tensor x = in[0].to(format), w = dense(in[1]), b = dense(in[2]);
    const DType stored = attr.rounded.value_or(attr.dtype.value_or(x.dtype()));
    const Tensor y = Tensor::empty(x.shape(), {.dtype = stored, .device = x.device(), .format = format});
    const Shape slices{attr.args.rows * attr.args.groups};
    const Tensor mean = attr.args.centered ? floats(slices, x) : Tensor(), rstd = floats(slices, x);
    backend_for(x.device()).normalize(attr.args, x.view(), view_of(w), view_of(b), y.view(), view_of(mean), rstd.view());
    for (const Tensor& t : {in[0], in[1], in[2], mean, rstd}) ctx.save(t);
    if (attr.statistics) *attr.statistics = {mean, rstd};
    return y.to(in[0].format());
  }
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    const MemoryFormat format = format_of(attr, ctx.saved(kX));
    const Tensor x = ctx.saved(kX).to(format), w = dense(ctx.saved(kWeight)), mean = ctx.saved(kMean), rstd = ctx.saved(kRstd),
                 g = grads[0].to(format);
    const NormGradients d(ctx, x, attr.parameter, kWeight, kBias);
    if (x.numel() == 0) {  // kernels loop over the elements of x
      for (const Tensor& t : {d.dweight, d.dbias})
        if (t.defined()) t.fill_(0);
      return {d.dx, d.dweight, d.dbias};
    }
    backend_for(x.device())
        .normalize_backward(attr.args, g.view(), x.view(), view_of(w), view_of(mean), rstd.view(), view_of(d.dx),
                            view_of(d.dweight), view_of(d.dbias));
    return {d.dx.defined() ? d.dx.to(ctx.saved(kX).format()) : d.dx, d.dweight, d.dbias};
  }
  static Tensor composite(const Attr& attr, const Tensors& in) {
    const NormArgs& args = attr.args;
    const DType computed = widened(in[0].dtype());
    Tensor x = in[0].to(computed).reshape({args.rows, args.groups, args.channels, args.inner});
    if (args.centered) x = x - mean(x, {2, 3}, true);
    Tensor var = mean(x * x, {2, 3}, true) + args.eps;
    const Tensor constant = zero_of_constant(attr) ? eq(var, 0.0) : Tensor();
    if (constant.defined()) var = where(constant, 1.0, var);
    Tensor y = x * rsqrt(var);
    if (constant.defined()) y = where(constant, 0.0, y);
    const Shape per_channel{1, args.groups, args.channels, 1};
    if (in[1].defined()) y = y * in[1].to(computed).reshape(per_channel);
    if (in[2].defined()) y = y + in[2].to(computed).reshape(per_channel);
    return y.reshape(in[0].shape()).to(attr.dtype.value_or(in[0].dtype()));
  }
};

// ---- a residual sum and its norm

// Normalises x + branch over the last dimensions. Results: y and the sum, which alone is saved of x and branch.
struct AddNorm {
  struct Attr : NormOverGroup::Attr {};
  static constexpr OpInfo kInfo[2] = {{.name = "add_layer_norm",
                                       .policy = CastPolicy::f32,
                                       .doc = "layer_norm(x + branch), and the sum, in one pass",
                                       .reads_half = true,
                                       .takes_dtype = true},
                                      {.name = "add_rms_norm",
                                       .policy = CastPolicy::f32,
                                       .doc = "rms_norm(x + branch), and the sum, in one pass",
                                       .reads_half = true,
                                       .takes_dtype = true}};
  static const OpInfo& info_of(const Attr& attr) { return kInfo[attr.kind]; }

  enum Input : size_t { kX, kBranch, kInputWeight, kInputBias };
  enum Saved : size_t { kSum, kWeight, kBias, kMean, kRstd };
  static void check(const Attr& attr, const Tensors& in) {
    const std::string_view op = info_of(attr).name;
    check_floating(op, {in[kX], in[kBranch]});
    halfstep::check<ShapeError>(in[kX].shape() == in[kBranch].shape(), op, "x and branch must have one shape, got ", in[kX].shape(),
                                " and ", in[kBranch].shape());
    const DType sum = promote(in[kX].dtype(), in[kBranch].dtype());
    check_parameter(op, "weight", in[kInputWeight], attr.parameter, sum, attr.dtype.has_value());
    check_parameter(op, "bias", in[kInputBias], attr.parameter, sum, attr.dtype.has_value());
  }
  static Attributes describe(const Attr& attr) { return NormOverGroup::describe(attr); }
  static Tensors forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const DType given = promote(in[kX].dtype(), in[kBranch].dtype());
    const DType sum_dtype = is_half(given) ? attr.dtype.value_or(given) : given;
    const DType y_dtype = sum_dtype == DType::f64 ? sum_dtype : attr.dtype.value_or(sum_dtype);
    const Tensor x = in[kX].to(MemoryFormat::contiguous), branch = in[kBranch].to(MemoryFormat::contiguous),
                 w = dense(in[kInputWeight]), b = dense(in[kInputBias]);
    const auto make = [&](DType t) { return Tensor::empty(x.shape(), {.dtype = t, .device = x.device()}); };
    Tensor sum = make(sum_dtype), y = make(attr.rounded.value_or(y_dtype));
    const Tensor mean = attr.args.centered ? floats({attr.args.rows}, sum) : Tensor(), rstd = floats({attr.args.rows}, sum);
    backend_for(x.device())
        .add_normalize(attr.args, x.view(), branch.view(), view_of(w), view_of(b), sum.view(), y.view(), view_of(mean),
                       rstd.view());
    const MemoryFormat format = format_of(x.shape(), {in[kX], in[kBranch]});
    sum = sum.to(format);
    ctx.save_output(sum, 1);
    for (const Tensor& t : {in[kInputWeight], in[kInputBias], mean, rstd}) ctx.save(t);
    return {y.to(format), sum};
  }
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    const Tensor sum = ctx.saved(kSum);
    if (!grads[0].defined()) return {grads[1], grads[1], Tensor(), Tensor()};
    if (grad_enabled()) return recorded(ctx, attr, grads);
    const Tensor x = sum.to(MemoryFormat::contiguous), g = grads[0].to(MemoryFormat::contiguous), w = dense(ctx.saved(kWeight)),
                 mean = ctx.saved(kMean), rstd = ctx.saved(kRstd),
                 residual = grads[1].defined() ? grads[1].to(sum.dtype()).to(MemoryFormat::contiguous) : Tensor();
    const auto make = [&](bool wanted, const Shape& shape, DType t) {
      return wanted ? Tensor::empty(shape, {.dtype = t, .device = x.device()}) : Tensor();
    };
    // The input whose gradient is a copy in its own 16 bits: beside a float32 stream its branch.
    const auto narrower = [&](size_t i) { return ctx.needs(i) && is_half(ctx.grad_dtype(i)) && !is_half(sum.dtype()); };
    const size_t other = narrower(kX) && !narrower(kBranch) ? kX : kBranch;
    const Tensor dx = make(ctx.needs(kX) || ctx.needs(kBranch), x.shape(), sum.dtype()),
                 copy = make(narrower(other), x.shape(), ctx.grad_dtype(other)), &d = copy.defined() ? copy : dx,
                 dweight = make(ctx.needs(kInputWeight), attr.parameter, ctx.grad_dtype(kInputWeight)),
                 dbias = make(ctx.needs(kInputBias), attr.parameter, ctx.grad_dtype(kInputBias));
    Backend& backend = backend_for(x.device());
    if (x.numel() == 0) {  // kernels loop over the elements of x
      for (const Tensor& t : {dweight, dbias})
        if (t.defined()) t.fill_(0);
    } else if (dx.defined()) {
      const bool rows = other == kBranch && attr.parameter.size() == 1;  // for the bias of the Linear that ends the branch
      const std::optional<DType> wanted = rows ? ctx.wanted_column_sums(kBranch, d.dtype(), x.device()) : std::nullopt;
      const Tensor sums = make(wanted.has_value(), attr.parameter, wanted.value_or(DType::f32));
      backend.add_normalize_backward(attr.args, g.view(), view_of(residual), x.view(), view_of(w), view_of(mean), rstd.view(),
                                     dx.view(), view_of(copy), view_of(dweight), view_of(dbias), view_of(sums));
      leave_column_sums(d, sums);
    } else {
      backend.normalize_backward(attr.args, g.view(), x.view(), view_of(w), view_of(mean), rstd.view(), {}, view_of(dweight),
                                 view_of(dbias));
    }
    const auto of = [&](size_t i) { return ctx.needs(i) ? (i == other ? d : dx).to(sum.format()) : Tensor(); };
    return {of(kX), of(kBranch), dweight, dbias};
  }
  // For exports: add and the norm.
  static Tensors in_simpler_ops(const Attr& attr, const Tensors& in) {
    const DType given = promote(in[kX].dtype(), in[kBranch].dtype());
    const Tensor sum = (is_half(given) ? in[kX].to(attr.dtype.value_or(given)) : in[kX]) + in[kBranch];
    return {call<NormOverGroup>({sum, in[kInputWeight], in[kInputBias]}, attr), sum};
  }

 private:
  // Computes the gradients in differentiable ops, through the norm of the saved sum.
  static Tensors recorded(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    const bool needed[] = {ctx.needs(kX) || ctx.needs(kBranch), ctx.needs(kInputWeight), ctx.needs(kInputBias)};
    const Tensors got =
        gradients_through([&](const Tensors& in) { return NormOverGroup::composite(attr, in); },
                          {ctx.saved(kSum), ctx.saved(kWeight), ctx.saved(kBias)}, [&](size_t i) { return needed[i]; }, {grads[0]});
    const Tensor d = needed[0] && grads[1].defined() ? got[0] + grads[1] : got[0];
    return {d, d, got[1], got[2]};
  }
};

// Returns arguments whose rows are the dimensions to the left of the normalised ones.
NormArgs over_last(std::string_view op, const Tensor& x, const Shape& normalized, double eps) {
  check<ValueError>(!normalized.empty(), op, "normalized_shape must have at least one entry");
  const int lead = x.dim() - normalized.size();
  bool fits = lead >= 0;
  for (int d = 0; fits && d < normalized.size(); ++d) fits = x.shape()[lead + d] == normalized[d];
  check<ShapeError>(fits, op, "the input's last dimensions must be normalized_shape ", normalized, ", got ", x.shape());
  NormArgs args{.rows = 1, .groups = 1, .channels = numel(normalized), .inner = 1, .eps = eps};
  for (int d = 0; d < lead; ++d) args.rows *= x.shape()[d];
  return args;
}

NormArgs rms_args(std::string_view op, const Tensor& x, const Shape& normalized, std::optional<double> eps, DType computed) {
  NormArgs args = over_last(op, x, normalized, eps.value_or(computed == DType::f64 ? 0x1p-52 : 0x1p-23));
  args.centered = false;
  return args;
}

// Returns `rounded` where a region would give the norm of x float32, which its reader would cast.
std::optional<DType> in_region(const Tensor& x, std::optional<DType> rounded) {
  if (!rounded || !x.defined() || !autocast::is_enabled(x.device().type) || autocast::any_policies()) return {};
  return is_floating(x.dtype()) && x.dtype() != DType::f64 ? rounded : std::nullopt;
}
Tensor as_read(const Tensor& y, std::optional<DType> rounded) {
  return rounded && y.dtype() == *rounded ? record_rounding(y, DType::f32) : y;
}

void check_defined(std::string_view op, const Tensor& x, const Tensor& branch) {
  check<ValueError>(x.defined() && branch.defined(), op, "an input is undefined");
}

Tensors add_norm(const Tensor& x, const Tensor& branch, const Tensor& weight, const Tensor& bias, const NormOverGroup::Attr& attr,
                 std::optional<DType> rounded) {
  AddNorm::Attr sum_attr{attr};
  sum_attr.rounded = branch.dtype() != DType::f64 ? in_region(x, rounded) : std::nullopt;
  Tensors out = call<AddNorm>({x, branch, weight, bias}, sum_attr);
  out[0] = as_read(out[0], sum_attr.rounded);
  return out;
}

// Updates the running statistics of instance_norm: averages those of the samples over the batch.
void update_running(const Tensor& x, const Channels& sizes, const Tensor& running_mean, const Tensor& running_var,
                    double momentum) {
  const NoGrad quiet;
  const autocast::Off off;
  const Tensor mean = floats({sizes.batch, sizes.channels, 1}, x), var = floats({sizes.batch, sizes.channels, 1}, x);
  const bool last = x.format() == MemoryFormat::channels_last;
  const Strides strides{sizes.channels * sizes.positions, last ? 1 : sizes.positions, last ? sizes.channels : 1};
  backend_for(x.device()).variance(x.detach().to(x.format()).alias(sizes.shape(), strides).view(), 1, mean.view(), var.view());
  const auto update = [&](const Tensor& running, const Tensor& fresh) {
    running.copy_(running.to(fresh.dtype()) * (1 - momentum) + halfstep::mean(fresh, {0, 2}) * momentum);
  };
  update(running_mean, mean);
  update(running_var, var);
}

constexpr OpInfo kResponseInfo{.name = "local_response_norm", .doc = "x / (k + alpha mean(x^2 over neighbouring channels))^beta"};

}  // namespace

Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight, const Tensor& bias, double eps,
                  std::optional<DType> rounded) {
  rounded = in_region(x, rounded);
  return as_read(call<NormOverGroup>(
                     {x, weight, bias},
                     {NormOverGroup::layer, over_last("layer_norm", x, normalized_shape, eps), normalized_shape, {}, {}, rounded}),
                 rounded);
}

Tensors add_layer_norm(const Tensor& x, const Tensor& branch, const Shape& normalized_shape, const Tensor& weight,
                       const Tensor& bias, double eps, std::optional<DType> rounded) {
  check_defined("add_layer_norm", x, branch);
  return add_norm(x, branch, weight, bias,
                  {NormOverGroup::layer, over_last("add_layer_norm", x, normalized_shape, eps), normalized_shape}, rounded);
}

Tensors native_layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight, const Tensor& bias, double eps) {
  const auto statistics = std::make_shared<Tensors>();
  Shape rows = x.shape();
  const Tensor y = call<NormOverGroup>(
      {x, weight, bias},
      {NormOverGroup::native, over_last("native_layer_norm", x, normalized_shape, eps), normalized_shape, {}, statistics});
  for (int d = x.dim() - normalized_shape.size(); d < x.dim(); ++d) rows[d] = 1;
  const DType dtype = weight.defined() ? promote(y.dtype(), weight.dtype()) : y.dtype();
  return {y, (*statistics)[0].reshape(rows).to(dtype), (*statistics)[1].reshape(rows).to(dtype)};
}

Tensor rms_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight, std::optional<double> eps,
                std::optional<DType> rounded) {
  rounded = in_region(x, rounded);
  return as_read(
      call<NormOverGroup>(
          {x, weight, Tensor()},
          {NormOverGroup::rms, rms_args("rms_norm", x, normalized_shape, eps, x.dtype()), normalized_shape, {}, {}, rounded}),
      rounded);
}

Tensors add_rms_norm(const Tensor& x, const Tensor& branch, const Shape& normalized_shape, const Tensor& weight,
                     std::optional<double> eps, std::optional<DType> rounded) {
  check_defined("add_rms_norm", x, branch);
  const DType sum = promote(x.dtype(), branch.dtype());
  return add_norm(x, branch, weight, Tensor(),
                  {NormOverGroup::rms, rms_args("add_rms_norm", x, normalized_shape, eps, sum), normalized_shape}, rounded);
}

Tensor group_norm(const Tensor& x, int64_t num_groups, const Tensor& weight, const Tensor& bias, double eps) {
  const Channels sizes("group_norm", x);
  check<ValueError>(num_groups > 0 && sizes.channels > 0 && sizes.channels % num_groups == 0, "group_norm",
                    "num_groups must divide the ", sizes.channels, " channels of the input ", x.shape(), ", got ", num_groups);
  const int64_t channels = sizes.channels / num_groups;
  check<ValueError>(sizes.batch * channels * sizes.positions != 1, "group_norm", "needs more than 1 value per group, got input ",
                    x.shape());
  return call<NormOverGroup>({x, weight, bias},
                             {NormOverGroup::group, {sizes.batch, num_groups, channels, sizes.positions, eps}, {sizes.channels}});
}

Tensor instance_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
                     const Tensor& bias, bool use_input_stats, double momentum, double eps) {
  const Channels sizes("instance_norm", x);
  check<ValueError>(running_mean.defined() == running_var.defined(), "instance_norm",
                    "running_mean and running_var come together or not at all");
  if (!use_input_stats) {
    check<ValueError>(running_mean.defined(), "instance_norm", "needs running_mean and running_var unless use_input_stats");
    return norm_by_statistics(NormOverGroup::kInfo[NormOverGroup::instance], x, running_mean, running_var, weight, bias, eps);
  }
  check<ValueError>(sizes.positions != 1, "instance_norm", "needs more than 1 position when it takes statistics of the input, got ",
                    x.shape());
  check_same_device("instance_norm", {x, running_mean, running_var});
  check_parameter("instance_norm", "running_mean", running_mean, {sizes.channels}, x.dtype());
  check_parameter("instance_norm", "running_var", running_var, {sizes.channels}, x.dtype());
  const NormOverGroup::Attr attr{NormOverGroup::instance, {sizes.batch, sizes.channels, 1, sizes.positions, eps}, {sizes.channels}};
  Tensor y;
  if (NormOverGroup::zero_of_constant(attr)) {
    NormOverGroup::check(attr, {x, weight, bias});
    y = composite(NormOverGroup::info_of(attr), {x, weight, bias}, [&](const Tensors& in) {
          return NormOverGroup::composite(attr, in);
        }).to(x.dtype());
  } else {
    y = call<NormOverGroup>({x, weight, bias}, attr);
  }
  if (running_mean.defined() && x.numel() > 0 && moves_statistics()) update_running(x, sizes, running_mean, running_var, momentum);
  return y;
}

Tensor local_response_norm(const Tensor& x, int64_t size, double alpha, double beta, double k) {
  check<ValueError>(size > 0, "local_response_norm", "size must be at least 1, got ", size);
  check<ShapeError>(x.dim() >= 3, "local_response_norm", "input must be [N, C, L, ...], got ", x.shape());
  return composite(kResponseInfo, {in_floats(x)}, [&](const Tensors& in) {
    const int64_t channels = x.size(1), before = std::min(size / 2, channels), after = std::min((size - 1) / 2, channels);
    const auto padding = [&](int64_t n) {
      Shape shape = x.shape();
      shape[1] = n;
      return zeros(shape, {.dtype = in[0].dtype(), .device = x.device()});
    };
    const Tensor padded = cat({padding(before), square(in[0]), padding(after)}, 1);
    Tensor total = padded.narrow(1, 0, channels);
    for (int64_t shift = 1; shift <= before + after; ++shift) total = total + padded.narrow(1, shift, channels);
    return in[0] / pow(total * (alpha / double(size)) + k, beta);
  });
}

void add_normalization(OpList& list) {
  list.add(NormOverGroup::kInfo[NormOverGroup::layer], [](Args& a) {
    return layer_norm(a.tensor(0), a.ints("normalized_shape"), a.tensor_or_none(1), a.tensor_or_none(2), a.number("eps", 1e-5));
  });
  list.add(NormOverGroup::kInfo[NormOverGroup::native], [](Args& a) {
    return native_layer_norm(a.tensor(0), a.ints("normalized_shape"), a.tensor_or_none(1), a.tensor_or_none(2), a.number("eps"));
  });
  list.add(NormOverGroup::kInfo[NormOverGroup::rms],
           [](Args& a) { return rms_norm(a.tensor(0), a.ints("normalized_shape"), a.tensor_or_none(1), a.number_or_none("eps")); });
  list.add(AddNorm::kInfo[NormOverGroup::layer], [](Args& a) {
    return add_layer_norm(a.tensor(0), a.tensor(1), a.ints("normalized_shape"), a.tensor_or_none(2), a.tensor_or_none(3),
                          a.number("eps", 1e-5));
  });
  list.add(AddNorm::kInfo[NormOverGroup::rms], [](Args& a) {
    return add_rms_norm(a.tensor(0), a.tensor(1), a.ints("normalized_shape"), a.tensor_or_none(2), a.number_or_none("eps"));
  });
  list.add(NormOverGroup::kInfo[NormOverGroup::group], [](Args& a) {
    return group_norm(a.tensor(0), a.integer("num_groups"), a.tensor_or_none(1), a.tensor_or_none(2), a.number("eps", 1e-5));
  });
  list.add(NormOverGroup::kInfo[NormOverGroup::instance], [](Args& a) {
    return instance_norm(a.tensor(0), a.tensor_or_none(1), a.tensor_or_none(2), a.tensor_or_none(3), a.tensor_or_none(4),
                         a.flag("use_input_stats", true), a.number("momentum", 0.1), a.number("eps", 1e-5));
  });
  list.add(kResponseInfo, [](Args& a) {
    return local_response_norm(a.tensor(0), a.integer("size"), a.number("alpha", 1e-4), a.number("beta", 0.75), a.number("k", 1));
  });
}

}  // namespace halfstep
