// SPDX-License-Identifier: Apache-2.0
// The ways in which the library can run a graph: its engines, those among them that keep our rules, and plans, which are ready to
// run.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "cuda/dnn/graph.h"

namespace halfstep::cuda::dnn {

// The device for which plans are made.
class Target {
 public:
  static Target of(cudnnHandle_t handle);                   // of the handle's device, on which plans can run
  static Target described(const std::string& description);  // from cuDNN's JSON description of a device: works without a GPU

  cudnnHandle_t handle() const { return handle_; }
  // Returns the description, or null if there is a handle.
  const Descriptor* description() const { return description_ ? &*description_ : nullptr; }

 private:
  cudnnHandle_t handle_ = nullptr;
  std::optional<Descriptor> description_;
};

// Rules for an engine, besides those for all: none may give different bits from run to run, round its operands to fewer bits, or
// add in fewer.
struct Rules {
  bool tensor_cores = true;                // whether it may use them; of float32 they read only TF32
  bool tensor_cores_first = false;         // whether engines that use them are tried first
  bool relu = false;                       // whether the graph has one, which must not turn NaN into a number
  int64_t workspace = int64_t(256) << 20;  // most bytes
};

struct Engine {
  Descriptor config;
  int64_t number = -1;  // the library's number
  std::vector<cudnnBackendNumericalNote_t> numerics;
  std::vector<cudnnBackendBehaviorNote_t> behaviour;

  bool has(cudnnBackendNumericalNote_t note) const;
  bool is_allowed(const Rules& rules) const;
};

// Returns the engines that the library's heuristic proposes, best first. Throws DeviceError if it does not support the graph.
std::vector<Engine> engines(OpGraph& graph, const Target& target, cudnnBackendHeurMode_t mode);

class Plan {
 public:
  // Makes a plan. Throws DeviceError if the engine declines after all. Make one per engine config: cuDNN 9.19 refuses a second
  // plan for engines that are compiled at run time.
  Plan(Engine engine, const Target& target);

  const Engine& engine() const { return engine_; }
  int64_t workspace() const { return workspace_; }  // bytes

  // Queues the plan on the handle's stream. memory: of the graph's tensors, in the order of their creation.
  cudnnStatus_t run(cudnnHandle_t handle, const OpGraph& graph, std::span<void* const> memory, void* workspace) const;

 private:
  Engine engine_;
  Descriptor plan_;
  int64_t workspace_;
};

// The plans of one graph that keep the rules, best first, made on demand: the first proposals, and if none of them works, the
// fallback's.
class Plans {
 public:
  Plans(std::unique_ptr<OpGraph> graph, const Target& target, const Rules& rules);

  // Returns the i-th plan; null: there are no more. Valid until free_others().
  const Plan* at(size_t i, const Target& target);
  // Return the plan to run: the first, or that of choose(). Null: the library declines.
  const Plan* chosen(const Target& target) { return at(chosen_, target); }
  void choose(size_t i) { chosen_ = i; }
  // Moves on to the next plan, because the chosen one was refused when it ran.
  void refuse(const std::string& why);
  // Frees the other plans, because the chosen one has run.
  void free_others();

  const OpGraph& graph() const { return *graph_; }
  size_t proposed() const { return proposed_; }
  const std::string& problem() const { return problem_; }  // reason why the last plan was skipped

 private:
  void propose(const Target& target, cudnnBackendHeurMode_t mode);

  std::unique_ptr<OpGraph> graph_;
  Rules rules_;
  std::deque<Engine> engines_;  // not tried yet
  std::deque<Plan> plans_;
  size_t chosen_ = 0, proposed_ = 0;
  bool fallback_ = false;  // whether the fallback's engines were requested
  bool settled_ = false;   // whether the chosen plan has run, so that no more are made
  std::string problem_;
};

}  // namespace halfstep::cuda::dnn
