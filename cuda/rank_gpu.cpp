// SPDX-License-Identifier: Apache-2.0
#include "cuda/rank_gpu.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <vector>

#include "cuda/library.h"
#include "cuda/runtime.h"
#include "framework/base/check.h"
#include "framework/comm/launcher.h"

namespace halfstep::cuda {

std::optional<std::string> gpu_of_rank(const std::optional<std::string>& visible, int gpus, int local_rank) {
  std::vector<std::string> names;
  if (visible) {
    for (size_t at = 0; at < visible->size();) {
      const size_t end = std::min(visible->find(',', at), visible->size());
      const std::string entry = visible->substr(at, end - at);
      if (entry.starts_with('-')) break;  // CUDA ends the list at an invalid entry; "-1" hides the rest
      if (!entry.empty()) names.push_back(entry);
      at = end + 1;
    }
  } else {
    for (int i = 0; i < gpus; ++i) names.push_back(std::to_string(i));
  }
  if (names.size() < 2) return {};
  return names[size_t(local_rank) % names.size()];
}

int count_gpus(const std::string& listing) {
  std::error_code none;
  const std::filesystem::directory_iterator listed(listing, none);
  if (!none) return int(std::distance(begin(listed), end(listed)));
  struct {
    int (*nvmlInit_v2)();
    int (*nvmlDeviceGetCount_v2)(unsigned* count);
    int (*nvmlShutdown)();
  } nvml;
  const std::string problem = open_library(
      "HALFSTEP_NVML", {"libnvidia-ml.so.1"},
      {HS_SYMBOL(nvml, nvmlInit_v2) HS_SYMBOL(nvml, nvmlDeviceGetCount_v2) HS_SYMBOL(nvml, nvmlShutdown)}, [] { return ""; });
  unsigned count = 0;
  if (!problem.empty() || nvml.nvmlInit_v2() != 0) return 0;
  if (nvml.nvmlDeviceGetCount_v2(&count) != 0) count = 0;
  nvml.nvmlShutdown();
  return int(count);
}

void choose_gpu() {
  std::optional<int> local;
  try {
    local = detect_launch().local_rank;
  } catch (const ConfigError&) {}  // reported where the ranks are brought together
  if (!local) return;
  std::optional<std::string> visible;
  if (const char* set = std::getenv("CUDA_VISIBLE_DEVICES")) visible = set;
  if (const auto own = gpu_of_rank(visible, visible ? 0 : count_gpus(), *local)) setenv("CUDA_VISIBLE_DEVICES", own->c_str(), 1);
}

std::string device_uuid() {
  cudaDeviceProp p;
  check_cuda(cudaGetDeviceProperties(&p, 0), "cudaGetDeviceProperties");
  std::string out;
  for (const char c : p.uuid.bytes) {
    char hex[3];
    std::snprintf(hex, sizeof hex, "%02x", unsigned(static_cast<unsigned char>(c)));
    out += hex;
  }
  return out;
}

}  // namespace halfstep::cuda
