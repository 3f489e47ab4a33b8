// SPDX-License-Identifier: Apache-2.0
// SHA-256 of a run's whole state after each step, and of all outputs of a step's kernels, to find where two runs that must be
// equal begin to differ.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/session/session.h"
#include "framework/backend/kernel_log.h"
#include "framework/io/files/checksum.h"

namespace halfstep::app {

// Hashes by part: "parameters", "buffers", "kept" (of stateful layers), "optimizer", "scaler", "schedule", "generator", "loader".
// A watched run also has "batch", the step's input.
using StateHashes = std::map<std::string, std::string>;
// Hashes the parts of a checkpoint's contents.
StateHashes state_hashes(const CheckpointContents& contents, const Module& model);
// Returns one hash of all parts.
std::string hash_of(const StateHashes& parts);

using StateTrace = std::map<int64_t, StateHashes>;  // by step
struct StateDifference {
  int64_t step = 0;
  std::vector<std::string> parts;  // that differ; empty: one run lacks the step
};
// Returns the first step after which `other` differs from `first`. parts: those to compare; empty: all.
std::optional<StateDifference> first_difference(const StateTrace& first, const StateTrace& other,
                                                const std::vector<std::string>& parts = {});

// A kernel of a step.
struct LoggedKernel {
  std::string text;    // "forward of linear (gemm) in fc1"
  std::string shapes;  // of its outputs
  std::vector<std::string> writes;  // hashes of its outputs
};
using KernelHashes = std::vector<LoggedKernel>;
// Returns the first kernel whose output bytes differ: "forward of mul in odd (kernel 7 of 40)". Compares kernels of equal text and
// shapes in their order; if one run has more of them (the first step after a checkpoint casts all weights), it skips them, unless
// nothing else differs. Returns nothing if the logs are equal.
std::optional<std::string> first_difference(const KernelHashes& first, const KernelHashes& other);

// Follows a run by the functions of a Watch: hashes the state after each step, and lists the kernels of one step.
class RunTracer {
 public:
  // witnessed: computes each step under a log. log_step: the step whose kernels are listed; 0: none.
  RunTracer(Device device, bool witnessed, int64_t log_step) : device_(device), is_witnessed_(witnessed), log_step_(log_step) {}

  void begin_batch(int64_t step, const Batch& batch);
  void end_step(int64_t step, Session& session);
  const StateTrace& states() const { return states_; }
  const KernelHashes& kernels() const { return kernels_; }

 private:
  void add_kernel(const KernelEvent& event, std::span<const TensorView> writes);

  Device device_;
  bool is_witnessed_;
  int64_t log_step_;
  StateTrace states_;
  KernelHashes kernels_;
  std::optional<Sha256> batch_;  // micro-batches of the step so far
  std::optional<KernelLog> kernel_log_;  // during a step that is witnessed or listed
};

}  // namespace halfstep::app
