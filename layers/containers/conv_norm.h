// SPDX-License-Identifier: Apache-2.0
// A convolution and the batch normalisation behind it, for containers that know what follows what.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "layers/feedforward/convolution.h"
#include "layers/feedforward/normalization.h"

namespace halfstep {

// norm(conv(x)). In InferenceMode, where the normalisation is in evaluation mode and has running statistics, this is one
// convolution with the weight w s and the bias (b - mean) s + beta, where s = gamma / sqrt(var + eps) for each channel. They are
// made in float64, rounded once to the dtype that the convolution computes in, kept, and made anew after a change of what they come
// from. The result differs from that of the two layers by rounding. In float32 the difference is below 1e-5 (1 + |y|) for
// normalised y of usual size; in 16 bits it is like that of rounding the weight once more.
class ConvNorm {
 public:
  // Null where these are no Conv1d and BatchNorm1d, and so on; the types are exact.
  static std::shared_ptr<const ConvNorm> of(Module& conv, Module& norm);
  ConvNorm(ConvNd& conv, BatchNormNd& norm, int dims) : conv_(conv), norm_(norm), dims_(dims) {}

  // relu: with the ReLU behind both. Several threads may call it. Throws what the layers throw.
  Tensor operator()(const Tensor& x, bool relu) const;

 private:
  static constexpr size_t kSources = 6;
  using Sources = std::array<Tensor, kSources>;
  struct Folded {
    Sources sources;  // views, which hold the memory: no other tensor has its address
    std::array<uint64_t, kSources> versions;
    DType dtype;
    Tensor weight{}, bias{};  // undefined where a value is not finite in this dtype: then the layers run one after the other
  };
  bool may_fold(const Tensor& x) const;
  bool is_current(const Folded& folded, DType dtype) const;
  Folded fold(DType dtype) const;
  std::shared_ptr<const Folded> folded() const;
  // Those that the layers do not have are undefined.
  std::array<const Tensor*, kSources> sources() const;

  ConvNd& conv_;
  BatchNormNd& norm_;
  int dims_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Folded> folded_;
  mutable LaidWeights laid_;
};

}  // namespace halfstep
