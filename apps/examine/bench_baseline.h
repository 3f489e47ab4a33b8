// SPDX-License-Identifier: Apache-2.0
// Compares times of `halfstep bench mlp` with those of an earlier run, from its --json output.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "apps/examine/bench_mlp.h"
#include "apps/schema/json.h"

namespace halfstep::app {

// An arm in both runs: the median of a step, and its spread, from the fastest step to the 90th percentile.
struct ArmComparison {
  std::string arm;
  double median_ms, spread_ms, baseline_ms, baseline_spread_ms;
  double ratio() const { return median_ms / baseline_ms; }
  // Returns whether it is slower than the baseline by more than either spread.
  bool is_slower() const;
  // Returns "float32: 23.1 ms, 0.98 of 23.6 ms: not slower".
  std::string text() const;
};

// Returns whether `bench mlp --json` printed it, with the times of each arm that was not refused.
bool is_bench(const Json& json);
inline constexpr size_t kMostBenchBytes = size_t(256) << 20;  // most bytes of such a file to read

// Throws ConfigError if the file is not from `bench mlp --json`, was measured with another network, device or number of threads,
// or has none of the arms.
Json read_baseline(const std::filesystem::path& file, const BenchOptions& options, int threads);

// Compares the arms that both have, in the order of `arms`.
std::vector<ArmComparison> compare_arms(const std::vector<BenchArm>& arms, const Json& baseline);
Json comparisons_json(const std::vector<ArmComparison>& comparisons);

}  // namespace halfstep::app
