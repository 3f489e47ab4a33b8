// SPDX-License-Identifier: Apache-2.0
// Losses. Kernels read 16-bit inputs and compute in float32, so a region casts nothing for them. With g the gradient of the loss:
//
//   cross_entropy   loss_i = -w[t_i] ln softmax(x_i)[t_i] without label smoothing; the mean is divided by the sum of all w[t_i]
//                   dx_i = g w[t_i] (softmax(x_i) - (1 at t_i)), divided like the loss
//   mse_loss        dx = 2 g (x - target), divided by the number of elements for the mean; dtarget = -dx
#include <memory>
#include <utility>

#include "framework/backend/product_rows.h"
#include "framework/base/process_end.h"
#include "framework/ops/core/call.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/core/tensor_option.h"
#include "framework/ops/linalg/products.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {

// Returns the dtype of the loss, which kernels compute in float32 (float64 for f64): that of the input outside a region, as in
// every op, and float32 (`forced`) inside.
DType loss_dtype(DType input, std::optional<DType> forced) { return input == DType::f64 ? input : forced.value_or(input); }

// A gradient that the forward computed beside the loss, for a backward that begins with `seed` as it was then.
struct EarlyGradient {
  Tensor grad, seed;
  uint64_t version = 0;  // of the seed
};

// Makes a gradient of x, with longer rows if a product gave such rows to x: the products that read the gradient need them as well.
Tensor empty_gradient(const Tensor& x, DType dtype) {
  const TensorOptions options{.dtype = dtype, .device = x.device()};
  const bool longer = x.dim() == 2 && x.size(0) > 1 && x.strides()[1] == 1 && x.strides()[0] > x.size(1) &&
                      x.strides()[0] == whole_product_packs(x.size(1));
  return longer ? empty_rows(x.shape(), x.strides()[0], options) : Tensor::empty(x.shape(), options);
}

// Returns the views with which a kernel computes the gradient of x beside the loss; empty unless the seed is given and fits.
LossGradient request_early_gradient(OpContext& ctx, const Tensor& x, const Tensor& loss, const Tensor& seed, bool aligned) {
  if (!ctx.recording() || !x.requires_grad() || !seed.defined() || seed.device() != loss.device() || seed.dtype() != loss.dtype())
    return {};
  const Tensor grad = aligned ? empty_gradient(x, x.dtype()) : Tensor::empty(x.shape(), {.dtype = x.dtype(), .device = x.device()});
  ctx.state = std::make_shared<EarlyGradient>(EarlyGradient{grad, seed, seed.version()});
  return {seed.view(), grad.view()};
}
// Takes that gradient, so that a second backward computes it; undefined unless backward began with the seed.
Tensor take_early_gradient(const BackwardContext& ctx, const Tensor& begun) {
  const auto* held = std::any_cast<std::shared_ptr<EarlyGradient>>(&ctx.state);
  if (!held) return {};
  const EarlyGradient early = std::exchange(**held, {});
  const bool fits =
      ctx.needs(0) && early.grad.defined() && early.grad.dtype() == ctx.grad_dtype(0) && early.seed.storage() == begun.storage();
  return fits && early.version == begun.version() ? early.grad : Tensor();
}

// ---- cross entropy

const char* name(Reduction reduction) {
  return reduction == Reduction::none ? "none" : reduction == Reduction::mean ? "mean" : "sum";
}

struct CrossEntropy {
  struct Attr {
    int64_t ignore_index;
    Reduction reduction;
    double label_smoothing;
    Tensor seed;
    std::optional<DType> dtype = {};
  };
  static constexpr OpInfo info{.name = "cross_entropy",
                               .policy = CastPolicy::f32,
                               .doc = "-ln softmax(logits)[target], weighted and averaged",
                               .reads_half = true,
                               .takes_dtype = true};

