// SPDX-License-Identifier: Apache-2.0
// Keeps a convolution's weight in the layouts of its kernels until the weight changes.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>

#include "framework/backend/layer_args.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

// For one layer; thread-safe. Images of different sizes share a laid weight if its layout is the same. Two layouts are kept. While
// image sizes that need a third one alternate with others, their weight is not laid out, because that would cost more than it
// saves. If such sizes come twice in a row, theirs replaces the least recently used one. Copies begin empty.
class LaidWeights {
 public:
  LaidWeights() = default;
  LaidWeights(const LaidWeights&) noexcept {}
  LaidWeights& operator=(const LaidWeights&) noexcept { return *this; }

  // Returns the weight for Backend::conv_laid with these arguments, and lays it out if that is not kept; undefined if it does not
  // pay.
  Tensor find_or_lay(const Tensor& weight, const ConvArgs& args);

 private:
  static constexpr size_t kMostLayouts = 2, kMostSizes = 64;
  // The conditions of a layout, besides the window and the groups of the layer.
  struct LayoutKey {
    Shape x;
    DType dtype;
    bool channels_last, with_bias;
    int threads;
    bool operator==(const LayoutKey& other) const = default;
  };
  struct Source {  // the weight that is kept in other layouts
    std::weak_ptr<Storage> storage;
    int64_t offset = 0;
    uint64_t version = 0;
    bool matches(const Source& other) const;
  };
  struct LaidWeight {
    LayoutKey key;
    ConvWeightLayout layout;
    Tensor laid{};  // undefined: not laid out
  };
  Tensor laid_as(const ConvWeightLayout& layout) const;  // undefined: not kept
  size_t layout_count() const;                           // of kept weights
  void keep(const LaidWeight& weight);                   // drops the least recently used ones beyond the bounds

  std::mutex mutex_;
  Source source_;
  std::list<LaidWeight> kept_;  // most recently used first
};

}  // namespace halfstep
