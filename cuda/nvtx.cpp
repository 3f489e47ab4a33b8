// SPDX-License-Identifier: Apache-2.0
#include "cuda/nvtx.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

#include <cstdlib>
#include <string>

#include "framework/backend/observe.h"

namespace halfstep::cuda {
namespace {

class NvtxRanges final : public OpObserver {
 public:
  void begin(const ObservedCall& call) override {
    const bool named = call.layer && !call.layer->empty();
    nvtxRangePushA((named ? joined(*call.layer, ": ", call.name) : std::string(call.name)).c_str());
  }
  void end(const ObservedCall&, const CallResult&) override { nvtxRangePop(); }
};

}  // namespace

void show_ranges_to_profiler() {
  static NvtxRanges ranges;
  if (std::getenv("NVTX_INJECTION64_PATH")) Observing::observe_all_threads(ranges);
}

}  // namespace halfstep::cuda
#else
namespace halfstep::cuda {
void show_ranges_to_profiler() {}
}  // namespace halfstep::cuda
#endif
