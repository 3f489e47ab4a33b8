// SPDX-License-Identifier: Apache-2.0
// Operation graphs, the engines proposed for them, and plans.
#include <algorithm>
#include <set>

#include "tests/emulators/fake_cudnn/fake_cudnn.h"

namespace emu::dnn {
namespace {

constexpr int64_t kMiB = int64_t(1) << 20;

void add_tensor(Graph& graph, const Tensor& t) {
  const auto [at, is_new] = graph.tensors.emplace(t.uid, t);
  if (!is_new && !(at->second == t))
    misuse(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "the graph has two tensors of one uid: %s, and %s", at->second.text().c_str(),
           t.text().c_str());
}

// The operations in an order in which they can be done.
std::vector<Operation> ordered(std::vector<Operation> operations) {
  std::map<int64_t, size_t> writer;
  for (size_t i = 0; i < operations.size(); ++i) {
    const Tensor& out = operations[i].out;
    if (out.by_value) misuse(CUDNN_STATUS_BAD_PARAM, "an operation writes %s, which is given by value", out.text().c_str());
    if (!writer.emplace(out.uid, i).second) misuse(CUDNN_STATUS_BAD_PARAM, "two operations write %s", out.text().c_str());
  }
  std::vector<int> state(operations.size(), 0);  // 1: being visited, 2: done
  std::vector<Operation> order;
  const auto visit = [&](const auto& self, size_t i) -> void {
    if (state[i] == 1) misuse(CUDNN_STATUS_BAD_PARAM, "the operations form a cycle through %s", operations[i].out.text().c_str());
    if (state[i]++) {
      state[i] = 2;
      return;
    }
    for (const Tensor& t : operations[i].in) {
      if (const auto w = writer.find(t.uid); w != writer.end())
        self(self, w->second);
      else if (t.is_virtual)
        misuse(CUDNN_STATUS_BAD_PARAM, "no operation writes the virtual %s", t.text().c_str());
    }
    state[i] = 2;
    order.push_back(operations[i]);
  };
  for (size_t i = 0; i < operations.size(); ++i) visit(visit, i);
  return order;
}

// dQ of attention: parts that run at the same time add to it in f32, where the graph has it in memory before it is narrowed. No
// numerical note says. The caller zeroes it.
void find_accumulators(Graph& graph) {
  for (Operation& op : graph.operations) {
    if (op.kind != Kind::matmul || op.out.is_virtual || graph.matmuls < 4 || op.out.type != CUDNN_DATA_FLOAT) continue;
    for (const Operation& later : graph.operations) {
      if (later.kind == Kind::pointwise && later.pointwise.mode == CUDNN_POINTWISE_IDENTITY && later.in[0].uid == op.out.uid)
        op.accumulates = true;
    }
  }
}

// The gradient of attention as versions up to 9.15.0 compute it: where the keys are no multiple of 128, products read beyond them
// unless they know how many there are, and the scores have a padding mask; before 9.10.0 a second one.
void find_old_defects(Graph& graph) {
  if (graph.matmuls < 4 || cudnnGetVersion() > 91500) return;
  size_t masks = 0;
  int64_t keys = 0;
  for (const Operation& op : graph.operations) {
    masks += op.kind == Kind::pointwise && op.pointwise.mode == CUDNN_POINTWISE_LOGICAL_AND;
    if (op.kind == Kind::matmul && keys == 0) keys = op.out.dims.back();
  }
  if (keys % 128 == 0) return;
  const bool hidden = masks >= (cudnnGetVersion() < 91000 ? 2 : 1);
  for (Operation& op : graph.operations) {
    const bool informed = op.extents[0] && (op.extents[1] || op.extents[2]);
    op.reads_beyond = op.kind == Kind::matmul && !(informed && hidden);
  }
}

// Why no engine takes the graph, or null.
const char* unsupported(const Graph& graph) {
  const unsigned refused = unsigned(setting("HALFSTEP_FAKE_DNN_REFUSE"));
  for (const Operation& op : graph.operations) {
    if (op.family() & refused && (op.kind != Kind::pointwise || graph.has_conv)) return "as HALFSTEP_FAKE_DNN_REFUSE says";
    const bool half = op.in.size() > 1 && (op.in[0].type == CUDNN_DATA_HALF || op.in[0].type == CUDNN_DATA_BFLOAT16);
    if (graph.has_conv && op.family() <= kBackwardFilter && half && op.out.type != op.in[0].type && !op.out.is_virtual)
      return "convolutions write what they read";
    if (options().capability < 80) {
      for (const Tensor& t : op.in) {
        if (t.type == CUDNN_DATA_BFLOAT16) return "bfloat16 needs compute capability 8.0";
      }
    }
  }
  if (graph.matmuls >= 2) {  // attention
    if (options().capability < 80) return "attention needs compute capability 8.0";
    const auto first =
        std::find_if(graph.operations.begin(), graph.operations.end(), [](const Operation& op) { return op.kind == Kind::matmul; });
    const int64_t d = first->in[0].dims.back();
    if (first->in[0].type == CUDNN_DATA_FLOAT) return "attention is of 16-bit floats";
    if (d % 8 || d > 256) return "the size of a head is a multiple of 8, at most 256";
  }
  return nullptr;
}

// Scores that are kept for all positions at once.
int64_t scores_bytes(const Graph& graph) {
  if (graph.matmuls < 4) return 0;
  int64_t bytes = 0;
  for (const Operation& op : graph.operations) {
    if (op.accumulates) return 0;
    if (op.kind == Kind::matmul && op.out.is_virtual) bytes = std::max(bytes, 2 * op.out.elements());
  }
  return bytes;
}

const Descriptor& required_child(const Descriptor& d, cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type) {
  const Descriptor* child = d.child(name);
  if (!child || child->type != type)
    misuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "attribute %d of a %s is no %s", int(name), name_of(d.type), name_of(type));
  return *child;
}

template <class T>
void give(const std::vector<T>& from, cudnnBackendAttributeType_t wanted, cudnnBackendAttributeType_t type, int64_t requested,
          int64_t* count, void* values) {
  if (type != wanted)
    misuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "an attribute of type %d is asked for as type %d", int(wanted), int(type));
  if (count) *count = int64_t(from.size());
  if (values && !from.empty()) std::memcpy(values, from.data(), size_t(std::min(requested, int64_t(from.size()))) * sizeof(T));
}

}  // namespace

