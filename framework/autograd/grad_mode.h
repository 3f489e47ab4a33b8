// Thread-local switches: is a graph being recorded?
#pragma once

namespace halfstep {

bool grad_enabled();       // default true; false inside NoGrad and InferenceMode
bool inference_enabled();  // default false

// Sets recording while it lives: GradMode off(false).
class GradMode {
 public:
  explicit GradMode(bool enabled);
  ~GradMode();
  GradMode(const GradMode&) = delete;

 private:
  bool saved_;
};

struct NoGrad : GradMode { NoGrad() : GradMode(false) {} };
struct EnableGrad : GradMode { EnableGrad() : GradMode(true) {} };

// As NoGrad, and EnableGrad inside it has no effect.
class InferenceMode {
 public:
  InferenceMode();
  ~InferenceMode();
  InferenceMode(const InferenceMode&) = delete;

 private:
  bool saved_;
};

}  // namespace halfstep
