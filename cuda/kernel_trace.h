// SPDX-License-Identifier: Apache-2.0
// Which kernels and copies a GPU runs, when, and for which call: from CUPTI, NVIDIA's library for profilers.
#pragma once

#include <string>
#include <vector>

#include "framework/backend/backend.h"

namespace halfstep::cuda {

// While one lives, CUPTI records the process's work on GPUs. CUPTI serves one client: a second trace, and one under Nsight, has
// no kernels but a fault(). The library is the file that HALFSTEP_CUPTI names, or libcupti.so of the CUDA version of this build.
class KernelTrace {
 public:
  [[nodiscard]] KernelTrace();
  ~KernelTrace();
  KernelTrace(const KernelTrace&) = delete;

  const std::string& fault() const { return fault_; }  // why there are no kernels; empty: there are
  // The work that this thread launches until leave() is of `span`. They nest; the innermost counts.
  void enter(int span) noexcept;
  void leave() noexcept;
  std::vector<DeviceWork> read();  // what the device has finished since the last call, by time

 private:
  std::string fault_;
};

}  // namespace halfstep::cuda