unsigned Operation::family() const {
  switch (kind) {
    case Kind::conv_forward: return kForward;
    case Kind::conv_backward_data: return kBackwardData;
    case Kind::conv_backward_filter: return kBackwardFilter;
    case Kind::pointwise: return kPointwise;
    case Kind::matmul: return kMatmul;
    default: return kOther;
  }
}

bool Config::compiled() const {
  const auto& notes = engine.behavior;
  return std::find(notes.begin(), notes.end(), CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) != notes.end();
}

std::shared_ptr<const Graph> make_graph(const Descriptor& d) {
  Graph graph;
  graph.has_handle = d.has(CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
  std::vector<Operation> operations;
  for (const auto& child : d.attributes.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).descriptors) {
    if (!child->operation || child->operation->out.dims.empty())
      misuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "a graph of a %s, which is no operation", name_of(child->type));
    operations.push_back(*child->operation);
  }
  std::set<int64_t> read, written;
  for (const Operation& op : operations) {
    for (const Tensor& t : op.in) {
      add_tensor(graph, t);
      read.insert(t.uid);
    }
    add_tensor(graph, op.out);
    written.insert(op.out.uid);
    graph.matmuls += op.kind == Kind::matmul;
    graph.has_conv |= op.family() <= kBackwardFilter;
  }
  for (const auto& [uid, t] : graph.tensors) {
    if (t.is_virtual && !read.contains(uid)) misuse(CUDNN_STATUS_BAD_PARAM, "nothing reads the virtual %s", t.text().c_str());
    if (written.contains(uid) && elements_overlap(t))
      misuse(CUDNN_STATUS_BAD_PARAM, "elements of an output lie in one place: %s", t.text().c_str());
  }
  graph.operations = ordered(std::move(operations));
  find_accumulators(graph);
  find_old_defects(graph);
  return std::make_shared<const Graph>(std::move(graph));
}

