// SPDX-License-Identifier: Apache-2.0
// The backward pass. Nodes run newest first. Every consumer of a node's outputs is newer than the node, so when a node is the
// newest of the waiting nodes, all its gradients have arrived. This needs no dependency counts and no recursion.
#include <algorithm>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "amp/autocast/autocast.h"
#include "framework/autograd/autograd.h"
#include "framework/autograd/leaf_listener.h"
#include "framework/autograd/node.h"
#include "framework/autograd/scaled_backward.h"
#include "framework/backend/observe.h"
#include "framework/base/layer_path.h"

namespace halfstep {

struct NodeSet : std::unordered_set<const Node*> {};

bool BackwardCall::needs(size_t i) const {
  return i < node.edges.size() && node.edges[i] && (!wanted || wanted->contains(node.edges[i].node.get()));
}

namespace {

Tensor ones_like_output(const Tensor& t) {
  Tensor g = Tensor::empty(t.shape(), {.dtype = t.dtype(), .device = t.device()});
  g.fill_(1);
  return g;
}

// Gradients that have arrived for one node.
struct Inbox {
  Tensors grads;
  std::vector<uint8_t> owned;  // by input: whether the engine made this sum and may add to it in place
  Tensor part;                 // of input 0, not added yet: for a node that takes its gradient in two parts

  // Adds `g` to the sum of input `index`, in `dtype`. Adds in place if nobody else owns the sum: a weight that two layers share
  // may be large.
  void add(uint32_t index, Tensor g, DType dtype, bool takes_two_parts) {
    if (grads.size() <= index) grads.resize(index + 1), owned.resize(index + 1, 0);
    join();
    Tensor& slot = grads[index];
    if (!slot.defined()) {
      slot = std::move(g);
    } else if (takes_two_parts && !owned[index] && !grad_enabled() && g.dtype() == dtype && slot.dtype() == dtype) {
      part = std::move(g);
    } else {
      sum_up(index, std::move(g), dtype);
    }
  }
  // Adds the part that was not added yet.
  void join() {
    if (part.defined()) sum_up(0, std::exchange(part, {}), grads[0].dtype());
  }

 private:
  void sum_up(uint32_t index, Tensor g, DType dtype) {
    Tensor& slot = grads[index];
    if (owned[index] && !grad_enabled()) {
      slot.add_(g);
    } else {
      if (!grad_enabled() && g.dtype() == dtype && is_sole(g)) {
        g.add_(slot);
        slot = std::move(g);
      } else if (!grad_enabled() && slot.dtype() == dtype && is_sole(slot)) {
        slot.add_(g);
      } else {
        slot = slot.to(dtype).add(g);
      }
      owned[index] = 1;
    }
  }
};

class Engine {
 public:
  Engine(bool retain_graph, bool create_graph, LeafReports* reports = nullptr)
      : retain_graph_(retain_graph || create_graph), create_graph_(create_graph), reports_(reports) {}

  // Delivers the gradients of the outputs: ones for a one-element output without a given gradient.
  void seed(const Tensors& outputs, const Tensors& grad_outputs) {
    check<AutogradError>(grad_outputs.size() <= outputs.size(), "backward", "there are more gradients than outputs, got ",
                         grad_outputs.size(), " and ", outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Tensor& out = outputs[i];
      check<AutogradError>(out.defined() && out.requires_grad(), "backward", "output ", i,
                           " does not require grad and has no graph",
                           Help{"set requires_grad on an input, and do not compute it inside NoGrad"});
      Tensor g = i < grad_outputs.size() ? grad_outputs[i] : Tensor();
      if (!g.defined()) {
        check<AutogradError>(out.numel() == 1, "backward", "a gradient can be left out only for one-element outputs, got shape ",
                             out.shape());
        g = ones_like_output(out);
      }
      check<ShapeError>(g.shape() == out.shape(), "backward", "gradient of output ", i, " must have its shape ", out.shape(),
                        ", got ", g.shape());
      check<DeviceError>(g.device() == out.device(), "backward", "gradient of output ", i, " must be on its device ", out.device(),
                         ", got ", g.device());
      if (g.impl()->autograd && g.impl()->autograd->scaled) ScaledBackward::mark();
      const Edge edge = edge_of(out);
      deliver(edge, g.dtype() == edge.dtype ? g : g.to(edge.dtype));
    }
  }

