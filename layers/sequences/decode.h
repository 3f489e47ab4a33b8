// SPDX-License-Identifier: Apache-2.0
// Reading a sequence piece by piece, so that one more token costs one step and not the whole sequence again.
//
//   DecodeCache cache;
//   { DecodeScope pass(cache); y = model(prompt); }   // [1, 5]
//   { DecodeScope pass(cache); y = model(next); }     // [1, 1]: the sixth token, which sees the five before it
//
// In a pass, causal self-attention sees the keys and values of the passes before it, recurrent layers continue from their last
// state (stateful or not; the state that a stateful layer keeps for training is not touched), and layers of positions count on.
// Layers that would need later tokens throw ValueError: attention to itself that is not causal or has masks, and bidirectional
// recurrent layers. Layers that mix positions in other ways, such as convolutions, do not notice a pass: they see its piece alone.
#pragma once

#include <any>
#include <cstdint>
#include <map>
#include <utility>

#include "framework/autograd/grad_mode.h"

namespace halfstep {

class Module;

// What the layers of one model keep of one batch of sequences.
class DecodeCache {
 public:
  void clear() {
    kept_.clear();
    positions_ = 0;
  }
  // How many positions layers have counted, or kept keys of; 0 if none does, as in a model whose only memory is recurrent.
  int64_t positions() const { return positions_; }

 private:
  friend class DecodeScope;
  // A layer that is called several times in a pass keeps something for each call.
  std::map<std::pair<const Module*, int64_t>, std::any> kept_;
  int64_t positions_ = 0;
};

// One pass: one call of the model on this thread, without a graph for gradients.
class DecodeScope {
 public:
  [[nodiscard]] explicit DecodeScope(DecodeCache& cache) : cache_(cache), outer_(std::exchange(current_, this)) {}
  ~DecodeScope() { current_ = outer_; }
  DecodeScope(const DecodeScope&) = delete;
  static DecodeScope* current() { return current_; }  // null outside of a pass

  // For a layer's forward, once a call: what this call of the layer kept in the passes before; a new T in the first one.
  template <class T>
  T& kept(const Module& layer) {
    std::any& slot = cache_.kept_[{&layer, calls_[&layer]++}];
    if (!slot.has_value()) slot.emplace<T>();
    return *std::any_cast<T>(&slot);
  }
  // A layer has seen so many positions in all passes.
  void reached(int64_t positions) {
    if (positions > cache_.positions_) cache_.positions_ = positions;
  }
  // For layers of positions: how many this call of the layer has counted before, to which it adds `length`. 0 outside of a pass.
  static int64_t count(const Module& layer, int64_t length) {
    if (!current_) return 0;
    int64_t& counted = current_->kept<int64_t>(layer);
    current_->reached(counted + length);
    return std::exchange(counted, counted + length);
  }

 private:
  static inline thread_local constinit DecodeScope* current_ = nullptr;
  DecodeCache& cache_;
  DecodeScope* outer_;
  std::map<const Module*, int64_t> calls_;  // in this pass
  NoGrad off_;
};

}  // namespace halfstep