// In the order in which they are proposed, the worst first.
std::vector<Engine> all_engines(const Graph& graph) {
  if (unsupported(graph)) return {};
  constexpr auto kTensor = CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
  constexpr auto kCompiled = CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
  const bool wide = std::all_of(graph.operations.begin(), graph.operations.end(), [](const Operation& op) {
    return std::all_of(op.in.begin(), op.in.end(), [](const Tensor& t) { return t.is_virtual || t.type == CUDNN_DATA_FLOAT; });
  });
  const int64_t scores = scores_bytes(graph);
  std::vector<Engine> all = {
      {.arithmetic = Arithmetic::exact, .numerical = {kTensor}, .behavior = {}, .workspace = scores, .broken = true},
      {.arithmetic = Arithmetic::varying,
       .numerical = {kTensor, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC},
       .behavior = {},
       .workspace = scores},
      {.arithmetic = Arithmetic::exact, .numerical = {kTensor}, .behavior = {}, .workspace = scores + 8192 * kMiB}};
  if (wide) {
    all.push_back({.arithmetic = Arithmetic::half_inputs,
                   .numerical = {kTensor, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS},
                   .behavior = {},
                   .workspace = scores});
    all.push_back({.arithmetic = Arithmetic::tf32, .numerical = {kTensor}, .behavior = {kCompiled}, .workspace = scores + 4096});
    all.push_back({.arithmetic = Arithmetic::exact, .numerical = {}, .behavior = {}, .workspace = scores + 8192});
    all.push_back({.arithmetic = Arithmetic::exact, .numerical = {}, .behavior = {}, .workspace = scores});
  } else {
    all.push_back({.arithmetic = Arithmetic::coarse,
                   .numerical = {kTensor, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION},
                   .behavior = {},
                   .workspace = scores});
    all.push_back({.arithmetic = Arithmetic::exact, .numerical = {kTensor}, .behavior = {kCompiled}, .workspace = scores + 4096});
    all.push_back({.arithmetic = Arithmetic::exact, .numerical = {kTensor}, .behavior = {}, .workspace = scores});
  }
  const int64_t least = int64_t(setting("HALFSTEP_FAKE_DNN_WORKSPACE"));
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].index = int64_t(i);
    all[i].workspace = std::max(all[i].workspace, least);
  }
  return all;
}

std::vector<Engine> proposed_engines(const Graph& graph, cudnnBackendHeurMode_t mode) {
  std::vector<Engine> all = all_engines(graph);
  if (mode == CUDNN_HEUR_MODE_FALLBACK && !all.empty()) return {all.back()};
  return all;
}

