// What is known about a data set before, or without, reading it.
#pragma once

#include <cstdint>
#include <optional>

#include "framework/base/shape.h"

namespace halfstep::app {

struct DataFacts {
  Shape input;                  // of one sample
  Shape target;                 // of one sample; [] for classes
  int64_t classes = 0;          // 0: regression
  std::optional<int64_t> size;  // samples
};

}  // namespace halfstep::app
