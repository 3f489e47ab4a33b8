// SPDX-License-Identifier: Apache-2.0
// In place of NVIDIA's management library: a machine with three GPUs. With HALFSTEP_FAKE_NVML_FAILS set it cannot be opened.
#include <cstdlib>

extern "C" {

int nvmlInit_v2() { return std::getenv("HALFSTEP_FAKE_NVML_FAILS") ? 9 : 0; }  // 9: the driver is not loaded
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 3;
  return 0;
}
int nvmlShutdown() { return 0; }

}  // extern "C"
