// SPDX-License-Identifier: Apache-2.0
// Asks the library about graphs for devices that this machine lacks.
#pragma once

#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "cuda/dnn/plan.h"
#include "framework/base/check.h"

namespace halfstep::testing {

// Returns a device description for cuDNN's heuristics, for the capabilities 75, 80, 90 and 100.
inline std::string description(int capability) {
  struct Gpu {
    const char* name;
    int processors, shared_bytes, threads, blocks, clock_khz, memory_khz, memory_bits;
    long long cache, memory;
  };
  const Gpu turing{"Tesla T4", 40, 65536, 1024, 16, 1590000, 5001000, 256, 4194304, 15843721216},
      ampere{"NVIDIA A100-SXM4-80GB", 108, 166912, 2048, 32, 1410000, 1593000, 5120, 41943040, 85094825984},
      hopper{"NVIDIA H100 80GB HBM3", 132, 232448, 2048, 32, 1980000, 2619000, 5120, 52428800, 84979089408},
      blackwell{"NVIDIA B200", 148, 232448, 2048, 32, 1965000, 3996000, 8192, 132644864, 191514673152};
  const Gpu& g = capability == 75 ? turing : capability == 80 ? ampere : capability == 90 ? hopper : blackwell;
  const auto pair = [](const char* key, auto value) { return ",\"" + std::string(key) + "\":" + std::to_string(value); };
  return "{\"deviceName\":\"" + std::string(g.name) + "\"" + pair("deviceVer", capability * 10) + pair("driverVer", 13000) +
         pair("cudaDeviceId", 0) + ",\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64]" +
         pair("regsPerBlock", 65536) + pair("multiProcessorCount", g.processors) + pair("smClockRateKHz", g.clock_khz) +
         pair("memClockRateKHz", g.memory_khz) + pair("l2CacheSize", g.cache) + pair("warpSize", 32) +
         pair("maxSharedMemoryPerBlock", 49152) + pair("maxSharedMemoryPerBlockOptin", g.shared_bytes) +
         pair("reservedSharedMemoryPerBlock", capability >= 80 ? 1024 : 0) + pair("maxRegistersPerSM", 65536) +
         pair("pciDeviceId", 0) + pair("maxCtasPerSM", g.blocks) + pair("maxThreadsPerBlock", 1024) +
         pair("maxThreadsPerSM", g.threads) + pair("isTccDriver", 0) + pair("supportCoopLaunch", 1) +
         pair("totalGlobalMem", g.memory) +
         // Version 9.28 takes no description without these.
         pair("smCountOrigin", 0) + pair("oversizedSharedMemoryPerBlock", g.shared_bytes) + pair("memoryBusWidth", g.memory_bits) +
         "}";
}

inline const cuda::dnn::Target& target(int capability) {
  static std::map<int, cuda::dnn::Target> known;
  const auto at = known.find(capability);
  return at != known.end() ? at->second
                           : known.emplace(capability, cuda::dnn::Target::described(description(capability))).first->second;
}

// Returns whether the library is available; prints a message if not.
inline bool cudnn_is_here() {
  if (cuda::find_cudnn()) return true;
  std::puts(("SKIPPED: " + cuda::cudnn_version()).c_str());
  return false;
}

struct Answer {
  int proposed = 0;
  std::optional<int64_t> workspace;  // of the plan that would run; empty: the graph is declined
  int64_t engine = -1;
  bool keeps_rules = false, tensor_cores = false;
  std::string problem;
};

// Builds a graph for such a device and returns the outcome.
inline Answer ask(int capability, const std::function<std::unique_ptr<cuda::dnn::OpGraph>()>& graph,
                  const cuda::dnn::Rules& rules = {}) {
  Answer a;
  try {
    cuda::dnn::Plans plans(graph(), target(capability), rules);
    const cuda::dnn::Plan* const plan = plans.chosen(target(capability));
    a.proposed = int(plans.proposed());
    a.problem = plans.problem();
    if (!plan) return a;
    a.workspace = plan->workspace();
    a.engine = plan->engine().number;
    a.keeps_rules = plan->engine().is_allowed(rules);
    a.tensor_cores = plan->engine().has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  } catch (const DeviceError& e) { a.problem = e.what(); }
  return a;
}

// Prints the library's choice if HALFSTEP_SHOW_PLANS=1. Engine numbers depend on the version.
inline void show(const std::string& name, const Answer& a) {
  if (!std::getenv("HALFSTEP_SHOW_PLANS")) return;
  const std::string plan = a.workspace ? "engine " + std::to_string(a.engine) + " of " + std::to_string(a.proposed) +
                                             ", workspace " + std::to_string(*a.workspace)
                                       : "declined: " + a.problem;
  std::puts((name + ": " + plan).c_str());
}

}  // namespace halfstep::testing
