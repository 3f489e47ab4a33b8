// SPDX-License-Identifier: Apache-2.0
// Arguments of the kernels of layers besides their tensors. Spatial dimensions are the last one, two or three of [N, C, ...];
// arrays name them first to last, and entries beyond `dims` hold the values that change nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "framework/tensor/view.h"

namespace halfstep {

using Spatial = std::array<int64_t, 3>;

// A window that slides over the spatial dimensions. Its tap k (element k of the kernel), at output position o, reads input position
// o * stride - padding + k * dilation; positions outside the input read as zero (pooling: as absent).
struct Window {
  int dims = 2;  // 1, 2 or 3
  Spatial size{1, 1, 1}, stride{1, 1, 1}, padding{0, 0, 0}, dilation{1, 1, 1};
};

// A forward convolution; the tensors as those of the kernel conv (kernels.def).
struct ConvArgs {
  TensorView x, weight, bias;
  Window window;
  int64_t groups;
  bool relu;
  TensorView out;
};

// How Backend::lay_weight lays out the weight of a convolution. Two with equal ids are the same for the same weight.
struct ConvWeightLayout {
  size_t bytes = 0;
  uint64_t id = 0;
};

struct PoolArgs {
  Window window;
  bool adaptive = false;           // output o covers [floor(o in / out), ceil((o + 1) in / out)); the window is not read
  bool count_include_pad = true;   // average: padding counts as elements (as far as padding reaches, not beyond it)
  int64_t divisor = 0;             // average: divide by this; 0: by the number of elements
};

// Normalisation of x [rows, groups, channels, inner], contiguous, or of an image in channels_last [rows, inner, groups, channels]:
// one mean and variance for each (row, group), a map for each (group, channel). layer_norm: groups = inner = 1. group_norm: pixels.
struct NormArgs {
  int64_t rows, groups, channels, inner;
  double eps;
  bool centered = true;            // false: rms_norm, y = x / sqrt(mean(x^2) + eps) * weight
};

// Batch normalisation of x [batch, channels, inner], contiguous: statistics for each channel.
struct BatchNormArgs {
  int64_t batch, channels, inner;
  double eps;
  double momentum;                 // running = (1 - momentum) running + momentum new; the new variance is the unbiased one
  bool training;                   // statistics of the batch; else the running ones
  bool relu = false;               // at last
};
// The largest value that is stored as 0 or less, where a ReLU has the slope 0. Half of a 16-bit dtype's smallest number is a tie.
constexpr double stored_as_zero(DType t) { return t == DType::f16 ? 0x1p-25 : t == DType::bf16 ? 0x1p-134 : 0.0; }

// A sparse matrix that acts along one dimension: out[o] = sum over k in [start[o], start[o + 1]) of weight[k] x[index[k]].
struct SparseRows {
  TensorView start;   // [out + 1] i64
  TensorView index;   // [n] i64
  TensorView weight;  // [n] f32 (f64 for f64 tensors)
};

enum class Scan : uint8_t { sum, prod };
enum class SampleMode : uint8_t { bilinear, nearest, bicubic };
enum class SamplePadding : uint8_t { zeros, border, reflection };
// x: [N, C, H, W] or [N, C, D, H, W] (bilinear means trilinear; no bicubic); grid: [N, H', W', 2] or [N, D', H', W', 3],
// in [-1, 1], last dimension x, y(, z).
struct SampleArgs {
  SampleMode mode = SampleMode::bilinear;
  SamplePadding padding = SamplePadding::zeros;
  bool align_corners = false;
};

}  // namespace halfstep