void finalize_engine(Descriptor& d) {
  switch (d.type) {
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR: {
      d.graph = required_child(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR).graph;
      if (!d.graph->has_handle && !d.child(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP))
        misuse(CUDNN_STATUS_BAD_PARAM, "neither the graph has a handle nor the heuristic a device");
      d.proposals = proposed_engines(*d.graph, d.one<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE));
      return;
    }
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR: {
      const auto graph = required_child(d, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR).graph;
      const int64_t index = d.one<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
      for (const Engine& engine : all_engines(*graph)) {
        if (engine.index == index) d.config = std::make_shared<const Config>(Config{graph, engine});
      }
      if (!d.config) refuse(CUDNN_STATUS_NOT_SUPPORTED, "no engine %ld for this graph", long(index));
      return;
    }
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR: {
      const Config& of = *required_child(d, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR).config;
      d.config = std::make_shared<const Config>(Config{of.graph, of.engine});
      return;
    }
    default: break;
  }
  // A plan. Code is loaded, which a stream under capture does not bear.
  if (refuse_unsafe() != cudaSuccess)
    refuse(CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER, "a plan was built while a stream is captured");
  const Config& config = *required_child(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).config;
  if (!d.has(CUDNN_ATTR_EXECUTION_PLAN_HANDLE) && !d.child(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP))
    misuse(CUDNN_STATUS_BAD_PARAM, "a plan has neither a handle nor a device");
  if (config.engine.broken) refuse(CUDNN_STATUS_NOT_SUPPORTED, "engine %ld does not support the graph", long(config.engine.index));
  // As version 9.19 does.
  if (config.compiled() && config.built)
    refuse(CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED,
           "a second plan of one engine configuration that is compiled at run time");
  config.built = true;
  d.plan = std::make_shared<const Plan>(Plan{config.graph, config.engine});
}

void get_engine_attribute(const Descriptor& d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                          int64_t requested, int64_t* count, void* values) {
  const auto descriptors = [&](size_t n) { return static_cast<cudnnBackendDescriptor_t*>(values)[n]; };
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
      if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR) misuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "results are descriptors");
      *count = values ? std::min(requested, int64_t(d.proposals.size())) : int64_t(d.proposals.size());
      for (int64_t i = 0; values && i < *count; ++i) {
        const auto to = descriptor_of(descriptors(size_t(i)));
        if (to->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR || to->finalized)
          misuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "results go to fresh engine configurations, not to a %s",
                 name_of(to->type));
        to->config = std::make_shared<const Config>(Config{d.graph, d.proposals[size_t(i)]});
        to->finalized = true;
      }
      return;
    case CUDNN_ATTR_ENGINECFG_ENGINE: {
      if (requested != 1 || type != CUDNN_TYPE_BACKEND_DESCRIPTOR || !values)
        misuse(CUDNN_STATUS_BAD_PARAM, "an engine configuration has one engine");
      const auto to = descriptor_of(descriptors(0));
      if (to->type != CUDNN_BACKEND_ENGINE_DESCRIPTOR || to->finalized)
        misuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "an engine goes to a fresh engine descriptor, not to a %s",
               name_of(to->type));
      to->config = d.config;
      to->finalized = true;
      if (count) *count = 1;
      return;
    }
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
      return give<int64_t>({d.config->engine.index}, CUDNN_TYPE_INT64, type, requested, count, values);
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
      return give(d.config->engine.numerical, CUDNN_TYPE_NUMERICAL_NOTE, type, requested, count, values);
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
      return give(d.config->engine.behavior, CUDNN_TYPE_BEHAVIOR_NOTE, type, requested, count, values);
    case CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE:
      return give<int64_t>({d.config->engine.workspace}, CUDNN_TYPE_INT64, type, requested, count, values);
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      return give<int64_t>({d.plan->engine.workspace}, CUDNN_TYPE_INT64, type, requested, count, values);
    case CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT:
      return give<int64_t>({int64_t(all_engines(*d.graph).size())}, CUDNN_TYPE_INT64, type, requested, count, values);
    default: break;
  }
  const auto it = d.attributes.find(name);
  if (it == d.attributes.end() || type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
    refuse(CUDNN_STATUS_NOT_SUPPORTED, "attribute %d of a %s cannot be read", int(name), name_of(d.type));
  if (it->second.type != type)
    misuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "attribute %d is not of type %d", int(name), int(type));
  if (count) *count = it->second.count;
  const size_t element = it->second.bytes.size() / size_t(it->second.count);
  if (values) std::memcpy(values, it->second.bytes.data(), size_t(std::min(requested, it->second.count)) * element);
}

}  // namespace emu::dnn
