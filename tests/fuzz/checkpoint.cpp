// SPDX-License-Identifier: Apache-2.0
// The folder of a run with one checkpoint. The parts of the input: model.safetensors, state.safetensors, state.json, latest,
// best and manifest.json; without the last, a manifest that fits is written, so that the other files are read.
#include "framework/io/checkpoint/checkpoint.h"

#include <nlohmann/json.hpp>

#include "framework/io/files/checksum.h"
#include "tests/fuzz/fuzz.h"

using namespace halfstep;
namespace fs = std::filesystem;

HALFSTEP_FUZZ_HARNESS(checkpoint) {
  const fs::path run = fuzz::folder() / "run", step = run / "step-00000003";
  fs::create_directories(step);
  const auto part = fuzz::parts(fuzz::text_of(data, size), 6);
  const char* const names[] = {"model.safetensors", "state.safetensors", "state.json"};
  nlohmann::json manifest = {{"format", "halfstep-checkpoint"}, {"version", 1}, {"step", 3}, {"files", nlohmann::json::object()}};
  for (int i = 0; i < 3; ++i) {
    fuzz::put(step / names[i], part[size_t(i)]);
    manifest["files"][names[i]] = {{"bytes", part[size_t(i)].size()}, {"sha256", sha256_file(step / names[i])}};
  }
  fuzz::put(run / "latest", part[3]);
  fuzz::put(run / "best", part[4]);
  fuzz::put(step / "manifest.json", part[5].empty() ? manifest.dump() : std::string(part[5]));
  fuzz::typed([&] { load_checkpoint(step); });
  fuzz::typed([&] { resolve_checkpoint(run / "best"); });
  fuzz::typed([&] { latest_checkpoint(run); });
  return 0;
}
