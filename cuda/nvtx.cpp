// SPDX-License-Identifier: Apache-2.0
#include "cuda/nvtx.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

#include <cstdlib>

#include "framework/backend/profile.h"

namespace halfstep::cuda {
namespace {

class NvtxRanges final : public ProfilerRanges {
 public:
  void begin(const char* name) noexcept override { nvtxRangePushA(name); }
  void end() noexcept override { nvtxRangePop(); }
};

}  // namespace

void show_ranges_to_profiler() {
  static NvtxRanges ranges;
  if (std::getenv("NVTX_INJECTION64_PATH")) ProfileEntry::set_ranges(ranges);
}

}  // namespace halfstep::cuda
#else
namespace halfstep::cuda {
void show_ranges_to_profiler() {}
}  // namespace halfstep::cuda
#endif
