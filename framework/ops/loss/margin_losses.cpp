// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/loss/margin_losses.h"

#include "framework/ops/core/composite.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/linalg/distances.h"

namespace halfstep {
namespace {

constexpr OpInfo kMarginRanking{.name = "margin_ranking_loss", .policy = CastPolicy::f32, .doc = "max(0, -y (x1 - x2) + margin)"};
constexpr OpInfo kCosineEmbedding{.name = "cosine_embedding_loss",
                                  .policy = CastPolicy::f32,
                                  .doc = "1 - cos(x1, x2), or max(0, cos(x1, x2) - margin) where y is -1"};
constexpr OpInfo kTripletMargin{
    .name = "triplet_margin_loss", .policy = CastPolicy::f32, .doc = "max(0, |a - p| - |a - n| + margin)"};
constexpr OpInfo kMultiMargin{
    .name = "multi_margin_loss", .policy = CastPolicy::f32, .doc = "sum over j != y of max(0, margin - x[y] + x[j])^p / C"};
constexpr OpInfo kMultilabelMargin{.name = "multilabel_margin_loss",
                                   .policy = CastPolicy::f32,
                                   .doc = "sum over targets t and others j of max(0, 1 - x[t] + x[j]) / C"};
constexpr OpInfo kMultilabelSoftMargin{.name = "multilabel_soft_margin_loss",
                                       .policy = CastPolicy::f32,
                                       .doc = "mean over classes of -y ln sigmoid(x) - (1 - y) ln sigmoid(-x)"};

// Returns x as rows [N, C]; [C] is one row.
Tensor as_rows(std::string_view op, const Tensor& x) {
  check_floating(op, {x});
  check<ShapeError>((x.dim() == 1 || x.dim() == 2) && x.size(-1) > 0, op, "input must be [N, C] or [C] with C > 0, got ",
                    x.shape());
  return x.dim() == 1 ? x.unsqueeze(0) : x;
}

// Checks class indices. lowest: 0, or -1 if that marks the end of a list.
void check_classes(std::string_view op, const Tensor& target, int64_t classes, int64_t lowest = 0) {
  check<DTypeError>(target.dtype() == DType::i64, op, "target must be int64, got ", target.dtype());
  const Tensor from_zero = lowest == 0 ? target : target - lowest;
  const int64_t bad = backend_for(target.device()).check_indices(from_zero.view(), classes - lowest);
  if (bad >= 0)
    fail<IndexError>(op, "target ", target.detach().reshape({-1})[bad].item<int64_t>(), " at position ", bad, " is outside [",
                     lowest, ", ", classes, ")");
}

}  // namespace

Tensor margin_ranking_loss(const Tensor& x1, const Tensor& x2, const Tensor& y, double margin, LossReduction reduction) {
  for (const Shape& other : {x2.shape(), y.shape()}) check_one_shape("margin_ranking_loss", x1.shape(), other);
  check_one_shape("margin_ranking_loss", x2.shape(), y.shape());
  return composite(kMarginRanking, {in_floats(x1), in_floats(x2), y},
                   [&](const Tensors& in) { return reduce_loss(relu(neg(in[2]) * (in[0] - in[1]) + margin), reduction); });
}

Tensor cosine_embedding_loss(const Tensor& x1, const Tensor& x2, const Tensor& y, double margin, LossReduction reduction) {
  check<ShapeError>((y.dim() == 1 && x1.dim() == 2 && x2.dim() == 2) || (y.dim() == 0 && x1.dim() == 1 && x2.dim() == 1),
                    "cosine_embedding_loss", "inputs must be [N, D] with target [N], or [D] with target [], got ", x1.shape(), ", ",
                    x2.shape(), " and ", y.shape());
  broadcast(broadcast(x1.shape(), x2.shape(), "cosine_embedding_loss"), x1.dim() == 2 ? Shape{y.size(0), 1} : Shape{},
            "cosine_embedding_loss");
  return composite(kCosineEmbedding, {in_floats(x1), in_floats(x2), y}, [&](const Tensors& in) {
    constexpr double kEps = 1e-12;  // added to both squares
    const Tensor &a = in[0], &b = in[1];
    const Tensor cosine = sum(a * b, {-1}) / sqrt((sum(square(a), {-1}) + kEps) * (sum(square(b), {-1}) + kEps));
    const Tensor same = eq(in[2], 1.0), other = eq(in[2], -1.0);
    return reduce_loss(where(same, 1.0 - cosine, where(other, relu(cosine - margin), 0.0)), reduction);
  });
}

HALFSTEP_OPTIONS(TripletMarginOptions, option("margin", &O::margin, "how far apart").above(0),
                 option("p", &O::p, "which norm; 2: the length"), option("eps", &O::eps, "added to each difference"),
                 option("swap", &O::swap, "the negative's distance to the positive counts where it is smaller"), reduction_of<O>())
HALFSTEP_OPTIONS(MultiMarginOptions, option("p", &O::p, "exponent").at_least(1).at_most(2),
                 option("margin", &O::margin, "how far apart"), weight_of<O>("one for each class; left out: all the same"),
                 reduction_of<O>())
HALFSTEP_OPTIONS(MultiLabelSoftMarginLossOptions, weight_of<O>("one for each class; left out: all the same"), reduction_of<O>())

Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletMarginOptions& options) {
  check<ShapeError>(anchor.dim() > 0 && anchor.dim() == positive.dim() && anchor.dim() == negative.dim(), "triplet_margin_loss",
                    "anchor, positive and negative must have one rank of at least 1, got ", anchor.shape(), ", ", positive.shape(),
                    " and ", negative.shape());
  check_options("triplet_margin_loss", options);
  broadcast(broadcast(anchor.shape(), positive.shape(), "triplet_margin_loss"), negative.shape(), "triplet_margin_loss");
  return composite(kTripletMargin, {in_floats(anchor), in_floats(positive), in_floats(negative)}, [&](const Tensors& in) {
    const Tensor to_positive = pairwise_distance(in[0], in[1], options.p, options.eps);
    Tensor to_negative = pairwise_distance(in[0], in[2], options.p, options.eps);
    if (options.swap) to_negative = minimum(to_negative, pairwise_distance(in[1], in[2], options.p, options.eps));
    return reduce_loss(relu(to_positive - to_negative + options.margin), options.reduction);
  });
}

