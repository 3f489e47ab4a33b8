// SPDX-License-Identifier: Apache-2.0
// A convolution and the batch normalisation behind it, folded into one convolution for inference. Containers use it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "layers/feedforward/convolution.h"
#include "layers/feedforward/normalization.h"

namespace halfstep {

// Computes norm(conv(x)). In InferenceMode, if the normalisation is in evaluation mode and has running statistics, it computes one
// convolution with the weight w s and the bias (b - mean) s + beta, where s = gamma / sqrt(var + eps) for each channel. These are
// computed in float64, rounded once (the bias to float32, the weight to the convolution's dtype, on the CPU not to float16), kept
// and computed again when a source changes. The result differs from that of the two layers by rounding: by less than 1e-5 (1 + |y|)
// in float32 for normalised y of usual size; in 16 bits, as if the weight were rounded once more.
class ConvNorm {
 public:
  // Returns null unless these are exactly a Conv1d and a BatchNorm1d, or both of 2 or 3 dimensions, or a SyncBatchNorm; derived
  // classes do not count.
  static std::shared_ptr<const ConvNorm> of(Module& conv, Module& norm);
  ConvNorm(ConvNd& conv, BatchNormNd& norm, int dims) : conv_(conv), norm_(norm), dims_(dims) {}

  // Applies the ReLU behind both too if `relu`. Several threads may call it. Throws what the layers throw.
  Tensor operator()(const Tensor& x, bool relu) const;

 private:
  static constexpr size_t kSources = 6;
  using Sources = std::array<Tensor, kSources>;
  struct Folded {
    Sources sources;  // views, which keep the memory alive: no other tensor gets its address
    std::array<uint64_t, kSources> versions;
    DType dtype;
    Tensor weight{}, bias{};  // undefined if a value is not finite in this dtype: then the layers run one after the other
  };
  bool may_fold(const Tensor& x) const;
  bool is_current(const Folded& folded, DType dtype) const;
  Folded fold(DType dtype) const;
  std::shared_ptr<const Folded> folded() const;
  // Returns the tensors that the folded weights depend on; those that the layers lack are undefined.
  std::array<const Tensor*, kSources> sources() const;

  ConvNd& conv_;
  BatchNormNd& norm_;
  int dims_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Folded> folded_;
  mutable LaidWeights laid_;
};

}  // namespace halfstep
