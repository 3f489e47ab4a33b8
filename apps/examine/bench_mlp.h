// SPDX-License-Identifier: Apache-2.0
// A benchmark of the mixed-precision recipe: an MLP on resident random data, in float32 and in each mixed precision.
#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "amp/step/step_recorder.h"
#include "framework/backend/reports.h"
#include "framework/base/device.h"
#include "framework/base/dtype.h"
#include "framework/tensor/memory.h"

namespace halfstep::app {

// Precision of an arm's products: float32, float32 rounded to TF32 by a GPU's tensor cores, or mixed.
enum class Precision : uint8_t { float32, tf32, bfloat16, float16 };
const char* name(Precision p);

struct BenchOptions {
  int64_t batch = 512, width = 1024, layers = 3, batches = 10, epochs = 2;
  int64_t warmup = 3;   // first steps of each repeat, which the median omits; the total includes them
  int64_t repeats = 1;  // whole runs of an arm; the median is over all steps, the total is the fastest run's
  int64_t inner = 1;    // steps between two waits for the device
  std::vector<Precision> arms = {Precision::float32, Precision::bfloat16, Precision::float16};
  Device device = Device::cpu;
  uint64_t seed = 0;
  double lr = 1e-3;
  GraphMode graph = GraphMode::automatic;
  std::optional<std::filesystem::path> export_to;  // weights and data as safetensors: "0.weight"..., "input.0", "target.0"...
};

struct BenchArm {
  Precision precision = Precision::float32;
  double seconds = 0;                                // of all steps
  double median_ms = 0, fastest_ms = 0, p90_ms = 0;  // of one step
  size_t peak_bytes = 0;
  std::array<size_t, kMemoryTagCount> peak_by_tag{};
  size_t planned_peak_bytes = 0;  // peak of the same run on Device::meta; on a GPU without library workspace
  std::vector<double> step_ms;    // one for each timing behind the median, in order
  std::vector<double> losses;     // one for each step of the last run
  int64_t steps = 0, skipped = 0;
  bool recorded = false;                // steps were replays of a recording
  std::vector<ProductReport> products;  // of the last run; empty on the CPU
  std::string refused;                  // why the device does not compute this arm; nothing was measured then
};

// The largest relative difference between two arms' losses in a step, and the tolerance. Each layer rounds its operands and its
// result to the arm's precision, by at most its unit roundoff u (2^-24; TF32 and float16 2^-11; bfloat16 2^-8). Over the squares
// of batch x width outputs such errors average out, so correct losses agree far better than to `layers` times the larger u; a
// layer that computes something else does not.
struct Agreement {
  double difference = 0, tolerance = 0;
  bool ok() const { return difference <= tolerance; }  // false if losses are not finite
};
Agreement agreement(const BenchArm& arm, const BenchArm& reference, int64_t layers);

// Runs `layers` Linear(width, width) with ReLU between, MSE and plain SGD; float16 with a GradScaler. Every arm starts from the
// same weights and gets the same data. Calls `done` after each measured arm. An arm that the device cannot compute (bfloat16
// before Ampere) has the reason in `refused`. Throws ValueError for tf32 on other devices than GPUs, and DeviceError if the device
// fails.
std::vector<BenchArm> bench_mlp(const BenchOptions& options, const std::function<void(const BenchArm&)>& done = {});

}  // namespace halfstep::app
