// SPDX-License-Identifier: Apache-2.0
// Mean and deviation of pictures.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "framework/data/transforms/statistics.h"

namespace halfstep {

struct PictureStatistics {
  std::vector<ChannelStatistics> channels;
  int64_t looked_at = 0, all = 0;  // samples
};
// Returns channel_statistics() of at most 4096 samples, spread evenly, if the samples are pictures in files; of all samples of
// other data. The statistics of pictures are remembered beside those of check_pictures (framework/data/sets/picture_check.h), for
// the same unchanged files read in the same way.
PictureStatistics picture_statistics(const Dataset& data, const std::function<void(int64_t done, int64_t of)>& progress = {});

}  // namespace halfstep
