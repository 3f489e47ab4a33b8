// SPDX-License-Identifier: Apache-2.0
#include "apps/use/forward_recorder.h"

#include <algorithm>
#include <string>
#include <utility>

#include "amp/autocast/autocast.h"
#include "apps/catalog/infer.h"
#include "framework/autograd/grad_mode.h"
#include "framework/backend/dnn.h"
#include "framework/base/generator.h"
#include "framework/base/log.h"

namespace halfstep::app {
namespace {

std::vector<Tensor> tensors_of(const Module& model) {
  std::vector<Tensor> out = model.parameters(), buffers = model.buffers();
  out.insert(out.end(), buffers.begin(), buffers.end());
  return out;
}

uintptr_t address_of(const Tensor& t) { return reinterpret_cast<uintptr_t>(t.const_data_ptr()); }

// Returns numbers for everything that a recording depends on besides the input and the model's settings; equal numbers mean no
// change.
std::vector<uintptr_t> state_of(const std::vector<Tensor>& tensors) {
  std::vector<uintptr_t> out{uintptr_t(allow_tf32())};
  for (const Tensor& t : tensors) {
    const Tensor low = autocast::shadow_of(t);
    out.insert(out.end(), {address_of(t), uintptr_t(t.version()), low.defined() ? address_of(low) : 0});
  }
  return out;
}

}  // namespace

ForwardRecorder::ForwardRecorder(Forward forward, Module& model, Device device)
    : forward_(std::move(forward)),
      model_(model),
      device_(device),
      has_given_up_(!backend_for(device).can_record() || !model.is_recordable()) {}

size_t ForwardRecorder::recordings() const {
  return size_t(std::count_if(shapes_.begin(), shapes_.end(), [](const ShapeRecording& k) { return k.recording != nullptr; }));
}

Tensor ForwardRecorder::operator()(const Tensor& input) {
  const NoGrad off;
  if (has_given_up_ || input.numel() == 0 || model_.any_hooks()) return run_eagerly(input);
  discard_if_changed();
  const auto found = std::find_if(shapes_.begin(), shapes_.end(),
                                  [&](const ShapeRecording& k) { return k.shape == input.shape() && k.dtype == input.dtype(); });
  if (found == shapes_.end()) {
    Tensor output = run_eagerly(input);
    if (shapes_.empty()) {  // after the call, which makes 16-bit copies
      tensors_ = tensors_of(model_);
      model_state_ = state_of(tensors_);
      settings_.note(model_);
    }
    if (shapes_.size() == kMostShapes) shapes_.pop_back();
    shapes_.push_front({.shape = input.shape(), .dtype = input.dtype()});
    return output;
  }
  shapes_.splice(shapes_.begin(), shapes_, found);
  ShapeRecording& kept = shapes_.front();
  try {
    return kept.recording || record(kept) ? replay(kept, input) : run_eagerly(input);
  } catch (const RecordingError&) {  // the model draws random numbers, and the generator was seeded again
    discard_all();
    return run_eagerly(input);
  }
}

Tensor ForwardRecorder::run_eagerly(const Tensor& input) {
  try {
    return forward_(input.to(device_));
  } catch (const MemoryError&) {
    if (recordings() == 0) throw;
  }
  discard_all();  // frees the memory of the recordings
  return forward_(input.to(device_));
}

void ForwardRecorder::discard_if_changed() {
  if (shapes_.empty()) return;
  if (state_of(tensors_of(model_)) == model_state_ && !settings_.have_changed(model_)) return;
  discard_all();
  has_given_up_ = !model_.is_recordable();  // with another layer, perhaps
}

void ForwardRecorder::discard_all() {
  shapes_.clear();
  tensors_.clear();
}

// Records a call. Returns false if the call must run eagerly; then no recording is kept.
bool ForwardRecorder::record(ShapeRecording& kept) {
  Backend& backend = backend_for(device_);
  bool begun = false;
  std::string problem;
  try {
    {
      const MemoryScope memory(MemoryTag::data);
      kept.input = Tensor::empty(kept.shape, {.dtype = kept.dtype, .device = device_});
    }
    backend.begin_recording(default_generator());
    begun = true;
    kept.output = forward_(kept.input.alias(kept.shape, kept.input.strides()));
    begun = false;
    kept.recording = backend.end_recording();
    return true;
  } catch (const NotPrepared& e) {
    problem = one_line(e);
    has_given_up_ = ++unprepared_ == kMostUnprepared;
  } catch (const RecordingError& e) {
    problem = one_line(e);
    has_given_up_ = true;
  } catch (const MemoryError&) {  // a later call may succeed
  } catch (...) {
    abandon_recording(begun);
    throw;
  }
  abandon_recording(begun);
  if (has_given_up_) logging::info("predictions run eagerly: " + problem);
  return false;
}

Tensor ForwardRecorder::replay(const ShapeRecording& kept, const Tensor& input) const {
  if (input.device().is_cpu() && input.is_contiguous())
    backend_for(device_).copy_from_host(input.const_data_ptr(), kept.input.data_ptr(), input.nbytes());
  else
    kept.input.copy_(input);
  kept.recording->replay();
  return kept.output;
}

// Discards what the recording did not compute: 16-bit copies that were cast in it.
void ForwardRecorder::abandon_recording(bool begun) {
  if (begun) backend_for(device_).abandon_recording();
  for (const Tensor& p : model_.parameters()) autocast::drop_shadow(p);
  discard_all();
}

}  // namespace halfstep::app
