// SPDX-License-Identifier: Apache-2.0
// Groups whose tensors stay on a device, where it has a library for that (NCCL).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "framework/comm/process_group.h"

namespace halfstep {

// Backends whose device can have such a group also implement this interface.
class DeviceGroups {
 public:
  virtual ~DeviceGroups() = default;
  // Why no group can be opened here; empty: one can.
  virtual std::string why_no_group() = 0;
  // "NCCL 2.30.7", or why there is none.
  virtual std::string describe_library() = 0;
  // The same for two ranks where they use one device, which the library does not allow.
  virtual std::string device_identity() = 0;
  // All ranks of `host` call it. What is on the host goes over `host`.
  virtual std::unique_ptr<ProcessGroup> open_group(std::unique_ptr<ProcessGroup> host, const GroupOptions& options) = 0;
};

// The group for tensors of a device by a config's distributed.backend: "host", or its old name "mpi", leaves the host's; "nccl"
// opens the device's; "auto" does where all ranks can, and says why where they cannot. All ranks call it. `groups`: null for a
// device that has none, such as the CPU. Throws ConfigError where "nccl" cannot be had, with every rank's reason.
std::unique_ptr<ProcessGroup> for_device(std::unique_ptr<ProcessGroup> host, DeviceGroups* groups, std::string_view backend,
                                         const GroupOptions& options = {});
// The same, of a device's backend.
std::unique_ptr<ProcessGroup> for_device(std::unique_ptr<ProcessGroup> host, Device device, std::string_view backend,
                                         const GroupOptions& options = {});

// The library with which ranks that compute on this device would exchange its memory: "NCCL 2.30.7", or "no NCCL: ranks 0 and 1
// share a GPU". All ranks call it.
std::string describe_library(ProcessGroup& host, Device device);

}  // namespace halfstep
