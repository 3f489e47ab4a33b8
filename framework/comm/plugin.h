// SPDX-License-Identifier: Apache-2.0
// Opens a group over MPI or Gloo: loads libhalfstep_mpi.so or libhalfstep_gloo.so (framework/comm/transport_plugin.h) at run time.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "framework/comm/launcher.h"
#include "framework/comm/process_group.h"

namespace halfstep {

enum class TransportKind { mpi, gloo };

// Opens a group over MPI if its launcher started the ranks, else over Gloo; then the ranks first meet
// (framework/comm/rendezvous.h).
//
// The plugin is $HALFSTEP_MPI_PLUGIN or $HALFSTEP_GLOO_PLUGIN, or a file beside the program, up to two folders above it, in
// ../lib, or on the system's library path. Throws ConfigError if there is none, if MPI and the launcher disagree about the number
// of ranks, or the ranks about each other; PeerLostError if some ranks do not come.
std::unique_ptr<ProcessGroup> open_plugin_group(const Launch& launch, const GroupOptions& options = {});

// Returns why the plugin cannot be opened; empty if it can.
std::optional<std::string> plugin_fault(TransportKind kind);

}  // namespace halfstep