  enum Saved : size_t { kLogits, kTarget, kWeight, kLse, kTotal };  // lse: [N], ln sum e^logits; total: [], the divisor of the mean
  static CrossEntropyArgs args(const Attr& attr, const Tensor& logits, const Tensor& target, const Tensor& weight) {
    return {.logits = logits.view(),
            .target = target.view(),
            .weight = weight.defined() ? weight.view() : TensorView{},
            .ignore_index = attr.ignore_index,
            .label_smoothing = attr.label_smoothing,
            .reduction = attr.reduction};
  }
  static Attributes describe(const Attr& attr) {
    return {{"ignore_index", attr.ignore_index}, {"reduction", name(attr.reduction)}, {"label_smoothing", attr.label_smoothing}};
  }
  // in: logits [N, C], target [N], weight [C] or undefined
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const Tensor& x = in[0];
    const TensorOptions wide{.dtype = widened(x.dtype()), .device = x.device()};
    const Tensor loss = Tensor::empty(attr.reduction == Reduction::none ? Shape{x.size(0)} : Shape{}, wide);
    const Tensor lse = Tensor::empty({x.size(0)}, wide), total = Tensor::empty({}, wide);
    const LossGradient gradient =
        attr.reduction == Reduction::none ? LossGradient() : request_early_gradient(ctx, x, loss, attr.seed, true);
    backend_for(x.device()).cross_entropy(args(attr, x, in[1], in[2]), loss.view(), lse.view(), total.view(), gradient);
    for (const Tensor& t : {in[0], in[1], in[2], lse, total}) ctx.save(t);
    return loss.to(loss_dtype(x.dtype(), attr.dtype));
  }
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    const Tensor x = ctx.saved(kLogits), target = ctx.saved(kTarget), weight = ctx.saved(kWeight), lse = ctx.saved(kLse),
                 total = ctx.saved(kTotal);
    if (Tensor dx = take_early_gradient(ctx, grads[0]); dx.defined()) return {dx, Tensor(), Tensor()};
    const Tensor g = grads[0].to(lse.dtype());
    const Tensor dx = empty_gradient(x, ctx.grad_dtype(0));
    backend_for(x.device()).cross_entropy_backward(args(attr, x, target, weight), g.view(), lse.view(), total.view(), dx.view());
    return {dx, Tensor(), Tensor()};
  }
  static Tensor composite(const Attr& attr, const Tensors& in) {
    const Tensor logp = log_softmax(in[0], 1, widened(in[0].dtype()));
    const Tensor nll = nll_loss(logp, in[1], {.weight = in[2], .ignore_index = attr.ignore_index, .reduction = attr.reduction});
    if (attr.label_smoothing == 0) return nll;
    // The smoothed part: the mean over classes of -logp, with class weights, divided like the other part.
    const Tensor valid = ne(in[1], double(attr.ignore_index));
    Tensor smooth = neg(sum(in[2].defined() ? logp * in[2] : logp, {1})) / double(in[0].size(1));
    smooth = where(valid, smooth, 0.0);
    if (attr.reduction != Reduction::none) {
      Tensor divisor = sum(valid.to(logp.dtype()));
      if (in[2].defined()) divisor = sum(where(valid, gather(in[2], 0, where(valid, in[1], 0)), 0.0));
      smooth = sum(smooth);
      if (attr.reduction == Reduction::mean) smooth = smooth / divisor;
    }
    return nll * (1 - attr.label_smoothing) + smooth * attr.label_smoothing;
  }
};

// Throws IndexError for a target outside [0, classes) other than ignore_index.
void check_class_targets(std::string_view op, const Tensor& target, int64_t classes, int64_t ignore_index) {
  const int64_t bad = backend_for(target.device()).check_targets(target.view(), classes, ignore_index);
  if (bad < 0) return;
  fail<IndexError>(op, "target ", target.detach().reshape({-1})[bad].item<int64_t>(), " at position ", bad, " is outside [0, ",
                   classes, ")", Help{"labels must be class indices; use ignore_index for rows without a label"});
}

// Checks classes in dimension 1 (or 0 of a vector), and returns [N, C] / [N] for the kernels.
struct Rows {
  Tensor scores, target;
  Shape target_shape;
};
Rows as_rows(std::string_view op, const Tensor& x, const Tensor& target, int64_t ignore_index, const Tensor& weight) {
  check<ShapeError>(x.dim() >= 1, op, "scores must be [C] or [N, C, ...], got ", x.shape());
  check<DTypeError>(target.dtype() == DType::i64, op, "class targets must be int64, got ", target.dtype());
  Shape expected = x.shape();
  expected.erase(x.dim() == 1 ? 0 : 1);
  check<ShapeError>(target.shape() == expected || (x.dim() == 1 && target.shape() == Shape{1}), op, "target must be ", expected,
                    " to match scores ", x.shape(), ", got ", target.shape());
  const int64_t classes = x.size(x.dim() == 1 ? 0 : 1);
  check<ShapeError>(!weight.defined() || weight.shape() == Shape{classes}, op, "weight must be [", classes, "], got ",
                    weight.defined() ? weight.shape() : Shape{});
  Rows rows{x, target, target.shape()};
  if (x.dim() == 1) rows.scores = x.unsqueeze(0);
  if (x.dim() > 2) {
    Dims order{0};
    for (int d = 2; d < x.dim(); ++d) order.push_back(d);
    order.push_back(1);
    rows.scores = x.permute(order).reshape({-1, classes});
  }
  if (target.dim() != 1) rows.target = target.reshape({-1});
  rows.target = rows.target.contiguous();
  check_class_targets(op, rows.target, classes, ignore_index);
  return rows;
}

