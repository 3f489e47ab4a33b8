// SPDX-License-Identifier: Apache-2.0
// Traces which kernels and copies a GPU runs, when, and for which call, by CUPTI, NVIDIA's library for profilers.
#pragma once

#include <string>
#include <vector>

#include "framework/backend/backend.h"

namespace halfstep::cuda {

// Records the process's work on GPUs while it lives. CUPTI serves one client: a second trace, or one under Nsight, gets a fault()
// instead of kernels. The library is the file in HALFSTEP_CUPTI, or libcupti.so of the CUDA version of this build.
class KernelTrace {
 public:
  [[nodiscard]] KernelTrace();
  ~KernelTrace();
  KernelTrace(const KernelTrace&) = delete;

  const std::string& fault() const { return fault_; }  // why there are no kernels; empty: there are
  // Assigns the work that this thread launches until leave() to `span`. Calls nest; the innermost counts.
  void enter(int span) noexcept;
  void leave() noexcept;
  std::vector<DeviceWork> read();  // work that the device has finished since the last call, by time

 private:
  std::string fault_;
};

}  // namespace halfstep::cuda
