// SPDX-License-Identifier: Apache-2.0
// Records a model's forward pass on a GPU once for each input shape, and replays it: the host then queues one CUDA graph instead
// of each kernel, which for a few samples costs more than the kernels themselves.
//
// The first call with a shape runs eagerly, which also creates what only eager work can: a library's plans, and 16-bit copies of
// weights. The second is recorded, with the input in separate memory, and later calls replay it. The kMostShapes latest shapes are
// kept. All are discarded when the model changes: a weight or a buffer was written or replaced, a copy of a weight was dropped, or
// a layer or its settings are others (ModuleSettings). The model's host code runs when it is recorded but not when it is replayed,
// so a model that may decide on the host (Module::is_recordable) or that has hooks runs eagerly; so does one whose recording fails,
// for example because it reads values, with one log line that says why. Each recording has memory of its own; if the device has no
// more, all are discarded for the call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "amp/step/module_settings.h"
#include "framework/backend/backend.h"
#include "layers/module/module.h"

namespace halfstep::app {

class ForwardRecorder {
 public:
  static constexpr size_t kMostShapes = 8;   // whose recordings are kept
  static constexpr int kMostUnprepared = 4;  // recordings that fail as work is not prepared, before it gives up
  using Forward = std::function<Tensor(const Tensor& x)>;

  // forward: calls the model on the device. The model must outlive the recorder.
  ForwardRecorder(Forward forward, Module& model, Device device);

  // Returns the result on the device; the next call may overwrite it. One thread at a time. Throws what forward throws.
  Tensor operator()(const Tensor& input);

  size_t recordings() const;  // that are kept

 private:
  struct ShapeRecording {
    Shape shape;
    DType dtype;
    Tensor input{}, output{};  // in the recording's memory
    std::unique_ptr<Recording> recording{};
  };
  Tensor run_eagerly(const Tensor& input);
  bool record(ShapeRecording& kept);
  Tensor replay(const ShapeRecording& kept, const Tensor& input) const;
  void discard_if_changed();
  void discard_all();
  void abandon_recording(bool begun);

  Forward forward_;
  Module& model_;
  Device device_;
  bool has_given_up_ = false;
  int unprepared_ = 0;                // recordings that failed so
  std::list<ShapeRecording> shapes_;  // latest shape first; no recording after a shape's first call
  // The model's tensors when the first of `shapes_` was made, held so that no other tensor gets their addresses.
  std::vector<Tensor> tensors_;
  std::vector<uintptr_t> model_state_;  // see state_of, at that time
  ModuleSettings settings_;             // at that time
};

}  // namespace halfstep::app