// ---- mean squared error

struct Mse {
  struct Attr {
    Reduction reduction;
    Tensor seed;
    std::optional<DType> dtype = {};
  };
  static constexpr OpInfo info{.name = "mse_loss",
                               .policy = CastPolicy::f32,
                               .doc = "(x - target)^2, averaged, summed or unreduced",
                               .reads_half = true,
                               .takes_dtype = true};

  enum Saved : size_t { kX, kTarget };
  static Attributes describe(const Attr& attr) { return {{"reduction", name(attr.reduction)}}; }
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const DType input = promote(in[0].dtype(), in[1].dtype());
    ctx.save(in[0]);
    ctx.save(in[1]);
    const Tensor loss = Tensor::empty({}, {.dtype = widened(input), .device = in[0].device()});
    backend_for(in[0].device())
        .mse(in[0].view(), in[1].view(), attr.reduction, loss.view(), request_early_gradient(ctx, in[0], loss, attr.seed, false));
    return loss.to(loss_dtype(input, attr.dtype));
  }
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    const Tensor x = ctx.saved(kX), t = ctx.saved(kTarget);
    const Tensor g = grads[0].to(widened(promote(x.dtype(), t.dtype())));
    Tensors result{take_early_gradient(ctx, grads[0]), Tensor()};
    for (size_t i = 0; i < 2; ++i) {
      if (!ctx.needs(i) || result[i].defined()) continue;
      result[i] = Tensor::empty(x.shape(), {.dtype = ctx.grad_dtype(i), .device = x.device()});
      backend_for(x.device()).mse_backward(x.view(), t.view(), g.view(), attr.reduction, i == 0 ? 1.0 : -1.0, result[i].view());
    }
    return result;
  }
  static Tensor composite(const Attr& attr, const Tensors& in) {
    const Tensor squares = square(in[0] - in[1]);
    return attr.reduction == Reduction::mean ? mean(squares) : sum(squares);
  }
};

// Returns the info of an op that is computed by others, which need the casts that its kernel would do by itself.
constexpr OpInfo made_of_ops(OpInfo info) {
  info.reads_half = false;
  return info;
}

// Computes the loss against probabilities of logits' shape: -sum of w p log_softmax(logits) over the classes.
Tensor probability_cross_entropy(const Tensor& logits, const Tensor& target, const Tensor& weight,
                                 const CrossEntropyOptions& options) {
  check<ShapeError>(target.shape() == logits.shape(), "cross_entropy", "probability targets must have the logits' shape ",
                    logits.shape(), ", got ", target.shape());
  check<ValueError>(options.ignore_index < 0, "cross_entropy", "ignore_index is for class targets, not for probabilities, got ",
                    options.ignore_index);
  std::array<Tensor, 2> in{logits, target};
  apply_policy(made_of_ops(CrossEntropy::info), in);
  const autocast::Off off;
  const int dim = logits.dim() == 1 ? 0 : 1;
  Tensor p = in[1];
  if (options.label_smoothing > 0) p = p * (1 - options.label_smoothing) + options.label_smoothing / double(logits.size(dim));
  if (weight.defined()) {
    Shape shape = Dims::filled(logits.dim(), 1);
    shape[dim] = -1;
    p = p * weight.to(p.dtype()).reshape(shape);
  }
  const Tensor losses = neg(sum(p * log_softmax(in[0], dim), {dim}));
  if (options.reduction == Reduction::none) return losses;
  return options.reduction == Reduction::sum ? sum(losses) : sum(losses) / double(losses.numel());
}

constexpr OpInfo kNllInfo{
    .name = "nll_loss", .policy = CastPolicy::f32, .doc = "-log_probs[target], weighted and averaged; made of gather and sum"};

template <class O>
Option<O> class_weights() {
  return weight_of<O>("one for each class; left out: all the same");
}
template <class O>
Option<O> ignored_class() {
  return option("ignore_index", &O::ignore_index, "class that the loss ignores");
}
}  // namespace

