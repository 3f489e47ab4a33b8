// How well a model does on held-out data.
#pragma once

#include <optional>

#include "framework/data/loader.h"
#include "layers/layers.h"

namespace halfstep::app {

struct EvalResult {
  double loss = 0;                 // mean over samples
  std::optional<double> accuracy;  // share of samples whose largest output is their class; nothing for regression
  int64_t samples = 0;
  double seconds = 0;
};

// One pass over `loader` without gradients, in eval mode, under the same autocast as training (`low` empty: none). The module is
// left in the mode it was in.
EvalResult evaluate(Module& module, const Loss& loss, DataLoader& loader, Device device, std::optional<DType> low);

// The batch on `device`; the copy, if any, counts as data.
Batch on_device(const Batch& batch, Device device);

}  // namespace halfstep::app
