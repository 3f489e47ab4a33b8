#include "framework/comm/launcher.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <vector>

#include "framework/base/check.h"

namespace halfstep {
namespace {

struct Names {
  const char *launcher, *size, *rank, *local, *only_with;
  bool by_mpi;
};
// The first that is there counts; the last one is compared with it.
constexpr Names kMpi[] = {{"Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", nullptr, true},
                          {"PMI", "PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", nullptr, true},
                          {"Slurm", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_ID", true}};
constexpr Names kTorch = {"WORLD_SIZE", "WORLD_SIZE", "RANK", "LOCAL_RANK", nullptr, false};

using Get = std::function<const char*(const char*)>;

std::optional<int> number(const Get& get, const char* name) {
  const char* text = get(name);
  if (!text || !*text) return {};
  int value = 0;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), value);
  check<ConfigError>(error == std::errc() && *end == 0 && value >= 0, "distributed", "the environment's ", name,
                     " must be a count, got \"", text, '"');
  return value;
}

std::optional<Launch> read(const Get& get, const Names& names) {
  if (names.only_with && !get(names.only_with)) return {};
  const std::optional<int> size = number(get, names.size), rank = number(get, names.rank);
  if (!size) return {};
  check<ConfigError>(rank || *size == 1, "distributed", names.size, " is ", *size, ", but ", names.rank, " is not set",
                     Help{joined("start all ranks with a launcher, e.g. mpirun -np ", *size, " halfstep train ...")});
  check<ConfigError>(*size >= 1 && rank.value_or(0) < *size, "distributed", names.rank, " must be below ", names.size, ", got ",
                     rank.value_or(0), " and ", *size);
  return Launch{names.launcher, rank.value_or(0), *size, number(get, names.local), names.by_mpi};
}

}  // namespace

Launch detect_launch(const Get& get) {
  std::optional<Launch> found;
  for (const Names& names : kMpi) {
    if (!found) found = read(get, names);
  }
  const std::optional<Launch> torch = read(get, kTorch);
  if (!found) return torch ? *torch : Launch{};
  check<ConfigError>(!torch || (torch->size == found->size && torch->rank == found->rank), "distributed", found->launcher,
                     " says rank ", found->rank, " of ", found->size, ", but RANK and WORLD_SIZE say ", torch ? torch->rank : 0,
                     " of ", torch ? torch->size : 0, Help{"unset RANK and WORLD_SIZE, or give them the launcher's numbers"});
  return *found;
}

Launch detect_launch() {
  return detect_launch([](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace halfstep
