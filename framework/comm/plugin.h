// SPDX-License-Identifier: Apache-2.0
// A group over MPI or over Gloo: libhalfstep_mpi.so or libhalfstep_gloo.so (framework/comm/transport_plugin.h) is opened at run
// time.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "framework/comm/launcher.h"
#include "framework/comm/process_group.h"

namespace halfstep {

enum class Engine { mpi, gloo };

// Over MPI where its launcher started the ranks, else over Gloo: then they meet first (framework/comm/rendezvous.h).
//
// The plugin is $HALFSTEP_MPI_PLUGIN or $HALFSTEP_GLOO_PLUGIN, or lies beside the program, up to two folders above it, in ../lib,
// or where the system looks for libraries. Throws ConfigError when there is none, or when MPI and the launcher disagree about the
// number of ranks, or the ranks about each other; PeerLostError when some do not come.
std::unique_ptr<ProcessGroup> open_plugin_group(const Launch& launch, const GroupOptions& options = {});

// Can the plugin be opened? The reason where it cannot.
std::optional<std::string> plugin_fault(Engine engine);

}  // namespace halfstep
