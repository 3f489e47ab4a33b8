// SPDX-License-Identifier: Apache-2.0
// A softmax over many classes, of which few are frequent.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "layers/containers/containers.h"
#include "layers/feedforward/linear.h"

namespace halfstep {

struct AdaptiveLogSoftmaxOptions {
  double div_value = 4;
  bool head_bias = false;
  static const OptionList<AdaptiveLogSoftmaxOptions>& list();
};
struct AdaptiveLogSoftmaxResult {
  Tensor output;  // the log-probability of each target, [N]
  Tensor loss;    // minus the mean of output

  template <class F>
  void each_tensor(F&& f) {
    f(output);
    f(loss);
  }
};

// Classes 0 to n_classes - 1 are sorted by falling frequency ("Efficient softmax approximation for GPUs", Grave et al., 2017). The
// head classifies the classes below cutoffs[0] and the clusters between cutoffs; tail i, two Linears without bias and in_features
// / div_value^(i + 1) features between them, classifies within cluster i. For a class in cluster i log p(class) = log
// p_head(cluster i) + log p_tail_i(class). input [N, in_features] and target [N], integers, or [in_features] and []. The host
// reads the number of targets in each cluster. Throws ValueError for cutoffs that do not increase from 1 to below n_classes and
// for a cluster without features, ShapeError and IndexError for inputs that do not fit. Autocast: the products in 16 bits, results
// float32.
class AdaptiveLogSoftmaxWithLoss : public ModuleOf<AdaptiveLogSoftmaxWithLoss> {
 public:
  static const Arguments<int64_t, int64_t>& arguments();
  AdaptiveLogSoftmaxWithLoss(Integer in_features, Integer n_classes, const std::vector<int64_t>& cutoffs,
                             const AdaptiveLogSoftmaxOptions& options = {});
  AdaptiveLogSoftmaxResult forward(const Tensor& input, const Tensor& target);
  Tensor log_prob(const Tensor& input);                                       // [N, in_features] -> [N, n_classes]
  Tensor predict(const Tensor& input) { return argmax(log_prob(input), 1); }  // [N]
  std::string describe() const override { return "AdaptiveLogSoftmaxWithLoss"; }
  Part<Linear> head;
  Part<ModuleList> tail;

 private:
  int64_t in_features_, n_classes_;
  std::vector<int64_t> ends_;  // cutoffs and n_classes
};

}  // namespace halfstep