Tensor multi_margin_loss(const Tensor& x, const Tensor& target, const MultiMarginOptions& options) {
  constexpr std::string_view op = kMultiMargin.name;
  const Tensor rows = as_rows(op, x);
  const int64_t classes = rows.size(1);
  check_options(op, options);
  check<ShapeError>(target.dim() <= 1 && target.numel() == rows.size(0), op, "target must be [N] for input [N, C], got ",
                    target.shape(), " and ", x.shape());
  check<ShapeError>(!options.weight.defined() || (options.weight.dim() == 1 && options.weight.size(0) == classes), op,
                    "weight must be [", classes, "], got ", options.weight.defined() ? options.weight.shape() : Shape{});
  check_classes(op, target, classes);
  return composite(kMultiMargin, {rows, target.reshape({-1}), options.weight}, [&](const Tensors& in) {
    const Tensor y = in[1].unsqueeze(1);
    Tensor each = relu(options.margin - in[0].gather(1, y) + in[0]);
    if (options.p == 2) each = square(each);
    if (in[2].defined()) each = each * in[2].to(each.dtype()).gather(0, in[1]).unsqueeze(1);
    const Tensor own = eq(arange(double(classes), {.dtype = DType::i64, .device = y.device()}), y);
    const Tensor losses = sum(where(own, 0.0, each), {1}) / double(classes);
    return reduce_loss(options.reduction == Reduction::none ? losses.reshape(target.shape()) : losses, options.reduction);
  });
}

