// SPDX-License-Identifier: Apache-2.0
// Arguments of the kernels of layers other than tensors. Spatial dimensions are the last one, two or three of [N, C, ...]; arrays
// list them first to last, and entries beyond `dims` have neutral values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "framework/tensor/view.h"

namespace halfstep {

using Spatial = std::array<int64_t, 3>;

// A window that slides over the spatial dimensions. At output position o, its tap k (element k of the kernel) reads input position
// o * stride - padding + k * dilation; positions outside the input read as zero (in pooling: do not count).
struct Window {
  int dims = 2;  // 1, 2 or 3
  Spatial size{1, 1, 1}, stride{1, 1, 1}, padding{0, 0, 0}, dilation{1, 1, 1};
};

// A forward convolution; the tensors are those of the kernel conv (kernels.def).
struct ConvArgs {
  TensorView x, weight, bias;
  Window window;
  int64_t groups;
  bool relu;
  TensorView out;
};

// The layout in which Backend::lay_weight stores a convolution's weight. Equal ids mean equal memory for equal weights.
struct ConvWeightLayout {
  size_t bytes = 0;
  uint64_t id = 0;
};

struct PoolArgs {
  Window window;
  bool adaptive = false;           // output o covers [floor(o in / out), ceil((o + 1) in / out)); ignores the window
  bool count_include_pad = true;   // average: whether padding counts as elements (within the padding, not beyond it)
  int64_t divisor = 0;             // average: divide by this; 0: by the number of elements
};

// Normalisation of x [rows, groups, channels, inner], contiguous, or of an image in channels_last [rows, inner, groups, channels]:
// one mean and variance for each (row, group), one scale and shift for each (group, channel). layer_norm: groups = inner = 1.
// group_norm: inner is the number of pixels.
struct NormArgs {
  int64_t rows, groups, channels, inner;
  double eps;
  bool centered = true;            // false: rms_norm, y = x / sqrt(mean(x^2) + eps) * weight
};

// Batch normalisation of x [batch, channels, inner], contiguous, with statistics for each channel.
struct BatchNormArgs {
  int64_t batch, channels, inner;
  double eps;
  double momentum;                 // running = (1 - momentum) running + momentum new; the new variance is unbiased
  bool training;                   // statistics of the batch; otherwise the running ones
  bool relu = false;               // applied last
};
// Returns the largest value that is stored as 0 or less, where a ReLU has slope 0. Half of a 16-bit dtype's smallest number is a
// tie.
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
