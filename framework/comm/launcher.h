// Who started this process, and as which of how many: the environment of mpirun, srun and torchrun.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace halfstep {

struct Launch {
  std::string launcher;  // "Open MPI", "PMI", "Slurm", "WORLD_SIZE"; empty: none, a process of its own
  int rank = 0, size = 1;
  std::optional<int> local_rank;  // among those of this machine, where the launcher says it
  bool by_mpi = false;            // MPI itself, or srun, can bring the ranks together
};

// Reads the environment; `get` for tests. Throws ConfigError where numbers are none, or two launchers contradict each other.
//
// Open MPI: OMPI_COMM_WORLD_{SIZE,RANK,LOCAL_RANK}; MPICH and others: PMI_{SIZE,RANK}, MPI_LOCALRANKID; Slurm:
// SLURM_{NTASKS,PROCID, LOCALID} of a job step (a batch script itself is one process, whatever it was granted); torchrun:
// {WORLD_SIZE,RANK,LOCAL_RANK}. Under mpirun the numbers of Slurm are those of mpirun's own helpers, and say nothing.
Launch detect_launch(const std::function<const char*(const char*)>& get);
Launch detect_launch();

}  // namespace halfstep
