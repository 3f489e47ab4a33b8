// SPDX-License-Identifier: Apache-2.0
#include "framework/comm/launcher.h"

#include <doctest/doctest.h>

#include <map>

#include "framework/base/check.h"
#include "tests/io/files.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

Launch under(const std::map<std::string, std::string>& environment) {
  return detect_launch([&](const char* name) {
    const auto at = environment.find(name);
    return at == environment.end() ? nullptr : at->second.c_str();
  });
}

std::string refusal(const std::map<std::string, std::string>& environment) {
  try {
    under(environment);
  } catch (const ConfigError& e) { return e.what(); }
  return "";
}

}  // namespace

TEST_CASE("launcher: who started this process is read from its environment") {
  const Launch alone = under({});
  CHECK(alone.size == 1);
  CHECK(alone.launcher.empty());

  const Launch open_mpi = under(
      {{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"PMIX_RANK", "3"}});
  CHECK(open_mpi.launcher == "Open MPI");
  CHECK(open_mpi.rank == 3);
  CHECK(open_mpi.size == 4);
  CHECK(open_mpi.local_rank == 1);
  CHECK(open_mpi.by_mpi);

  const Launch mpich = under({{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}, {"MPI_LOCALRANKID", "1"}});
  CHECK(mpich.launcher == "PMI");
  CHECK(mpich.rank == 1);

  const Launch slurm = under({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "5"}, {"SLURM_LOCALID", "1"}, {"SLURM_STEP_ID", "0"}});
  CHECK(slurm.launcher == "Slurm");
  CHECK(slurm.rank == 5);
  CHECK(slurm.size == 8);
  // A batch script is one process, however many tasks it was granted.
  CHECK(under({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}}).size == 1);
  // mpirun below Slurm: its helpers' numbers say nothing.
  const Launch both = under({{"OMPI_COMM_WORLD_SIZE", "4"},
                             {"OMPI_COMM_WORLD_RANK", "2"},
                             {"SLURM_NTASKS", "2"},
                             {"SLURM_PROCID", "1"},
                             {"SLURM_STEP_ID", "0"}});
  CHECK(both.launcher == "Open MPI");
  CHECK(both.size == 4);

  const Launch bare = under({{"WORLD_SIZE", "4"}, {"RANK", "2"}, {"LOCAL_RANK", "2"}});
  CHECK(bare.size == 4);
  CHECK(!bare.by_mpi);
  CHECK(!bare.meeting);
}

TEST_CASE("launcher: where ranks meet that MPI does not bring together") {
  const std::map<std::string, std::string> here = {
      {"WORLD_SIZE", "4"}, {"RANK", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "29500"}};
  const auto with = [](std::map<std::string, std::string> all, const std::map<std::string, std::string>& more) {
    all.insert(more.begin(), more.end());
    return all;
  };
  const Launch plain = under(here);
  REQUIRE(plain.meeting);
  CHECK(plain.meeting->address == "a");
  CHECK(plain.meeting->port == 29500);
  CHECK(plain.meeting->last_port == 29500);
  // torchrun's own process listens at the port.
  const Launch torchrun = under(
      with(here, {{"TORCHELASTIC_RUN_ID", "r"}, {"TORCHELASTIC_RESTART_COUNT", "1"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}}));
  REQUIRE(torchrun.meeting);
  CHECK(torchrun.launcher == "torchrun");
  CHECK(torchrun.meeting->port == 29501);
  CHECK(torchrun.meeting->last_port == 29516);
  CHECK(torchrun.meeting->job == "r 1");
  const Launch by_file = under({{"WORLD_SIZE", "4"}, {"RANK", "2"}, {"HALFSTEP_RENDEZVOUS_FILE", "/f"}});
  REQUIRE(by_file.meeting);
  CHECK(by_file.meeting->file == "/f");

  // srun's tasks meet there where it offers no PMI, and mpirun's never do.
  const std::map<std::string, std::string> slurm = {
      {"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "5"}, {"SLURM_STEP_ID", "0"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "29500"}};
  CHECK(!under(slurm).by_mpi);
  CHECK(under(slurm).meeting.has_value());
  CHECK(under(with(slurm, {{"PMIX_RANK", "5"}})).by_mpi);
  CHECK(under(with(slurm, {{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}})).by_mpi);

  CHECK(contains(refusal({{"WORLD_SIZE", "4"}, {"RANK", "2"}, {"MASTER_ADDR", "a"}}), "MASTER_PORT must be a port"));
  CHECK(contains(refusal({{"WORLD_SIZE", "4"}, {"RANK", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "70000"}}), "got 70000"));
  CHECK(listed({3}) == "rank 3");
  CHECK(listed({1, 2, 5}) == "ranks 1, 2 and 5");
  std::vector<int> many(20);
  CHECK(contains(listed(many), "0, 0 and 4 more"));
}

TEST_CASE("launcher: what contradicts itself is refused") {
  CHECK(contains(refusal({{"WORLD_SIZE", "4"}}), "WORLD_SIZE is 4, but RANK is not set"));
  CHECK(contains(refusal({{"WORLD_SIZE", "four"}, {"RANK", "0"}}), "WORLD_SIZE must be a count, got \"four\""));
  CHECK(contains(refusal({{"WORLD_SIZE", "4"}, {"RANK", "4"}}), "RANK must be below WORLD_SIZE, got 4 and 4"));
  CHECK(contains(refusal({{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "0"}, {"WORLD_SIZE", "4"}, {"RANK", "0"}}),
                 "Open MPI says rank 0 of 2, but RANK and WORLD_SIZE say 0 of 4"));
  CHECK(refusal({{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "1"}, {"WORLD_SIZE", "2"}, {"RANK", "1"}}).empty());
}
