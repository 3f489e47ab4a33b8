// SPDX-License-Identifier: Apache-2.0
// Captured graphs: pieces of work, each after others.
#include <algorithm>
#include <map>

#include "tests/emulators/source/runtime.h"

using namespace emu;

namespace {

struct Executable {
  std::deque<Node> nodes;
  std::map<const void*, Node*> by_handle;  // of the captured graph's nodes
  bool late = false;                       // the next launch leaves branches for later
};

// One launch.
class Run {
 public:
  Run(const Executable& e, bool late) : late_(late), done_(e.nodes.size(), 0) {
    std::map<const Node*, size_t> places;
    for (const Node& n : e.nodes) places[&n] = places.size();
    for (const Node& n : e.nodes) {
      nodes_.push_back(n);
      after_.emplace_back();
      for (const Node* other : n.after) after_.back().push_back(places.at(other));
    }
  }
  // Runs all work that is ready. True: nothing is left.
  bool go_on() {
    if (late_) {
      for (const bool branch : {false, true}) {
        for (size_t i = 0; i < nodes_.size(); ++i) {
          if (nodes_[i].branch == branch && !with_all_before(i)) return false;
        }
      }
      return true;
    }
    for (bool moved = true; moved;) {
      moved = false;
      for (const bool branch : {true, false}) {
        for (size_t i = 0; i < nodes_.size() && !moved; ++i) {
          const bool may = std::all_of(after_[i].begin(), after_[i].end(), [&](size_t before) { return done_[before] != 0; });
          moved = nodes_[i].branch == branch && !done_[i] && may && alone(i);
        }
      }
    }
    return std::count(done_.begin(), done_.end(), 0) == 0;
  }

 private:
  bool with_all_before(size_t i) {
    if (done_[i]) return true;
    for (const size_t before : after_[i]) {
      if (!with_all_before(before)) return false;
    }
    return alone(i);
  }
  bool alone(size_t i) {
    const Node& n = nodes_[i];
    if (n.ready && !n.ready()) return false;
    do_work(n.task);
    spend(1);
    done_[i] = 1;
    return true;
  }

  const bool late_;
  std::vector<Node> nodes_;
  std::vector<std::vector<size_t>> after_;
  std::vector<char> done_;
};

std::map<const void*, std::unique_ptr<Executable>> executables;
std::map<const void*, std::unique_ptr<Graph>> graphs;

Graph& graph_of(cudaGraph_t handle) {
  const auto it = graphs.find(handle);
  if (it == graphs.end()) fail("%p is not a live graph", static_cast<void*>(handle));
  return *it->second;
}
Executable& executable_of(cudaGraphExec_t handle) {
  const auto it = executables.find(handle);
  if (it == executables.end()) fail("%p is not a live executable graph", static_cast<void*>(handle));
  return *it->second;
}

}  // namespace

namespace emu {

cudaGraph_t new_graph(std::unique_ptr<Graph> graph) {
  const auto handle = reinterpret_cast<cudaGraph_t>(graph.get());
  graphs[handle] = std::move(graph);
  return handle;
}

}  // namespace emu

extern "C" {

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  const Lock lock(runtime_mutex());
  auto made = std::make_unique<Executable>();
  for (const Node& node : graph_of(graph).nodes) {
    Node& mine = made->nodes.emplace_back(node);
    for (const Node*& before : mine.after) before = made->by_handle.at(before);
    made->by_handle[&node] = &mine;
  }
  *executable = reinterpret_cast<cudaGraphExec_t>(made.get());
  executables[*executable] = std::move(made);
  return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t) {
  const Lock lock(runtime_mutex());
  executable_of(executable);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  const Lock lock(runtime_mutex());
  Executable& e = executable_of(executable);
  for (const Node& node : e.nodes) {
    if (node.task.kernel || node.task.what) note(node.task, /*in_graph=*/true);
  }
  const auto run = std::make_shared<Run>(e, std::exchange(e.late, !e.late));
  return submit_when(stream, {.work = [] {}, .what = nullptr}, [run] { return run->go_on(); });
}
cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node, const cudaKernelNodeParams* params) {
  const Lock lock(runtime_mutex());
  const auto& nodes = executable_of(executable).by_handle;
  const auto it = nodes.find(node);
  if (it == nodes.end()) return set_error(cudaErrorInvalidValue);
  if (std::none_of(graphs.begin(), graphs.end(), [&](const auto& g) {
        return std::any_of(g.second->nodes.begin(), g.second->nodes.end(),
                           [&](const Node& n) { return &n == static_cast<void*>(node); });
      })) {
    fail("cudaGraphExecKernelNodeSetParams: the graph that the node is of was destroyed");
  }
  Task& task = it->second->task;
  if (!task.kernel || task.kernel != params->func) return set_error(cudaErrorInvalidValue);
  task = task.with(*params);
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  const Lock lock(runtime_mutex());
  Graph& g = graph_of(graph);
  for (size_t i = 0; nodes && i < std::min(*count, g.nodes.size()); ++i) nodes[i] = reinterpret_cast<cudaGraphNode_t>(&g.nodes[i]);
  *count = g.nodes.size();
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const Lock lock(runtime_mutex());
  graph_of(graph);
  graphs.erase(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  const Lock lock(runtime_mutex());
  run_pending();
  executable_of(executable);
  executables.erase(executable);
  return cudaSuccess;
}

}  // extern "C"
