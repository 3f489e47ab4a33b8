// SPDX-License-Identifier: Apache-2.0
// How the library would run a graph: its engines, those of them that keep our promises, and plans that are ready to run.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "cuda/dnn/graph.h"

namespace halfstep::cuda::dnn {

// The device that plans are made for.
class Target {
 public:
  static Target of(cudnnHandle_t handle);                   // the handle's, on which they can run
  static Target described(const std::string& description);  // cuDNN's description of a device, in JSON: to ask without a GPU

  cudnnHandle_t handle() const { return handle_; }
  // Null where there is a handle.
  const Descriptor* description() const { return description_ ? &*description_ : nullptr; }

 private:
  cudnnHandle_t handle_ = nullptr;
  std::optional<Descriptor> description_;
};

// What an engine may do. None may give other bits from run to run, round its operands to fewer bits, or add in fewer.
struct Rules {
  bool tensor_cores = true;                // false: float32 is not rounded to TF32 either
  bool tensor_cores_first = false;         // engines that use them are tried before the others
  bool relu = false;                       // the graph has one, which must not make a number of NaN
  int64_t workspace = int64_t(256) << 20;  // bytes, at most
};

struct Engine {
  Descriptor config;
  int64_t number = -1;  // the library's
  std::vector<cudnnBackendNumericalNote_t> numerics;
  std::vector<cudnnBackendBehaviorNote_t> behaviour;

  bool has(cudnnBackendNumericalNote_t note) const;
  bool is_allowed(const Rules& rules) const;
};

// What the library's heuristic proposes, best first. Throws DeviceError where the library has no such graph.
std::vector<Engine> engines(Graph& graph, const Target& target, cudnnBackendHeurMode_t mode);

class Plan {
 public:
  // Throws DeviceError where the engine does not do it after all. Of one engine's config only once: of those that are compiled at
  // run time cuDNN 9.19 refuses a second.
  Plan(Engine engine, const Target& target);

  const Engine& engine() const { return engine_; }
  int64_t workspace() const { return workspace_; }  // bytes

  // Queues it on the handle's stream. memory: of the graph's tensors, in the order in which they were made.
  cudnnStatus_t run(cudnnHandle_t handle, const Graph& graph, std::span<void* const> memory, void* workspace) const;

 private:
  Engine engine_;
  Descriptor plan_;
  int64_t workspace_;
};

// The plans of one graph that keep the rules, best first, made when they are asked for: the first proposals, and where none of them
// serves the fallback's.
class Plans {
 public:
  Plans(std::unique_ptr<Graph> graph, const Target& target, const Rules& rules);

  // The i-th; null: there are no more. Valid until settle().
  const Plan* at(size_t i, const Target& target);
  // The one to run: the first, or the choice of choose(). Null: the library declines.
  const Plan* chosen(const Target& target) { return at(chosen_, target); }
  void choose(size_t i) { chosen_ = i; }
  // The chosen one was refused when it ran: on to the next.
  void refuse(const std::string& why);
  // The chosen one has run: the others go.
  void settle();

  const Graph& graph() const { return *graph_; }
  size_t proposed() const { return proposed_; }
  const std::string& problem() const { return problem_; }  // the last reason why something was passed over

 private:
  void propose(const Target& target, cudnnBackendHeurMode_t mode);

  std::unique_ptr<Graph> graph_;
  Rules rules_;
  std::deque<Engine> engines_;  // not tried yet
  std::deque<Plan> plans_;
  size_t chosen_ = 0, proposed_ = 0;
  bool fallback_ = false, settled_ = false;
  std::string problem_;
};

}  // namespace halfstep::cuda::dnn
