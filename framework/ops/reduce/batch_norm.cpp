// SPDX-License-Identifier: Apache-2.0
// Batch normalisation: dx = rstd (gw - mean(gw) - xhat mean(gw xhat)) as in normalization.cpp; in evaluation the statistics are
// constants, and dx = rstd gw.
#include <utility>

#include "framework/autograd/recompute.h"
#include "framework/ops/core/composite.h"
#include "framework/ops/core/promotion.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/elementwise/formulas.h"
#include "framework/ops/reduce/averaged_weights.h"
#include "framework/ops/reduce/norm_parts.h"
#include "framework/ops/reduce/normalization.h"

namespace halfstep {
namespace {

struct BatchNormOp {
  static constexpr OpInfo kInfo{
      .name = "batch_norm",
      .doc =
          "(x - mean) / sqrt(var + eps) * weight + bias for each channel; statistics of the batch or running ones; optionally "
          "ReLU of it in the same pass"};
  struct Attr {
    BatchNormArgs args;
    Tensor batches = {};          // not an input, because no result depends on it
    const OpInfo* info = &kInfo;  // or of an op that normalises as this one does

    // Returns the arguments for a format: in channels_last, pixels, whose channels lie side by side, are samples of one pixel each.
    BatchNormArgs args_in(MemoryFormat format) const {
      BatchNormArgs out = args;
      if (format == MemoryFormat::channels_last) out.batch *= std::exchange(out.inner, 1);
      return out;
    }
  };
  static const OpInfo& info_of(const Attr& attr) { return *attr.info; }

  enum Saved : size_t { kX, kRunningMean, kRunningVar, kWeight, kBias, kMean, kRstd };  // the inputs, then the statistics
  static void check(const Attr& attr, const Tensors& in) {
    const std::string_view op = attr.info->name;
    check_floating(op, {in[0]});
    constexpr std::string_view kNames[] = {"", "running_mean", "running_var", "weight", "bias"};
    for (size_t i = 1; i <= kBias; ++i) check_parameter(op, kNames[i], in[i], {attr.args.channels}, in[0].dtype());
    halfstep::check<ValueError>(in[1].defined() == in[2].defined(), op, "running_mean and running_var come together or not at all");
    halfstep::check<ValueError>(attr.args.training || in[1].defined(), op, "needs running_mean and running_var unless training");
  }
  static Attributes describe(const Attr& attr) {
    return {{"eps", attr.args.eps}, {"momentum", attr.args.momentum}, {"training", attr.args.training}, {"relu", attr.args.relu}};
  }
  // Computes y = relu?(norm) or, with a residual, relu(norm + residual), and moves the running statistics.
  static Tensors normalized(const Attr& attr, const Tensors& in, const Tensor& residual) {
    const MemoryFormat format = in[0].format();
    const bool ignores_running = attr.args.training && !moves_statistics();  // training neither reads nor updates them
    const Tensor x = in[0].to(format), running_mean = ignores_running ? Tensor() : dense(in[1]),
                 running_var = ignores_running ? Tensor() : dense(in[2]), w = dense(in[3]), b = dense(in[4]),
                 added = residual.defined() ? residual.to(format) : residual;
    const Tensor y = Tensor::empty(x.shape(), {.dtype = x.dtype(), .device = x.device(), .format = format});
    const Tensor mean = floats({attr.args.channels}, x), rstd = floats({attr.args.channels}, x);
    Backend& backend = backend_for(x.device());
    backend.batch_norm(attr.args_in(format), ordered(x, format), view_of(w), view_of(b), in_memory_order(view_of(added), format),
                       view_of(running_mean), view_of(running_var), view_of(ignores_running ? Tensor() : attr.batches),
                       ordered(y, format), mean.view(), rstd.view());
    if (!attr.args.training)
      AveragedWeights::statistics_used();
    else if (running_mean.defined())
      AveragedWeights::statistics_moved();
    if (attr.args.training && attr.batches.defined() && !ignores_running) attr.batches.bump_version();
    if (attr.args.training && running_mean.defined()) {
      for (const auto& [given, used] : {std::pair{in[1], running_mean}, std::pair{in[2], running_var}}) {
        if (!used.same(given)) backend.copy(used.view(), given.view());
        given.bump_version();
      }
    }
    return {y, mean, rstd};
  }
  // Training normalises by the batch's statistics, so backward does not need the running ones. If saved, they would count as
  // changed after forward, because this call updates them.
  static void save(OpContext& ctx, const Attr& attr, const Tensors& in, const Tensors& made) {
    for (size_t i = 0; i <= kBias; ++i) ctx.save(attr.args.training && (i == kRunningMean || i == kRunningVar) ? Tensor() : in[i]);
    ctx.save(made[1]);
    ctx.save(made[2]);
  }
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const Tensors made = normalized(attr, in, Tensor());
    save(ctx, attr, in, made);
    return made[0];
  }
  // Finds where ReLU was 0 from the values that normalising needs again anyway, so the result need not be saved.
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    const MemoryFormat format = ctx.saved(kX).format();
    const Tensor x = ctx.saved(kX).to(format), w = dense(ctx.saved(kWeight)), g = grads[0].to(format),
                 b = attr.args.relu ? dense(ctx.saved(kBias)) : Tensor();
    const NormGradients d(ctx, x, {attr.args.channels}, kWeight, kBias);
    backend_for(x.device())
        .batch_norm_backward(attr.args_in(format), ordered(g, format), ordered(x, format), view_of(w), view_of(b),
                             ctx.saved(kMean).view(), ctx.saved(kRstd).view(), in_memory_order(view_of(d.dx), format),
                             view_of(d.dweight), view_of(d.dbias));
    return {d.dx, Tensor(), Tensor(), d.dweight, d.dbias};
  }
  static Tensor composite(const Attr& attr, const Tensors& in) {
    const DType computed = widened(in[0].dtype());
    const Shape per_channel{1, attr.args.channels, 1};
    const auto read = [&](const Tensor& t) { return t.to(computed).reshape(per_channel); };
    Tensor x = in[0].to(computed).reshape({attr.args.batch, attr.args.channels, attr.args.inner});
    x = x - (attr.args.training ? mean(x, {0, 2}, true) : read(in[1]));
    Tensor y = x * rsqrt((attr.args.training ? mean(x * x, {0, 2}, true) : read(in[2])) + attr.args.eps);
    if (in[3].defined()) y = y * read(in[3]);
    if (in[4].defined()) y = y + read(in[4]);
    y = y.reshape(in[0].shape()).to(in[0].dtype());
    return attr.args.relu ? relu(y) : y;
  }
};