Tensor multilabel_margin_loss(const Tensor& x, const Tensor& target, LossReduction reduction) {
  constexpr std::string_view op = kMultilabelMargin.name;
  const Tensor rows = as_rows(op, x);
  const int64_t classes = rows.size(1);
  check<ShapeError>(target.shape() == x.shape(), op, "target must have input's shape ", x.shape(), ", got ", target.shape());
  check_classes(op, target, classes, -1);
  return composite(kMultilabelMargin, {rows, target.reshape(rows.shape())}, [&](const Tensors& in) {
    // Targets before the first -1 of their row count. [N, C, C] = [N, target, class].
    const Tensor order = arange(double(classes), {.dtype = DType::i64, .device = x.device()});
    const Tensor ends = where(lt(in[1], 0), order, classes);
    const Tensor counted = lt(order, amin(ends, {1}, true));
    const Tensor classes_of = where(counted, in[1], 0);                                        // of the targets
    const Tensor hit = logical_and(eq(classes_of.unsqueeze(2), order), counted.unsqueeze(2));  // class c is target t
    const Tensor other = logical_and(counted.unsqueeze(2), eq(any(hit, {1}, true), 0.0));
    const Tensor each = relu(1.0 - in[0].gather(1, classes_of).unsqueeze(2) + in[0].unsqueeze(1));
    const Tensor losses = sum(where(other, each, 0.0), {1, 2}) / double(classes);
    return reduce_loss(x.dim() == 1 ? losses.reshape({}) : losses, reduction);
  });
}

Tensor multilabel_soft_margin_loss(const Tensor& x, const Tensor& target, const Tensor& weight, LossReduction reduction) {
  constexpr std::string_view op = kMultilabelSoftMargin.name;
  check_floating(op, {x});
  check<ShapeError>(x.dim() > 0 && target.shape() == x.shape(), op, "target must have input's shape ", x.shape(), ", got ",
                    target.shape());
  if (weight.defined())
    check<ShapeError>(broadcast(x.shape(), weight.shape(), op) == x.shape(), op, "weight ", weight.shape(),
                      " must broadcast to input ", x.shape());
  return composite(kMultilabelSoftMargin, {x, target, weight}, [&](const Tensors& in) {
    Tensor each = neg(in[1] * logsigmoid(in[0]) + (1.0 - in[1]) * logsigmoid(neg(in[0])));
    if (in[2].defined()) each = each * in[2];
    return reduce_loss(mean(each, {-1}), reduction);
  });
}

void add_margin_losses(OpList& list) {
  list.add(kMarginRanking, [](Args& a) {
    return margin_ranking_loss(a.tensor(0), a.tensor(1), a.tensor(2), a.number("margin", 0), a.reduction());
  });
  list.add(kCosineEmbedding, [](Args& a) {
    return cosine_embedding_loss(a.tensor(0), a.tensor(1), a.tensor(2), a.number("margin", 0), a.reduction());
  });
  list.add(kTripletMargin,
           [](Args& a) { return triplet_margin_loss(a.tensor(0), a.tensor(1), a.tensor(2), a.options<TripletMarginOptions>()); });
  list.add(kMultiMargin, [](Args& a) {
    MultiMarginOptions options = a.options<MultiMarginOptions>();
    options.weight = a.tensor_or_none(2);
    return multi_margin_loss(a.tensor(0), a.tensor(1), options);
  });
  list.add(kMultilabelMargin, [](Args& a) { return multilabel_margin_loss(a.tensor(0), a.tensor(1), a.reduction()); });
  list.add(kMultilabelSoftMargin,
           [](Args& a) { return multilabel_soft_margin_loss(a.tensor(0), a.tensor(1), a.tensor_or_none(2), a.reduction()); });
}

}  // namespace halfstep
