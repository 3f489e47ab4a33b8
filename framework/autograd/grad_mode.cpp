// SPDX-License-Identifier: Apache-2.0
#include "framework/autograd/grad_mode.h"

namespace halfstep {
namespace {
struct Modes {
  bool recording = true, inference = false, low_gradients = false;
};
thread_local constinit Modes modes;
}  // namespace

bool grad_enabled() { return modes.recording && !modes.inference; }
bool inference_enabled() { return modes.inference; }

GradMode::GradMode(bool enabled) : saved_(modes.recording) { modes.recording = enabled; }
GradMode::~GradMode() {
  if (ends_here("NoGrad")) (next() ? next()->saved_ : modes.recording) = saved_;
}

InferenceMode::InferenceMode() : saved_(modes.inference) { modes.inference = true; }
InferenceMode::~InferenceMode() {
  if (ends_here("InferenceMode")) (next() ? next()->saved_ : modes.inference) = saved_;
}

LowGradients::LowGradients(bool enabled) : saved_(modes.low_gradients) { modes.low_gradients = enabled; }
LowGradients::~LowGradients() { modes.low_gradients = saved_; }
bool low_gradients() { return modes.low_gradients && !grad_enabled(); }

}  // namespace halfstep
