// SPDX-License-Identifier: Apache-2.0
// Mean and deviation of pictures, and the Normalize that a config has of its training data by "from": "data".
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "framework/data/transforms/statistics.h"

namespace halfstep {

struct PictureStatistics {
  std::vector<ChannelStatistics> channels;
  int64_t examined = 0, all = 0;  // samples
  std::vector<double> means() const;
  std::vector<double> deviations() const;  // 1 of a channel that is constant
};
// Returns channel_statistics() of at most 4096 samples, spread evenly, if the samples are pictures in files; of all samples of
// other data. The statistics of pictures are remembered beside those of check_pictures (framework/data/sets/picture_check.h), for
// the same unchanged files read in the same way.
PictureStatistics picture_statistics(const Dataset& data, const std::function<void(int64_t done, int64_t of)>& progress = {});
// Returns the Normalize that gives the training data mean 0 and deviation 1 in each channel, by its picture_statistics. For all
// splits:
//   const auto scale = std::make_shared<NormalizeTransform>(normalize_from(*train));
//   train = transformed(train, {scale}), val = transformed(val, {scale});
NormalizeTransform normalize_from(const Dataset& train);

}  // namespace halfstep
