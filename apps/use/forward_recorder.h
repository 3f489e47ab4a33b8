// SPDX-License-Identifier: Apache-2.0
// A model's forward pass on a GPU, recorded once for each shape of its input and replayed: the host queues one CUDA graph instead
// of each kernel, which for a few samples costs more than the kernels themselves.
//
// The first call with a shape runs eagerly, which also makes what only eager work can make: a library's plans, and the 16-bit
// copies of weights. The second is recorded, with the input in memory of its own, and from then on calls replay it. Of the shapes
// used last, kMost are kept. All are forgotten once the model has changed: a weight or a buffer was written or replaced, a copy
// of a weight was dropped, or train() or eval() was called. Host code of the model runs when it is recorded and not when it is
// replayed, so a model that may decide on the host (Module::is_recordable) or that has hooks runs eagerly; so does one whose
// recording fails, for example because it reads values, with one log line that says why. Each recording holds memory of its own;
// when the device has no more, all are given up for the call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "framework/backend/backend.h"
#include "layers/module/module.h"

namespace halfstep::app {

class ForwardRecorder {
 public:
  static constexpr size_t kMost = 8;       // shapes
  static constexpr int kPreparations = 4;  // it gives up at the recording that met something unprepared once more
  using Forward = std::function<Tensor(const Tensor& x)>;

  // forward: calls the model on the device. The model must outlive the recorder.
  ForwardRecorder(Forward forward, Module& model, Device device);

  // The result, on the device; the next call may overwrite it. One thread at a time. Throws what forward throws.
  Tensor operator()(const Tensor& input);

  size_t recordings() const;  // that are kept

 private:
  struct Kept {
    Shape shape;
    DType dtype;
    Tensor input{}, output{};  // in the recording's memory
    std::unique_ptr<Recording> recording{};
  };
  Tensor eager(const Tensor& input);
  bool record(Kept& kept);
  Tensor replay(const Kept& kept, const Tensor& input) const;
  void forget_if_changed();
  void forget();
  void abandon(bool begun);

  Forward forward_;
  Module& model_;
  Device device_;
  bool given_up_ = false;
  int unprepared_ = 0;
  std::list<Kept> kept_;  // the shape used last first; without a recording after its first call
  // Of the model when the first of `kept_` was made. The tensors are held, so that no other one has their addresses.
  std::vector<Tensor> tensors_;
  std::vector<uintptr_t> state_;
};

}  // namespace halfstep::app
