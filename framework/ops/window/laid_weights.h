// SPDX-License-Identifier: Apache-2.0
// A convolution's weight as its kernel reads it, kept for calls in which it has not changed.
#pragma once

#include <list>
#include <memory>
#include <mutex>

#include "framework/backend/layer_args.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

// Of one layer, for any threads. Copies begin empty.
class LaidWeights {
 public:
  LaidWeights() = default;
  LaidWeights(const LaidWeights&) noexcept {}
  LaidWeights& operator=(const LaidWeights&) noexcept { return *this; }

  // For Backend::conv_laid with these arguments, of which `weight` is the weight; undefined where it gains nothing.
  Tensor find(const Tensor& weight, const ConvArgs& args);

 private:
  static constexpr size_t kMost = 2;  // sizes of images: those of most batches, and of the last one
  struct Kept {
    std::weak_ptr<Storage> storage;  // of the weight
    int64_t offset;
    uint64_t version;
    Shape x;
    DType dtype;
    bool channels_last, with_bias;
    int threads;
    Tensor laid{};
    bool is_for(const Kept& call) const;
  };
  std::mutex mutex_;
  std::list<Kept> kept_;  // the one used last first
};

}  // namespace halfstep
