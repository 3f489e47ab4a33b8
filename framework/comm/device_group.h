// SPDX-License-Identifier: Apache-2.0
// Groups whose tensors stay on a device that has a library for that (NCCL).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "framework/comm/process_group.h"

namespace halfstep {

// Implemented by backends whose device can have such a group.
class DeviceGroups {
 public:
  virtual ~DeviceGroups() = default;
  // Returns why no group can be opened here; empty if one can.
  virtual std::string why_no_group() = 0;
  // Returns "NCCL 2.30.7", or why there is no library.
  virtual std::string describe_library() = 0;
  // Returns equal texts for two ranks that use one device, which the library does not allow.
  virtual std::string device_identity() = 0;
  // Opens a group; all ranks of `host` call it. Host tensors are exchanged over `host`.
  virtual std::unique_ptr<ProcessGroup> open_group(std::unique_ptr<ProcessGroup> host, const GroupOptions& options) = 0;
};

// Returns the group for a device's tensors, chosen by a config's distributed.backend: "host", or its old name "mpi", keeps the
// host's; "nccl" opens the device's; "auto" does so if all ranks can, and otherwise says why not. All ranks call it. `groups`:
// null for a device without groups, such as the CPU. Throws ConfigError, with every rank's reason, if "nccl" is not available.
std::unique_ptr<ProcessGroup> for_device(std::unique_ptr<ProcessGroup> host, DeviceGroups* groups, std::string_view backend,
                                         const GroupOptions& options = {});
// Returns the same for the backend of `device`.
std::unique_ptr<ProcessGroup> for_device(std::unique_ptr<ProcessGroup> host, Device device, std::string_view backend,
                                         const GroupOptions& options = {});

// Returns the library with which ranks that compute on this device would exchange its memory: "NCCL 2.30.7", or "no NCCL: ranks 0
// and 1 share a GPU". All ranks call it.
std::string describe_library(ProcessGroup& host, Device device);

}  // namespace halfstep
