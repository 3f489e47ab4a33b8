// Captured graphs: a list of pieces of work, done in the order of their capture.
#include <algorithm>
#include <set>

#include "runtime.h"

using namespace emu;

namespace {

std::set<const void*> executables;

Graph& graph_of(cudaGraph_t handle) {
  if (!handle) fail("a null graph");
  return *reinterpret_cast<Graph*>(handle);
}
const Graph& executable_of(cudaGraphExec_t handle) {
  if (!executables.contains(handle)) fail("%p is not a live executable graph", static_cast<void*>(handle));
  return *reinterpret_cast<const Graph*>(handle);
}

}  // namespace

extern "C" {

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  Graph* copy = new Graph(graph_of(graph));
  executables.insert(copy);
  *executable = reinterpret_cast<cudaGraphExec_t>(copy);
  return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t) {
  executable_of(executable);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  for (const Work& work : executable_of(executable).nodes) {
    if (const cudaError_t refused = submit(stream, work)) return refused;
  }
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  Graph& g = graph_of(graph);
  for (size_t i = 0; nodes && i < std::min(*count, g.nodes.size()); ++i) nodes[i] = reinterpret_cast<cudaGraphNode_t>(&g.nodes[i]);
  *count = g.nodes.size();
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete &graph_of(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  run_pending();
  const Graph* graph = &executable_of(executable);
  executables.erase(graph);
  delete graph;
  return cudaSuccess;
}

}  // extern "C"