  // Requests the gradients of `inputs`: only nodes on a path to them will run. accumulate: leaves also add theirs to .grad.
  void set_targets(const Tensors& inputs, const Tensors& outputs, bool accumulate = false) {
    has_targets_ = true;
    uint64_t oldest = UINT64_MAX;
    for (const Tensor& t : inputs) {
      const Edge e = t.defined() ? target_of(t) : Edge{};
      targets_.push_back(e);
      if (!e) continue;
      needed_.insert(e.node.get());
      if (accumulate && e.node->is_leaf) nodes_to_run_.insert(e.node.get());
      oldest = std::min(oldest, e.node->sequence);
    }
    // Collects all reachable nodes that are not older than every target. Then, oldest first: a node is needed if one of its edges
    // leads to a needed node.
    std::vector<Node*> stack, reachable;
    std::unordered_set<Node*> seen;
    auto visit = [&](const Edge& e) {
      if (e && e.node->sequence >= oldest && seen.insert(e.node.get()).second) stack.push_back(e.node.get());
    };
    for (const Tensor& t : outputs) visit(edge_of(t));
    while (!stack.empty()) {
      Node* n = stack.back();
      stack.pop_back();
      reachable.push_back(n);
      for (const Edge& e : n->edges) visit(e);
    }
    std::sort(reachable.begin(), reachable.end(), [](Node* a, Node* b) { return a->sequence < b->sequence; });
    for (Node* n : reachable)
      if (std::any_of(n->edges.begin(), n->edges.end(), [&](const Edge& e) { return e && needed_.contains(e.node.get()); })) {
        needed_.insert(n);
        nodes_to_run_.insert(n);
      }
  }

  // Runs the nodes that have gradients, newest first, until none is left.
  void run() {
    const autocast::Off off;
    const MemoryScope memory(MemoryTag::gradients);
    const GradMode mode(create_graph_);
    const StepPassScope pass(StepPass::backward);
    while (!ready_.empty()) {
      const std::shared_ptr<Node> node = ready_.top().node;
      ready_.pop();
      auto it = inboxes_.find(node.get());
      if (is_watched(*node)) it->second.join();
      Tensors grads = std::move(it->second.grads);
      Tensor part = std::move(it->second.part);
      inboxes_.erase(it);
      grads.resize(node->outputs.size());
      if (part.defined()) grads.push_back(std::move(part));
      call_hooks(*node, grads);
      for (size_t i = 0; i < targets_.size(); ++i)
        if (targets_[i].node == node) target_gradients_[i] = grads[targets_[i].index];
      if (has_targets_ && !nodes_to_run_.contains(node.get())) continue;
      run_node(*node, std::move(grads));
    }
  }

  Tensors target_gradients() {
    Tensors out(targets_.size());
    for (auto& [i, g] : target_gradients_) out[i] = g;
    return out;
  }

 private:
  struct Ready {
    std::shared_ptr<Node> node;
    bool operator<(const Ready& o) const { return node->sequence < o.node->sequence; }
  };

  // Returns the edge of `t` like edge_of, but stops at a tensor that autocast made.
  static Edge target_of(const Tensor& t) {
    if (t.impl()->autograd && t.impl()->autograd->node) {
      const AutogradMeta& meta = *t.impl()->autograd;
      return {meta.node, meta.output_index, meta.node->outputs[meta.output_index].dtype};
    }
    return edge_of(t);
  }

  // Returns whether someone wants the sum of a node's gradients: a hook, retain_grad or the caller of grad().
  bool is_watched(const Node& node) const {
    return !node.hooks.empty() || !node.retained.empty() ||
           std::any_of(targets_.begin(), targets_.end(), [&](const Edge& e) { return e.node.get() == &node; });
  }

  // Adds `g` to the sum at `edge`, and queues its node if this is the first gradient that reaches it.
  void deliver(const Edge& edge, Tensor g) {
    const auto [it, is_new] = inboxes_.try_emplace(edge.node.get());
    it->second.add(edge.index, std::move(g), edge.dtype, edge.node->takes_two_parts());
    if (is_new) ready_.push({edge.node});
  }

  // Lets hooks replace the gradients of a node's outputs, then stores those of outputs with retain_grad.
  static void call_hooks(Node& node, Tensors& grads) {
    for (size_t i = 0; i < node.hooks.size(); ++i) {
      if (!node.hooks[i] || !grads[i].defined()) continue;
      const auto hooks = *node.hooks[i];  // a hook may remove itself
      for (const auto& [key, hook] : hooks) {
        const Tensor replaced = hook(grads[i]);
        if (!replaced.defined()) continue;
        check<ShapeError>(replaced.shape() == grads[i].shape(), "hook", "a hook must return a gradient of shape ", grads[i].shape(),
                          ", got ", replaced.shape());
        check<DeviceError>(replaced.device() == grads[i].device(), "hook", "a hook must return a gradient on ", grads[i].device(),
                           ", got one on ", replaced.device());
        grads[i] = replaced.to(grads[i].dtype());
      }
    }
    for (size_t i = 0; i < node.retained.size(); ++i)
      if (const auto impl = node.retained[i].lock(); impl && grads[i].defined()) {
        Tensor& slot = impl->meta().grad;
        slot = slot.defined() ? slot.add(grads[i]) : grads[i];
      }
  }

