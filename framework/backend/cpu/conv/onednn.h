// SPDX-License-Identifier: Apache-2.0
// oneDNN's convolutions on dense memory, with copies to and from the layouts that its code prefers. Images in channels_last need
// no copy, unless its code for them is slower.
#pragma once

#include <optional>

#include "framework/backend/layer_args.h"

namespace halfstep::cpu {

enum class ConvPass : uint8_t { forward, data, weight };

// One pass of y = conv(x, weight) + bias. x: [images, channels, in...], weight: [filters, channels / groups, size...],
// y: [images, filters, out...].
struct ConvProblem {
  ConvPass pass;
  int64_t images, channels, filters, groups;
  Window window;
  Spatial in, out;
  DType from = DType::f32;  // dtype of both operands: f32, or bf16 if has_bf16_code()
  DType to = DType::f32;    // dtype of the result: f32, or bf16 from bf16
  MemoryFormat format = MemoryFormat::contiguous;  // of the three tensors
  bool with_bias = false;                          // f32, read by `forward` and written by `weight`; not for `data`
  // Whether `forward` is one of many calls with one weight, given as lay_weight has made it.
  bool laid = false;
  // Whether images have another dtype than the computation.
  bool converts = false;
  int64_t filters_in_y = 0;  // if the problem is a part of the filters, the number of all in the memory of y; else 0
};

// A pass split into pieces of the images, each computed by one thread of the team; or one piece that the library splits among
// OpenMP's threads. If results must not depend on the number of threads, a weight's gradient in one piece is split into parts of
// the filters for the team, because the library would add up the results of OpenMP's threads.
struct ConvPlan {
  ConvProblem problem;
  int64_t pieces, filter_parts;
  int64_t work;  // team.h
};
// Makes a plan for the current number of threads; nothing if oneDNN has no code worth calling.
std::optional<ConvPlan> conv_plan(const ConvProblem& problem);
// Makes a plan for a forward with a laid weight, if that is faster.
std::optional<ConvPlan> laid_plan(const ConvProblem& problem);
// Returns the layout of such a plan's weight, which is made from a contiguous one in dtype `from`.
ConvWeightLayout laid_weight_layout(const ConvPlan& plan);
void lay_weight(const ConvPlan& plan, const void* weight, void* laid);
// All images of one side, in their order in memory.
struct ConvImages {
  void* data;
  DType dtype;
};
// Runs a pass; the pass determines which tensor is written. `weight` is the laid one if the plan is for one. Images in another
// dtype are converted piece by piece.
void run(const ConvPlan& plan, const ConvImages& x, const void* weight, const ConvImages& y, const float* bias);

}  // namespace halfstep::cpu
