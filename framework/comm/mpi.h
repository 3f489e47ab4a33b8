// A group over MPI, whatever MPI there is: libhalfstep_mpi.so (framework/comm/mpi_plugin.h) is opened at run time.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "framework/comm/launcher.h"
#include "framework/comm/process_group.h"

namespace halfstep {

// The plugin is $HALFSTEP_MPI_PLUGIN, or lies beside the program, up to two folders above it, in ../lib, or where the system looks
// for libraries. Throws ConfigError when there is none, or when MPI and the launcher disagree about the number of ranks.
std::unique_ptr<ProcessGroup> open_mpi_group(const Launch& launch, const GroupOptions& options = {});

// Can the plugin be opened? The reason where it cannot.
std::optional<std::string> mpi_plugin_fault();

}  // namespace halfstep