  // Runs the backward of a node inside its layer's scope, so that errors name the layer.
  static Tensors run_backward(Node& node, Tensors grads, const BackwardCall& call) {
    const LayerScope layer(node.layer);
    CallScope scope([&] { return ObservedCall{.name = node.name(), .inputs = grads, .layer = node.layer, .is_backward = true}; });
    try {
      Tensors out = node.backward(std::move(grads), call);
      scope.done({.outputs = out});
      return out;
    } catch (Error& e) {
      if (node.layer) e.leave_layer(*node.layer, "backward of " + std::string(node.name()));
      throw;
    }
  }

  // Runs a node's backward, and delivers its gradients to the nodes of its inputs.
  void run_node(Node& node, Tensors grads) {
    const BackwardCall call{node, has_targets_ ? &needed_ : nullptr, !retain_graph_, reports_};
    Tensors results = run_backward(node, std::move(grads), call);
    for (size_t i = 0; i < results.size(); ++i) {
      if (!results[i].defined() || !call.needs(i)) continue;
      Tensor g = std::move(results[i]);
      const Edge& edge = node.edges[i];
      const OutputMeta& expected = edge.node->outputs[edge.index];
      check<AutogradError>(g.shape() == expected.shape, node.name(), "its backward gave input ", i, " a gradient of shape ",
                           g.shape(), ", but the input has ", expected.shape);
      check<DeviceError>(g.device() == expected.device, node.name(), "its backward gave input ", i, " a gradient on ", g.device(),
                         ", but the input is on ", expected.device);
      if (g.dtype() != edge.dtype && !(is_half(g.dtype()) && may_stay_low(edge))) g = g.to(edge.dtype);
      deliver(edge, std::move(g));
    }
    if (!retain_graph_) node.release_saved();
  }

  bool retain_graph_, create_graph_, has_targets_ = false;
  LeafReports* reports_;
  std::priority_queue<Ready> ready_;
  std::unordered_map<Node*, Inbox> inboxes_;
  std::vector<Edge> targets_;                            // per input of grad()
  std::unordered_map<size_t, Tensor> target_gradients_;  // by input
  NodeSet needed_;                                       // targets and nodes on paths to them
  std::unordered_set<const Node*> nodes_to_run_;         // subset of needed_ whose backward must run
};

}  // namespace

void backward(const Tensors& outputs, const Tensors& grad_outputs, bool retain_graph, bool create_graph, const Tensors& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i)
    check<AutogradError>(inputs[i].defined() && inputs[i].requires_grad(), "backward", "input ", i, " does not require grad");
  const ScaledBackward scaled;
  LeafReports reports;
  Engine engine(retain_graph, create_graph, &reports);
  if (!inputs.empty()) engine.set_targets(inputs, outputs, /*accumulate=*/true);
  engine.seed(outputs, grad_outputs);
  engine.run();
  reports.done();
  if (inputs.empty()) return;
  const Tensors found = engine.target_gradients();
  for (size_t i = 0; i < inputs.size(); ++i) {
    check<AutogradError>(found[i].defined(), "backward", "input ", i, " was not used to compute the outputs");
    if (inputs[i].is_leaf() || inputs[i].impl()->meta().retains_grad) continue;
    Tensor& slot = inputs[i].impl()->meta().grad;
    const GradMode mode(create_graph);
    slot = slot.defined() ? slot.add(found[i]) : found[i];
  }
}

void backward_unheard(const Tensors& outputs, const Tensors& grad_outputs) {
  const ScaledBackward scaled;
  Engine engine(false, false);
  engine.seed(outputs, grad_outputs);
  engine.run();
}

Tensors grad(const Tensors& outputs, const Tensors& inputs, const Tensors& grad_outputs, const GradOptions& options) {
  for (size_t i = 0; i < inputs.size(); ++i)
    check<AutogradError>(inputs[i].defined() && inputs[i].requires_grad(), "grad", "input ", i, " does not require grad");
  const ScaledBackward scaled;
  Engine engine(options.retain_graph, options.create_graph);
  engine.set_targets(inputs, outputs);
  engine.seed(outputs, grad_outputs);
  engine.run();
  Tensors result = engine.target_gradients();
  for (size_t i = 0; i < result.size(); ++i)
    check<AutogradError>(options.allow_unused || result[i].defined(), "grad", "input ", i, " was not used to compute the outputs",
                         Help{"set allow_unused = true to get an undefined gradient instead"});
  return result;
}

}  // namespace halfstep
