// What is known about a data set before, or without, reading it.
#pragma once

#include <cstdint>
#include <optional>

#include "framework/base/shape.h"

namespace halfstep::app {

inline constexpr int64_t kMaxSample = (int64_t(1) << 31) - 1;  // values of a sample, and the width of a layer
inline constexpr double kMaxCount = 1e9;                       // of steps, epochs, samples and the like in a config

struct DataFacts {
  Shape input;                  // of one sample
  Shape target;                 // of one sample; [] for classes
  int64_t classes = 0;          // 0: regression
  std::optional<int64_t> size;  // samples
};

}  // namespace halfstep::app
