// SPDX-License-Identifier: Apache-2.0
// Types that exist in C++ only, by kind: they need more than the one tensor that a config passes from layer to layer.
#include <map>

#include "apps/schema/schema.h"

namespace halfstep::app {

std::vector<std::string> cpp_only_components(const std::string& what) {
  static const std::map<std::string, std::vector<std::string>> all = {
      {"layer",
       {"Bilinear", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d", "TransformerDecoderLayer", "TransformerDecoder", "Transformer",
        "AdaptiveLogSoftmaxWithLoss", "PairwiseDistance", "CosineSimilarity", "FractionalMaxPool2d", "FractionalMaxPool3d"}},
      {"loss",
       {"CosineEmbeddingLoss", "MarginRankingLoss", "TripletMarginLoss", "TripletMarginWithDistanceLoss", "GaussianNLLLoss"}},
  };
  const auto found = all.find(what);
  return found == all.end() ? std::vector<std::string>{} : found->second;
}

}  // namespace halfstep::app
