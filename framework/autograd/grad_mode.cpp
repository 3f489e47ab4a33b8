#include "framework/autograd/grad_mode.h"

namespace halfstep {
namespace {
thread_local bool recording = true;
thread_local bool inference = false;
}  // namespace

bool grad_enabled() { return recording && !inference; }
bool inference_enabled() { return inference; }

GradMode::GradMode(bool enabled) : saved_(recording) { recording = enabled; }
GradMode::~GradMode() { recording = saved_; }

InferenceMode::InferenceMode() : saved_(inference) { inference = true; }
InferenceMode::~InferenceMode() { inference = saved_; }

}  // namespace halfstep
