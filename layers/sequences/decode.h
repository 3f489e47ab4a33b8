// SPDX-License-Identifier: Apache-2.0
// Reads a sequence piece by piece, so that one more token costs one step and not the whole sequence again.
//
//   DecodeCache cache;
//   { DecodeScope pass(cache); y = model(prompt); }   // [1, 5]
//   { DecodeScope pass(cache); y = model(next); }     // [1, 1]: the sixth token, which sees the five before it
//
// In a pass, causal self-attention sees the keys and values of earlier passes, recurrent layers continue from their last state
// (stateful or not; the training state of a stateful layer is not changed), and positions continue to count. Layers that would
// need later tokens throw ValueError: self-attention that is not causal or has masks, and bidirectional recurrent layers. Other
// layers that mix positions, such as convolutions, ignore passes: they see only the current piece.
#pragma once

#include <any>
#include <cstdint>
#include <map>
#include <utility>

#include "framework/autograd/grad_mode.h"
#include "framework/base/guard.h"

namespace halfstep {

class Module;

// The state that the layers of one model keep for one batch of sequences.
class DecodeCache {
 public:
  void clear() {
    kept_.clear();
    positions_ = 0;
  }
  // Returns the number of positions that layers have counted or keep keys of; 0 if none does, as in a model with only recurrent
  // memory.
  int64_t positions() const { return positions_; }

 private:
  friend class DecodeScope;
  // Keyed by layer and call, as a layer may be called several times in a pass.
  std::map<std::pair<const Module*, int64_t>, std::any> kept_;
  int64_t positions_ = 0;
};

// One pass: one call of the model on this thread, without a graph for gradients.
class DecodeScope : LocalGuard {
 public:
  [[nodiscard]] explicit DecodeScope(DecodeCache& cache) : cache_(cache), outer_(std::exchange(current_, this)) {}
  ~DecodeScope() { current_ = outer_; }
  static DecodeScope* current() { return current_; }  // null outside a pass

  // Returns the state that this call of the layer kept in earlier passes; a new T in the first pass. Call it once in each forward.
  template <class T>
  T& kept(const Module& layer) {
    std::any& slot = cache_.kept_[{&layer, calls_[&layer]++}];
    if (!slot.has_value()) slot.emplace<T>();
    return *std::any_cast<T>(&slot);
  }
  // Records that a layer has processed this number of positions in all passes.
  void reached(int64_t positions) {
    if (positions > cache_.positions_) cache_.positions_ = positions;
  }
  // Adds `length` to the positions that this call of the layer has counted, and returns their number before. Returns 0 outside a
  // pass.
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
