// SPDX-License-Identifier: Apache-2.0
// oneDNN's convolutions, on dense memory: layouts that its code prefers are made and undone around it. It takes images in
// channels_last as they are, unless its code for those is slower.
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
  DType from = DType::f32;  // of the two operands: f32, or bf16 where has_bf16_code()
  DType to = DType::f32;    // of the result: f32, or bf16 from bf16
  MemoryFormat format = MemoryFormat::contiguous;  // of the three tensors
  bool with_bias = false;                          // f32, read by `forward` and written by `weight`; `data` has none
  // `forward` for many calls with one weight, which is given as lay_weight has made it.
  bool laid = false;
  // Images lie in another dtype than the one that is computed in.
  bool converts = false;
  int64_t filters_apart = 0;  // a part of the filters: the images in y have this many; 0: they have these alone
};

// A pass in pieces of the images, which the team's threads share, each in one thread; or in one piece, of which the library gives
// parts to OpenMP's threads. Where results may not depend on the number of threads, a weight's gradient in one piece is cut into
// parts of the filters for the team, since the library adds up what OpenMP's threads have made of it.
struct ConvPlan {
  ConvProblem problem;
  int64_t pieces, filter_parts;
  int64_t work;  // team.h
};
// For the present number of threads; nothing where oneDNN has no code worth calling.
std::optional<ConvPlan> conv_plan(const ConvProblem& problem);
// The same for a forward with a laid weight, where that is faster.
std::optional<ConvPlan> laid_plan(const ConvProblem& problem);
// Of such a plan: how its weight lies, which is made from a contiguous one of the type `from`.
ConvWeightLayout laid_weight_layout(const ConvPlan& plan);
void lay_weight(const ConvPlan& plan, const void* weight, void* laid);
// All images on one side, as they lie in memory.
struct ConvImages {
  void* data;
  DType dtype;
};
// Which of the tensors is written depends on the pass. `weight` is the laid one in a plan for one. Images in another dtype are
// converted piece by piece.
void run(const ConvPlan& plan, const ConvImages& x, const void* weight, const ConvImages& y, const float* bias);

}  // namespace halfstep::cpu
