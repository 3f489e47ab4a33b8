// SPDX-License-Identifier: Apache-2.0
#include "framework/comm/device_group.h"

#include <utility>
#include <vector>

#include "framework/backend/backend.h"
#include "framework/base/check.h"
#include "framework/base/log.h"

namespace halfstep {
namespace {

// Returns the reason why the ranks cannot use their devices' library, the same text on all ranks; empty if they can.
std::string refusal(ProcessGroup& host, const std::string& why, const std::string& device) {
  const std::vector<std::string> reasons = host.gather(why), devices = host.gather(device);
  std::string out;
  for (size_t r = 0; r < reasons.size(); ++r) {
    if (!reasons[r].empty()) out += joined(out.empty() ? "" : "; ", "rank ", r, ": ", reasons[r]);
  }
  if (!out.empty()) return out;
  for (size_t r = 0; r < devices.size(); ++r) {
    for (size_t first = 0; first < r; ++first) {
      if (devices[first] == devices[r]) return joined("ranks ", first, " and ", r, " share a GPU");
    }
  }
  return "";
}

}  // namespace

std::unique_ptr<ProcessGroup> for_device(std::unique_ptr<ProcessGroup> host, DeviceGroups* groups, std::string_view backend,
                                         const GroupOptions& options) {
  if (!groups) {
    check<ConfigError>(backend != "nccl", "distributed.backend", "NCCL exchanges memory of GPUs, but the ranks compute on the cpu",
                       Help{"leave it at \"auto\", or give the device cuda"});
    return host;
  }
  if (backend == "host" || backend == "mpi") return host;
  const std::string why = refusal(*host, groups->why_no_group(), groups->device_identity());
  if (why.empty()) return groups->open_group(std::move(host), options);
  check<ConfigError>(backend != "nccl", "distributed.backend", "NCCL cannot be used: ", why,
                     Help{"give each rank a GPU of its own and install NCCL 2, or leave it at \"auto\" to exchange over the host"});
  if (host->rank() == 0) logging::info("[distributed] gradients go over the host, without NCCL: " + why);
  return host;
}

std::unique_ptr<ProcessGroup> for_device(std::unique_ptr<ProcessGroup> host, Device device, std::string_view backend,
                                         const GroupOptions& options) {
  DeviceGroups* const groups = device.is_cuda() ? dynamic_cast<DeviceGroups*>(&backend_for(device)) : nullptr;
  return for_device(std::move(host), groups, backend, options);
}

std::string describe_library(ProcessGroup& host, Device device) {
  DeviceGroups* groups = nullptr;
  std::string why;
  try {
    groups = dynamic_cast<DeviceGroups*>(&backend_for(device));
    why = groups ? groups->why_no_group() : "the device has none";
  } catch (const DeviceError& e) {
    why = e.what();
    why = why.substr(0, why.find('\n'));
  }
  const std::string refused = refusal(host, why, groups ? groups->device_identity() : "");
  return refused.empty() ? groups->describe_library() : "no NCCL: " + refused;
}

}  // namespace halfstep
