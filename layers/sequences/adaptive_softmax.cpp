// SPDX-License-Identifier: Apache-2.0
#include "layers/sequences/adaptive_softmax.h"

#include <cmath>

#include "layers/containers/sequential.h"

namespace halfstep {
namespace {
constexpr const char* kAdaptiveSoftmax = "AdaptiveLogSoftmaxWithLoss";
}

HALFSTEP_OPTIONS(AdaptiveLogSoftmaxOptions,
                 option("div_value", &O::div_value, "each cluster is that much narrower than the one before").above(0),
                 option("head_bias", &O::head_bias, "add a bias to the head"))

HALFSTEP_ARGUMENTS(AdaptiveLogSoftmaxWithLoss, argument("in_features", "width of the input").at_least(1),
                   argument("n_classes", "classes, sorted by falling frequency").at_least(1))

AdaptiveLogSoftmaxWithLoss::AdaptiveLogSoftmaxWithLoss(Integer in, Integer classes, const std::vector<int64_t>& cutoffs,
                                                       const AdaptiveLogSoftmaxOptions& o)
    : in_features_(in), n_classes_(classes), ends_(cutoffs) {
  const int64_t in_features = in, n_classes = classes;
  check_arguments(kAdaptiveSoftmax, arguments(), in_features, n_classes);
  check<ValueError>(!cutoffs.empty(), kAdaptiveSoftmax, "needs a cutoff, got none");
  check_options(kAdaptiveSoftmax, o);
  int64_t last = 0;
  for (int64_t c : cutoffs) {
    check<ValueError>(c > last && c < n_classes, kAdaptiveSoftmax, "cutoffs must grow from 1 to less than n_classes, ", n_classes,
                      ", got ", c, " after ", last);
    last = c;
  }
  ends_.push_back(n_classes);
  const int64_t clusters = int64_t(cutoffs.size());
  head = add("head", Linear(in_features, ends_[0] + clusters, o.head_bias));
  tail = add("tail", ModuleList());
  for (int64_t i = 0; i < clusters; ++i) {
    const int64_t between = int64_t(std::floor(double(in_features) / std::pow(o.div_value, double(i + 1))));
    check<ValueError>(between >= 1, kAdaptiveSoftmax, "cluster ", i, " would have no width: in_features ", in_features,
                      " / div_value ", o.div_value, "^", i + 1);
    tail->push_back(
        Sequential{Linear(in_features, between, false), Linear(between, ends_[size_t(i) + 1] - ends_[size_t(i)], false)});
  }
}

AdaptiveLogSoftmaxResult AdaptiveLogSoftmaxWithLoss::forward(const Tensor& input, const Tensor& target) {
  const bool batched = target.dim() == 1;
  check<ShapeError>((batched || target.dim() == 0) && input.dim() == target.dim() + 1 && input.size(-1) == in_features_ &&
                        (!batched || input.size(0) == target.size(0)),
                    kAdaptiveSoftmax, "needs [N, in_features] and [N], or [in_features] and [], with in_features ", in_features_,
                    ", got ", input.shape(), " and ", target.shape());
  check<DTypeError>(target.dtype() == DType::i64 || target.dtype() == DType::i32, kAdaptiveSoftmax,
                    "targets must be int64 or int32, got ", target.dtype());
  const Tensor x = batched ? input : input.unsqueeze(0), wanted = (batched ? target : target.unsqueeze(0)).to(DType::i64);
  if (!wanted.device().is_meta() && wanted.numel() > 0) {
    const auto [least, most] = aminmax(wanted);
    const int64_t low = least.item<int64_t>(), high = most.item<int64_t>();
    check<IndexError>(low >= 0 && high < n_classes_, kAdaptiveSoftmax, "targets must lie in [0, ", n_classes_, "), got ",
                      low < 0 ? low : high);
  }
  Tensor place = wanted;  // index in the head: a frequent class's own, else its cluster's
  for (size_t i = 0; i + 1 < ends_.size(); ++i)
    place = where(wanted >= ends_[i],
                  scalar(ends_[0] + int64_t(i), {.dtype = DType::i64, .device = wanted.device()}), place);
  Tensor output = gather(log_softmax(head(x), 1), 1, place.unsqueeze(1)).squeeze(1);
  for (size_t i = 0; i + 1 < ends_.size(); ++i) {
    const Tensor rows = nonzero(logical_and(wanted >= ends_[i], wanted < ends_[i + 1])).select(1, 0);
    if (rows.numel() == 0) continue;
    const Tensor in_cluster = log_softmax(tail[i](index_select(x, 0, rows)), 1);
    const Tensor place_in_cluster = index_select(wanted, 0, rows) - ends_[i];
    output = index_add(output, 0, rows, gather(in_cluster, 1, place_in_cluster.unsqueeze(1)).squeeze(1));
  }
  return {batched ? output : output.squeeze(0), -output.mean()};
}

Tensor AdaptiveLogSoftmaxWithLoss::log_prob(const Tensor& input) {
  check<ShapeError>(input.dim() == 2 && input.size(1) == in_features_, kAdaptiveSoftmax,
                    "needs [N, in_features], with in_features ", in_features_, ", got ", input.shape());
  const Tensor first = log_softmax(head(input), 1);
  Tensors parts{first.narrow(1, 0, ends_[0])};
  for (size_t i = 0; i + 1 < ends_.size(); ++i)
    parts.push_back(log_softmax(tail[i](input), 1) + first.narrow(1, ends_[0] + int64_t(i), 1));
  return cat(parts, 1);
}

}  // namespace halfstep