HALFSTEP_OPTIONS(CrossEntropyOptions, class_weights<O>(), ignored_class<O>(), reduction_of<O>(),
                 option("label_smoothing", &O::label_smoothing, "share spread over all classes").at_least(0).at_most(1))
HALFSTEP_OPTIONS(NllLossOptions, class_weights<O>(), ignored_class<O>(), reduction_of<O>())

Tensor cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options, const Tensor& seed) {
  check_options("cross_entropy", options);
  check<DTypeError>(logits.is_floating_point(), "cross_entropy", "logits must be floating, got ", logits.dtype());
  const Tensor weight = options.weight.defined() ? options.weight.to(widened(logits.dtype())).contiguous() : Tensor();
  if (target.is_floating_point()) return probability_cross_entropy(logits, target, weight, options);
  const Rows rows = as_rows("cross_entropy", logits, target, options.ignore_index, weight);
  const Tensor loss = call<CrossEntropy>({rows.scores, rows.target, weight},
                                         {options.ignore_index, options.reduction, options.label_smoothing, seed});
  return options.reduction == Reduction::none ? loss.reshape(rows.target_shape) : loss;
}

Tensor nll_loss(const Tensor& log_probs, const Tensor& target, const NllLossOptions& options) {
  check<DTypeError>(log_probs.is_floating_point(), "nll_loss", "scores must be floating, got ", log_probs.dtype());
  std::array<Tensor, 1> in{log_probs};
  const bool region = apply_policy(kNllInfo, in);
  if (options.weight.defined()) {
    const DType own = in[0].dtype(), wide = widened(own), given = options.weight.dtype();
    check<DTypeError>(given == own || given == wide || (region && is_half(given) && wide == DType::f32), "nll_loss",
                      "weight must have the scores' dtype, or be float32 beside 16-bit scores; got ", given, " beside ", own);
  }
  const autocast::Off off;
  const Tensor weight = options.weight.defined() ? options.weight.to(in[0].dtype()) : Tensor();
  const Rows rows = as_rows("nll_loss", in[0], target, options.ignore_index, weight);
  const Tensor valid = ne(rows.target, options.ignore_index);
  const Tensor safe = where(valid, rows.target, 0);
  Tensor w = valid.to(in[0].dtype());
  if (weight.defined()) w = w * gather(weight, 0, safe);
  // Uses where and not a product, so that an ignored row gives 0 even if its scores are not finite.
  const Tensor picked = gather(rows.scores, 1, safe.unsqueeze(1)).squeeze(1);
  const Tensor losses = where(valid, neg(picked * w), 0.0);
  if (options.reduction == Reduction::none) return losses.reshape(rows.target_shape);
  return options.reduction == Reduction::sum ? sum(losses) : sum(losses) / sum(w);
}

Tensor mse_loss(const Tensor& given_x, const Tensor& given_target, LossReduction reduction, const Tensor& seed) {
  check_one_shape("mse_loss", given_x.shape(), given_target.shape());
  // A number is compared with every element.
  const bool x_is_number = given_x.shape() != given_target.shape() && given_x.dim() == 0;
  const bool target_is_number = given_x.shape() != given_target.shape() && given_target.dim() == 0;
  const Tensor x = x_is_number ? given_x.expand(given_target.shape()).contiguous() : given_x;
  const Tensor target = target_is_number ? given_target.expand(given_x.shape()).contiguous() : given_target;
  check<DTypeError>(x.is_floating_point() && target.is_floating_point(), "mse_loss", "input and target must be floating, got ",
                    x.dtype(), " and ", target.dtype());
  if (reduction != Reduction::none) return call<Mse>({x, target}, {reduction, seed});
  std::array<Tensor, 2> in{x, target};
  apply_policy(made_of_ops(Mse::info), in);
  const autocast::Off off;
  return square(in[0] - in[1]);
}

void add_losses(OpList& list) {
  list.add(CrossEntropy::info, [](Args& a) {
    CrossEntropyOptions options = a.options<CrossEntropyOptions>();
    options.weight = a.tensor_or_none(2);
    return cross_entropy(a.tensor(0), a.tensor(1), options);
  });
  list.add(Mse::info, [](Args& a) { return mse_loss(a.tensor(0), a.tensor(1), a.reduction()); });
  list.add(kNllInfo, [](Args& a) {
    NllLossOptions options = a.options<NllLossOptions>();
    options.weight = a.tensor_or_none(2);
    return nll_loss(a.tensor(0), a.tensor(1), options);
  });
}

}  // namespace halfstep
