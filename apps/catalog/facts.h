// What is known about a data set before, or without, reading it.
#pragma once

#include <cstdint>
#include <optional>

#include "framework/base/dtype.h"
#include "framework/base/shape.h"

namespace halfstep::app {

enum class Targets : uint8_t { classes, numbers };  // what the outputs of a model are compared with

struct DataFacts {
  Shape input;                  // of one sample
  Shape target;                 // of one sample; [] for classes
  int64_t classes = 0;          // 0: regression
  std::optional<int64_t> size;  // samples

  Targets targets() const { return classes > 0 ? Targets::classes : Targets::numbers; }
  DType target_dtype() const { return classes > 0 ? DType::i64 : DType::f32; }
};

}  // namespace halfstep::app
