// SPDX-License-Identifier: Apache-2.0
// A convolution's weight as its kernel reads it, kept for calls in which it has not changed.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>

#include "framework/backend/layer_args.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

// Of one layer, for any threads. Images of different sizes share a laid weight where its layout is the same. Two layouts are kept.
// While sizes that need a third one alternate with others, their weight is not laid out: that would cost more than it saves. Where
// such sizes come twice in a row, theirs takes the place of the one that was not used for longest. Copies begin empty.
class LaidWeights {
 public:
  LaidWeights() = default;
  LaidWeights(const LaidWeights&) noexcept {}
  LaidWeights& operator=(const LaidWeights&) noexcept { return *this; }

  // For Backend::conv_laid with these arguments, of which `weight` is the weight; undefined where it is not worth it.
  Tensor find(const Tensor& weight, const ConvArgs& args);

 private:
  static constexpr size_t kMostLayouts = 2, kMostSizes = 64;
  // What a layout depends on, besides the window and the groups of the layer.
  struct Sizes {
    Shape x;
    DType dtype;
    bool channels_last, with_bias;
    int threads;
    bool operator==(const Sizes& o) const = default;
  };
  struct Source {  // the weight that everything kept was made of
    std::weak_ptr<Storage> storage;
    int64_t offset = 0;
    uint64_t version = 0;
    bool is(const Source& o) const;
  };
  struct Kept {
    Sizes sizes;
    ConvWeightLayout layout;
    Tensor laid{};
  };
  Tensor laid_as(const ConvWeightLayout& layout) const;  // undefined: none is kept
  size_t layouts() const;                            // that are kept
  void keep(const Kept& made);

  std::mutex mutex_;
  Source source_;
  std::list<Kept> kept_;  // the one used last first
};

}  // namespace halfstep