// relu(batch_norm(x) + residual), where the normalised values are rounded to x's dtype before. The residual, which has x's dtype,
// shape and format, comes behind BatchNormOp's inputs; it has the gradient that enters the normalisation. Of the values between
// nothing is saved.
struct BatchNormAddRelu {
  struct Attr : BatchNormOp::Attr {};
  static constexpr OpInfo info{.name = "batch_norm_add_relu", .doc = "max(batch_norm(x) + residual, 0) in one pass"};
  static constexpr bool kTakesTwoParts = true;  // as add_relu

  enum Input : size_t { kResidual = BatchNormOp::kBias + 1 };
  enum Saved : size_t { kY = BatchNormOp::kRstd + 1 };  // behind what BatchNormOp saves
  static void check(const Attr& attr, const Tensors& in) { BatchNormOp::check(attr, in); }
  static Attributes describe(const Attr& attr) {
    return {{"eps", attr.args.eps}, {"momentum", attr.args.momentum}, {"training", attr.args.training}};
  }
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const Tensors made = BatchNormOp::normalized(attr, in, in[kResidual]);
    BatchNormOp::save(ctx, attr, in, made);
    ctx.save_output(made[0]);
    return made[0];
  }
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, Tensors grads) {
    const Tensor g =
        grads.size() > 1 ? relu_gradient_of_sum(grads[0], grads[1], ctx.saved(kY)) : relu_gradient(grads[0], ctx.saved(kY));
    grads.clear();
    ctx.release(kY);
    Tensors result(kResidual);
    if (ctx.needs(BatchNormOp::kX) || ctx.needs(BatchNormOp::kWeight) || ctx.needs(BatchNormOp::kBias))
      result = grad_enabled() ? recorded(ctx, attr, g) : BatchNormOp::backward(ctx, attr, {g});
    result.push_back(ctx.needs(kResidual) ? g : Tensor());
    return result;
  }
  static Tensor in_simpler_ops(const Attr& attr, const Tensors& in) {
    BatchNormOp::Attr norm = attr;
    norm.info = &BatchNormOp::kInfo;
    return add_relu(call<BatchNormOp>(Tensors(in.begin(), in.begin() + kResidual), norm), in[kResidual]);
  }

 private:
  static Tensors recorded(const BackwardContext& ctx, const Attr& attr, const Tensor& g) {
    Tensors in;
    for (size_t i = 0; i < kResidual; ++i) in.push_back(ctx.saved(i));
    return gradients_through([&](const Tensors& inputs) { return BatchNormOp::composite(attr, inputs); }, std::move(in),
                             [&](size_t i) { return ctx.needs(i); }, {g});
  }
};

