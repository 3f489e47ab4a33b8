// The mixed-precision recipe's benchmark: an MLP on resident random data, once in float32 and once in each mixed precision.
#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "amp/step_recorder.h"
#include "framework/base/device.h"
#include "framework/base/dtype.h"
#include "framework/tensor/memory.h"

namespace halfstep::app {

struct BenchOptions {
  int64_t batch = 512, width = 1024, layers = 3, batches = 10, epochs = 2;
  int64_t warmup = 3;   // first steps of each repeat that the median leaves out; the total counts them
  int64_t repeats = 1;  // whole runs an arm, all steps in one median; the total is the fastest
  int64_t inner = 1;    // steps a timing, between two waits for the device
  std::vector<DType> arms = {DType::f32, DType::bf16, DType::f16};  // f32: no autocast
  Device device = Device::cpu;
  uint64_t seed = 0;
  bool tf32 = false;     // float32 products of a GPU in TF32
  GraphMode graph = GraphMode::automatic;
  std::optional<std::filesystem::path> export_to;  // weights and data as safetensors: "0.weight"..., "input.0", "target.0"...
};

struct BenchArm {
  DType dtype = DType::f32;
  double seconds = 0;                    // of all steps
  double median_ms = 0, fastest_ms = 0, p90_ms = 0;  // of one step
  size_t peak_bytes = 0;
  std::array<size_t, kMemoryTagCount> peak_by_tag{};
  std::vector<double> losses;            // of each step of the last run
  int64_t steps = 0, skipped = 0;
  bool recorded = false;                 // steps were replayed from a recording
};

// `layers` Linear(width, width) with ReLU between, MSE, SGD with lr 1e-3; float16 with a GradScaler. Every arm starts from the same
// weights and sees the same data. `done` is called after each arm.
std::vector<BenchArm> bench_mlp(const BenchOptions& options, const std::function<void(const BenchArm&)>& done = {});

}  // namespace halfstep::app
