// SPDX-License-Identifier: Apache-2.0
#include "framework/autograd/grad_mode.h"

namespace halfstep {
namespace {
thread_local bool recording = true;
thread_local bool inference = false;
thread_local bool low = false;
}  // namespace

bool grad_enabled() { return recording && !inference; }
bool inference_enabled() { return inference; }

GradMode::GradMode(bool enabled) : saved_(recording) { recording = enabled; }
GradMode::~GradMode() { recording = saved_; }

InferenceMode::InferenceMode() : saved_(inference) { inference = true; }
InferenceMode::~InferenceMode() { inference = saved_; }

LowGradients::LowGradients(bool enabled) : saved_(low) { low = enabled; }
LowGradients::~LowGradients() { low = saved_; }
bool low_gradients() { return low && !grad_enabled(); }

}  // namespace halfstep