// Checks the arguments of a batch normalisation of x.
void check_arguments_of(std::string_view op, const Tensor& x, const Channels& sizes, bool training, double eps,
                        const Tensor& batches) {
  if (batches.defined()) {
    check_same_device(op, {x, batches});
    check<DTypeError>(batches.dtype() == DType::i64, op, "batches must be int64, got ", batches.dtype());
    check<ShapeError>(batches.numel() == 1, op, "batches must be one number, got shape ", batches.shape());
  }
  check<ValueError>(!training || eps > 0, op, "eps must be greater than 0 when training, got ", eps);
  check<ValueError>(!training || sizes.batch * sizes.positions != 1, op,
                    "needs more than 1 value per channel when training, got input ", x.shape(),
                    Help{"leave out a last batch of one sample (drop_last), or take another batch size"});
}

// Returns whether one op computes both, with the result of the two: dtype, shape and format.
bool in_one_pass(const Tensor& x, const Tensor& residual) {
  return x.dim() >= 2 && x.is_floating_point() && residual.dtype() == x.dtype() && residual.shape() == x.shape() &&
         residual.format() == x.format();
}

}  // namespace

bool moves_statistics() { return !TakenStates::recomputing(); }

Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight, const Tensor& bias,
                  bool training, double momentum, double eps, bool relu, const Tensor& batches) {
  // PyTorch's form of an empty batch without channels.
  if (x.dim() == 1 && x.size(0) == 0)
    return batch_norm(x.reshape({0, 0}), running_mean, running_var, weight, bias, training, momentum, eps, relu, batches)
        .reshape({0});
  const Channels sizes("batch_norm", x);
  check_arguments_of("batch_norm", x, sizes, training, eps, batches);
  return call<BatchNormOp>({x, running_mean, running_var, weight, bias},
                           {{sizes.batch, sizes.channels, sizes.positions, eps, momentum, training, relu}, batches});
}

Tensor batch_norm_add_relu(const Tensor& x, const Tensor& residual, const Tensor& running_mean, const Tensor& running_var,
                           const Tensor& weight, const Tensor& bias, bool training, double momentum, double eps,
                           const Tensor& batches) {
  constexpr std::string_view kName = BatchNormAddRelu::info.name;
  check<ValueError>(x.defined() && residual.defined(), kName, "an input is undefined");
  if (!in_one_pass(x, residual))
    return under_name(kName, [&] {
      return add_relu(batch_norm(x, running_mean, running_var, weight, bias, training, momentum, eps, false, batches), residual);
    });
  const Channels sizes(kName, x);
  check_arguments_of(kName, x, sizes, training, eps, batches);
  return call<BatchNormAddRelu>(
      {x, running_mean, running_var, weight, bias, residual},
      {{{sizes.batch, sizes.channels, sizes.positions, eps, momentum, training}, batches, &BatchNormAddRelu::info}});
}

Tensor norm_by_statistics(const OpInfo& info, const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                          const Tensor& bias, double eps) {
  const Channels sizes(info.name, x);
  return call<BatchNormOp>({x, mean, var, weight, bias},
                           {{sizes.batch, sizes.channels, sizes.positions, eps, 0, false}, {}, &info});
}

void add_batch_norm(OpList& list) {
  list.add(BatchNormOp::kInfo, [](Args& a) {
    return batch_norm(a.tensor(0), a.tensor_or_none(1), a.tensor_or_none(2), a.tensor_or_none(3), a.tensor_or_none(4),
                      a.flag("training", false), a.number("momentum", 0.1), a.number("eps", 1e-5), a.flag("relu", false));
  });
  list.add(BatchNormAddRelu::info, [](Args& a) {
    return batch_norm_add_relu(a.tensor(0), a.tensor(1), a.tensor_or_none(2), a.tensor_or_none(3), a.tensor_or_none(4),
                               a.tensor_or_none(5), a.flag("training", false), a.number("momentum", 0.1), a.number("eps", 1e-5));
  });
}

}  // namespace halfstep
