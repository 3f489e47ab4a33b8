// SPDX-License-Identifier: Apache-2.0
// Types that exist in C++ only, by kind: they need more than the one tensor that a config passes from layer to layer; and what a
// config has in place of types and keys of PyTorch.
#include <map>

#include "apps/schema/schema.h"

namespace halfstep::app {

std::vector<std::string> cpp_only_components(const std::string& what) {
  static const std::map<std::string, std::vector<std::string>> types = {
      {"layer",
       {"Bilinear", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d", "TransformerDecoderLayer", "TransformerDecoder", "Transformer",
        "AdaptiveLogSoftmaxWithLoss", "PairwiseDistance", "CosineSimilarity", "FractionalMaxPool2d", "FractionalMaxPool3d"}},
      {"loss",
       {"CosineEmbeddingLoss", "MarginRankingLoss", "TripletMarginLoss", "TripletMarginWithDistanceLoss", "GaussianNLLLoss"}},
  };
  const auto found = types.find(what);
  return found == types.end() ? std::vector<std::string>{} : found->second;
}

std::string in_place_of(const std::string& what, const std::string& type, const std::string& key) {
  struct Row {
    const char *what, *type, *key, *text;  // type "": any; key "": the type itself
  };
  static constexpr const char *kLength = "it lasts for total_steps, which are epochs with \"interval\": \"epoch\"; without, to the "
                                         "end of training",
                              *kMetric = "checkpoint.monitor names the metric, and checkpoint.mode says which values are better",
                              *kFunction = "it takes a function, so it is for C++ only";
  static constexpr Row kRows[] = {
      {"scheduler", "OneCycleLR", "epochs", kLength},
      {"scheduler", "OneCycleLR", "steps_per_epoch", kLength},
      {"scheduler", "ReduceLROnPlateau", "mode", kMetric},
      {"scheduler", "ReduceLROnPlateau", "monitor", kMetric},
      {"scheduler", "ReduceLROnPlateau", "metric", kMetric},
      {"scheduler", "", "last_epoch", "a run that --resume continues has its schedule's place"},
      {"scheduler", "LambdaLR", "", kFunction},
      {"scheduler", "MultiplicativeLR", "", kFunction},
      {"scheduler", "SequentialLR", "", "give a list of schedules, each but the last with a \"length\""},
      {"scheduler", "WarmupLR", "", "each schedule takes warmup_steps"},
      {"scheduler", "Epochs", "", "each schedule takes \"interval\": \"epoch\""},
  };
  for (const Row& r : kRows)
    if (r.what == what && (*r.type == 0 || r.type == type) && r.key == key) return std::string("; ") + r.text;
  return "";
}

}  // namespace halfstep::app
