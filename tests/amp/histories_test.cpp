// SPDX-License-Identifier: Apache-2.0
// Random training histories: each against PyTorch's numbers, and against itself saved and loaded on the way.
// scripts/make_history_goldens.py draws them. One of them alone: HALFSTEP_HISTORY=00017; others: HALFSTEP_HISTORIES=<file>.
#include <cstdlib>
#include <cstring>
#include <map>

#include "framework/io/weights/safetensors.h"
#include "tests/amp/history_run.h"
#include "tests/io/files.h"
#include "tests/support/source_dir.h"

using namespace halfstep;
using namespace halfstep::testing;
using history::Json;
using history::HistoryNumber;

namespace {

struct Golden {
  Json spec;
  std::vector<double> numbers;
};

std::map<std::string, Golden> goldens() {
  const char *const other = std::getenv("HALFSTEP_HISTORIES"), *const one = std::getenv("HALFSTEP_HISTORY");
  const TensorFile file = load_safetensors(other ? other : halfstep_source_dir() + "/tests/amp/histories.safetensors");
  std::map<std::string, Golden> out;
  for (const auto& [key, numbers] : file.tensors) {
    if (!one || key == one) out[key] = {Json::parse(file.metadata.at(key)), numbers.to_vector<double>()};
  }
  return out;
}

// Runs every n-th history; what it throws is a failure with its specification.
template <class F>
void each_history(const F& f, int n = 1) {
  int failures = 0, at = 0;
  for (const auto& entry : goldens()) {
    const auto& key = entry.first;
    const auto& golden = entry.second;
    if (at++ % n != 0) continue;
    std::string fault;
    try {
      fault = f(golden);
    } catch (const std::exception& e) {
      fault = e.what();
    }
    if (fault.empty()) continue;
    FAIL_CHECK("history " << key << ": " << fault << "\n  " << golden.spec.dump());
    if (++failures == 20) return;
  }
}

// Muon makes its matrices in bfloat16.
double tolerance_of(const Json& spec, double scale) {
  if (spec["opt"]["kind"] == "Muon") return 0.02 * (scale + 0.01);
  return 1e-5 * (scale + 0.01);
}

// What differs at the end, or on the way, of a history that is saved and loaded into fresh parts at some of its windows.
std::string broken_off(const Golden& golden) {
  const Json& spec = golden.spec;
  const TempDir dir;
  const auto run_through = [&](const std::vector<int64_t>& stops, std::vector<HistoryNumber>& out) {
    manual_seed(11);
    auto run = std::make_unique<history::Run>(spec, /*own=*/true);
    int64_t at = 0;
    for (const int64_t stop : stops) {
      run->windows(at, stop, out);
      at = stop;
      if (stop == spec["steps"]) break;
      run->save(dir / "run", stop);
      manual_seed(uint64_t(stop));
      run = std::make_unique<history::Run>(spec, /*own=*/true, stop);
      run->load(dir / "run");
    }
    return run->bits();
  };
  std::vector<HistoryNumber> whole, parts;
  std::vector<int64_t> stops = spec["saves"];
  stops.push_back(spec["steps"]);
  const auto want = run_through({spec["steps"]}, whole), got = run_through(stops, parts);
  REQUIRE(whole.size() == parts.size());
  for (size_t i = 0; i < whole.size(); ++i) {
    if (std::memcmp(&whole[i].value, &parts[i].value, sizeof(double)) != 0)
      return joined(whole[i].label, " is ", whole[i].value, ", with saving and loading ", parts[i].value);
  }
  for (const auto& [name, bytes] : want) {
    if (!got.contains(name) || got.at(name) != bytes) return joined(name, " differs at the end");
  }
  return want.size() == got.size() ? "" : "states were added";
}

}  // namespace

TEST_CASE("training histories have PyTorch's losses, rates, weights and states") {
  each_history([](const Golden& golden) -> std::string {
    std::vector<HistoryNumber> got;
    history::Run run(golden.spec, /*own=*/false);
    run.windows(0, golden.spec["steps"], got);
    run.all_values(got);
    for (size_t i = 0; i < std::min(got.size(), golden.numbers.size()); ++i) {
      const double want = golden.numbers[i], mine = got[i].value;
      if ((std::isnan(mine) && std::isnan(want)) || mine == want) continue;
      if (!(std::abs(mine - want) <= tolerance_of(golden.spec, got[i].scale)))
        return joined(got[i].label, " is ", mine, ", in PyTorch ", want);
    }
    return got.size() == golden.numbers.size() ? "" : joined(got.size(), " numbers, in PyTorch ", golden.numbers.size());
  });
}

TEST_CASE("training histories that are saved and loaded on the way end with the bits of those that are not") {
  each_history(broken_off, 10);
}

TEST_CASE("all training histories that are saved and loaded on the way end with the bits of those that are not" *
          doctest::test_suite("slow")) {
  each_history(broken_off);
}
