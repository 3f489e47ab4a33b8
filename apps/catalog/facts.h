// SPDX-License-Identifier: Apache-2.0
// Facts about a data set that are known before, or without, reading it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/dtype.h"
#include "framework/base/shape.h"
#include "framework/data/sets/dataset.h"

namespace halfstep::app {

// The kind of targets. classes: one for each sample, or for each position of it; labels: a row of them, shorter than the output,
// for CTCLoss.
enum class Targets : uint8_t { classes, numbers, labels };

struct DataFacts {
  Shape input;                  // of one sample
  Shape target;                 // of one sample; [] for one class
  int64_t classes = 0;          // 0: regression
  std::optional<int64_t> size;  // samples
  DType input_dtype = DType::f32;
  int64_t vocabulary = 0;        // of i64 inputs: exclusive bound of the tokens
  int64_t streams = 0;           // number of streams of which the samples are pieces, see Dataset
  bool label_sequences = false;  // see Dataset
  DataNotes notes{};             // see Dataset
  int64_t padding = -1;          // the token that pads rows of texts; -1: none
  std::vector<std::string> names{};  // of the classes; empty: without reading the data they are not known

  Targets targets() const { return classes == 0 ? Targets::numbers : label_sequences ? Targets::labels : Targets::classes; }
  DType target_dtype() const { return classes > 0 ? DType::i64 : DType::f32; }
};

}  // namespace halfstep::app
