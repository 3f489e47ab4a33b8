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
  int64_t looked_at = 0, all = 0;  // samples
  std::vector<double> means() const;
  std::vector<double> deviations() const;  // 1 of a channel that is constant
};
// channel_statistics() of at most 4096 samples, spread evenly, of data whose samples are pictures in files; of other data, of all.
// What was found of pictures is remembered beside those that check_pictures knows (framework/data/sets/picture_check.h), for the
// same files, unchanged, and the same way to read them.
PictureStatistics picture_statistics(const Dataset& data, const std::function<void(int64_t done, int64_t of)>& progress = {});
// The Normalize that gives the training data a mean of 0 and a deviation of 1 in each channel, by its picture_statistics. For all
// splits:
//   const auto scale = std::make_shared<NormalizeTransform>(normalize_from(*train));
//   train = transformed(train, {scale}), val = transformed(val, {scale});
NormalizeTransform normalize_from(const Dataset& train);

}  // namespace halfstep
