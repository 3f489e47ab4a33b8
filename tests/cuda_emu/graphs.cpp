// Captured graphs: a list of pieces of work, done in the order of their capture.
#include <algorithm>
#include <map>

#include "runtime.h"

using namespace emu;

namespace {

struct Executable {
  std::deque<Task> nodes;
  std::map<const void*, Task*> by_handle;  // of the captured graph's nodes
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
  for (const Task& node : graph_of(graph).nodes) made->by_handle[&node] = &made->nodes.emplace_back(node);
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
  for (const Task& task : executable_of(executable).nodes) {
    note(task, /*in_graph=*/true);
    if (const cudaError_t refused = submit(stream, {.work = task.work, .what = nullptr})) return refused;
  }
  return cudaSuccess;
}
cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node, const cudaKernelNodeParams* params) {
  const Lock lock(runtime_mutex());
  const auto& nodes = executable_of(executable).by_handle;
  const auto it = nodes.find(node);
  if (it == nodes.end()) return set_error(cudaErrorInvalidValue);
  if (std::none_of(graphs.begin(), graphs.end(), [&](const auto& g) {
        return std::any_of(g.second->nodes.begin(), g.second->nodes.end(),
                           [&](const Task& t) { return &t == static_cast<void*>(node); });
      })) {
    fail("cudaGraphExecKernelNodeSetParams: the graph that the node is of was destroyed");
  }
  Task& task = *it->second;
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
