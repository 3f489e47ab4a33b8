// SPDX-License-Identifier: Apache-2.0
// Finds out who started this process, its rank and the number of ranks, from the environment of mpirun, srun and torchrun.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace halfstep {

// The place where ranks meet without MPI; rank 0 listens there.
struct MeetingPlace {
  std::string address;          // MASTER_ADDR
  int port = 0, last_port = 0;  // MASTER_PORT; rank 0 takes the first free port of these
  std::string file;             // or HALFSTEP_RENDEZVOUS_FILE, where rank 0 writes its address
  std::string job;              // name of the job; ranks of other jobs are refused
};

struct Launch {
  std::string launcher;  // "Open MPI", "PMI", "Slurm", "torchrun", "WORLD_SIZE"; empty: a single process without launcher
  int rank = 0, size = 1;
  std::optional<int> local_rank;        // rank on this machine, if the launcher gives it
  bool by_mpi = false;                  // whether MPI brings the ranks together
  std::optional<MeetingPlace> meeting;  // otherwise the meeting place, if known
};

// Reads the environment with `get`, which is std::getenv by default. Throws ConfigError for values that are not numbers, and for
// contradictory launchers.
//
// Open MPI: OMPI_COMM_WORLD_{SIZE,RANK,LOCAL_RANK}; MPICH and others: PMI_{SIZE,RANK}, MPI_LOCALRANKID; Slurm:
// SLURM_{NTASKS,PROCID,LOCALID} of a job step (a batch script itself is one process, whatever it was granted); torchrun:
// {WORLD_SIZE,RANK,LOCAL_RANK}. Under mpirun, Slurm's numbers belong to mpirun's own helpers and are ignored. Slurm's tasks meet
// by MPI, unless MASTER_ADDR or HALFSTEP_RENDEZVOUS_FILE is set and srun offers no PMI.
//
// torchrun's own process listens at MASTER_PORT (TORCHELASTIC_USE_AGENT_STORE), so rank 0 takes one of the next sixteen.
Launch detect_launch(const std::function<const char*(const char*)>& get);
Launch detect_launch();

// Returns "rank 3", "ranks 1, 2 and 5" or "ranks 0, ..., 15 and 48 more".
std::string listed(const std::vector<int>& ranks);

}  // namespace halfstep
