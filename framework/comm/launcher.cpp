// SPDX-License-Identifier: Apache-2.0
#include "framework/comm/launcher.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <vector>

#include "framework/base/check.h"

namespace halfstep {
namespace {

struct LauncherNames {
  const char *launcher, *size, *rank, *local_rank;
  const char* required;  // variable without which the others do not count; null: none
  bool by_mpi;
};
// Names in the environment. The first launcher whose size is set counts. kTorch's numbers, if set too, must equal its numbers.
constexpr LauncherNames kMpiLaunchers[] = {
    {"Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", nullptr, true},
    {"PMI", "PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", nullptr, true},
    {"Slurm", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_ID", true}};
constexpr int kTorchPorts = 16;  // ports that rank 0 tries after torchrun's own
constexpr LauncherNames kTorch = {"WORLD_SIZE", "WORLD_SIZE", "RANK", "LOCAL_RANK", nullptr, false};

using Get = std::function<const char*(const char*)>;

std::optional<int> read_count(const Get& get, const char* name) {
  const char* text = get(name);
  if (!text || !*text) return {};
  int value = 0;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), value);
  check<ConfigError>(error == std::errc() && *end == 0 && value >= 0, "distributed", "the environment's ", name,
                     " must be a count, got \"", text, '"');
  return value;
}

// Returns the launch that a launcher's variables describe; nothing if it started no rank.
std::optional<Launch> read_launch(const Get& get, const LauncherNames& names) {
  if (names.required && !get(names.required)) return {};
  const std::optional<int> size = read_count(get, names.size), rank = read_count(get, names.rank);
  if (!size) return {};
  check<ConfigError>(rank || *size == 1, "distributed", names.size, " is ", *size, ", but ", names.rank, " is not set",
                     Help{joined("start all ranks with a launcher, e.g. mpirun -np ", *size, " halfstep train ...")});
  check<ConfigError>(*size >= 1 && rank.value_or(0) < *size, "distributed", names.rank, " must be below ", names.size, ", got ",
                     rank.value_or(0), " and ", *size);
  return Launch{names.launcher, rank.value_or(0), *size, read_count(get, names.local_rank), names.by_mpi, {}};
}

bool is_set(const Get& get, const char* name) {
  const char* text = get(name);
  return text && *text;
}

std::optional<MeetingPlace> meeting_place(const Get& get) {
  MeetingPlace place;
  if (is_set(get, "HALFSTEP_RENDEZVOUS_FILE")) {
    place.file = get("HALFSTEP_RENDEZVOUS_FILE");
    return place;
  }
  if (!is_set(get, "MASTER_ADDR")) return {};
  place.address = get("MASTER_ADDR");
  const std::optional<int> port = read_count(get, "MASTER_PORT");
  check<ConfigError>(port && *port > 0 && *port < 65536, "distributed", "MASTER_ADDR is set, so MASTER_PORT must be a port, ",
                     "a number from 1 to 65535 that is the same for all ranks, got ", port ? std::to_string(*port) : "nothing");
  place.port = place.last_port = *port;
  const char* agent = get("TORCHELASTIC_USE_AGENT_STORE");
  if (agent && std::strcmp(agent, "True") == 0) ++place.port, place.last_port = std::min(65535, *port + kTorchPorts);
  for (const char* name : {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"})
    if (is_set(get, name)) place.job += std::string(place.job.empty() ? "" : " ") + get(name);
  return place;
}

}  // namespace

Launch detect_launch(const Get& get) {
  std::optional<Launch> found;
  for (const LauncherNames& names : kMpiLaunchers) {
    if (!found) found = read_launch(get, names);
  }
  std::optional<Launch> torch = read_launch(get, kTorch);
  if (torch && is_set(get, "TORCHELASTIC_RUN_ID")) torch->launcher = "torchrun";
  check<ConfigError>(!found || !torch || (torch->size == found->size && torch->rank == found->rank), "distributed",
                     found ? found->launcher : "", " says rank ", found ? found->rank : 0, " of ", found ? found->size : 0,
                     ", but RANK and WORLD_SIZE say ", torch ? torch->rank : 0, " of ", torch ? torch->size : 0,
                     Help{"unset RANK and WORLD_SIZE, or give them the launcher's numbers"});
  if (!found) found = torch.value_or(Launch{});
  if (found->size == 1) return *found;
  const bool slurm_without_pmi =
      found->launcher == "Slurm" && !is_set(get, "PMIX_RANK") && !is_set(get, "PMI_RANK") && !is_set(get, "PMI_FD");
  if (!found->by_mpi || slurm_without_pmi) found->meeting = meeting_place(get);
  if (found->meeting) found->by_mpi = false;
  return *found;
}

Launch detect_launch() {
  return detect_launch([](const char* name) -> const char* { return std::getenv(name); });
}

std::string listed(const std::vector<int>& ranks) {
  constexpr size_t kMost = 16;
  const size_t shown = std::min(ranks.size(), kMost);
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < shown; ++i) out += (i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ") + std::to_string(ranks[i]);
  if (shown < ranks.size()) out += " and " + std::to_string(ranks.size() - shown) + " more";
  return out;
}

}  // namespace halfstep
