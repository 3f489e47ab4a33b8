// SPDX-License-Identifier: Apache-2.0
// SHA-256 of all that a run is after a step, and of all that the kernels of a step wrote: where do two runs that must be equal
// begin to differ?
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

// By part: "parameters", "buffers", "kept" (of stateful layers), "optimizer", "scaler", "schedule", "generator", "loader". A run
// that is watched has "batch" as well: what the step was computed from.
using StateHashes = std::map<std::string, std::string>;
StateHashes state_hashes(const CheckpointContents& contents, const Module& model);
// Of all parts.
std::string hash_of(const StateHashes& parts);

using StateTrace = std::map<int64_t, StateHashes>;  // by step
struct StateDifference {
  int64_t step = 0;
  std::vector<std::string> parts;  // empty: one run has no such step
};
// The first step of `other` after which it is not what `first` is. parts: those that are compared, all if empty.
std::optional<StateDifference> first_difference(const StateTrace& first, const StateTrace& other,
                                                const std::vector<std::string>& parts = {});

// A kernel of a step, with the hashes of what it wrote.
struct LoggedKernel {
  std::string text;    // "forward of linear (gemm) in fc1"
  std::string shapes;  // of what it wrote
  std::vector<std::string> writes;
};
using KernelHashes = std::vector<LoggedKernel>;
// The first kernel that wrote other bytes: "forward of mul in odd (kernel 7 of 40)". Kernels with one text and the same shapes are
// compared in their order; where one run has more of them (the first step after a checkpoint casts all weights) they are passed
// over, unless nothing else differs. Nothing if the logs are equal.
std::optional<std::string> first_difference(const KernelHashes& first, const KernelHashes& other);

// Takes part in a run by the functions of a Watch: hashes the state after each step, and lists the kernels of one.
class RunTracer {
 public:
  // witnessed: each step is computed under a log. log_step: whose kernels are listed; 0: none.
  RunTracer(Device device, bool witnessed, int64_t log_step) : device_(device), witnessed_(witnessed), log_step_(log_step) {}

  void begins(int64_t step, const Batch& batch);
  void stepped(int64_t step, Session& session);
  const StateTrace& states() const { return states_; }
  const KernelHashes& log() const { return log_; }

 private:
  void log(const KernelEvent& event, std::span<const TensorView> writes);

  Device device_;
  bool witnessed_;
  int64_t log_step_;
  StateTrace states_;
  KernelHashes log_;
  std::optional<Sha256> batch_;  // of the step's micro-batches so far
  std::optional<KernelLog> watch_;
};

}  // namespace halfstep::app
