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
// channel_statistics() of at most 4096 samples, spread evenly, of data whose samples are pictures in files; of other data, of all.
// What was found of pictures is remembered beside those that check_pictures knows (framework/data/sets/picture_check.h), for the
// same files, unchanged, and the same way to read them.
PictureStatistics picture_statistics(const Dataset& data, const std::function<void(int64_t done, int64_t of)>& progress = {});

}  // namespace halfstep
