// SPDX-License-Identifier: Apache-2.0
// The graph: nodes made by ops, edges to the nodes of their inputs, and what backward needs.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "framework/tensor/tensor.h"

namespace halfstep {

// To input `index` of the backward of `node`, i.e. to its output `index` in forward. Null when no gradient is wanted.
struct Edge {
  std::shared_ptr<Node> node;
  uint32_t index = 0;
  DType dtype = DType::f32;  // dtype of the gradient: the input's before autocast lowered it, float32 where autocast raised it
  explicit operator bool() const { return node != nullptr; }
};

// A tensor kept for backward, with the version it had. An op's own output is kept without its history, which is put back on
// use, so that a node never owns itself.
class SavedTensor {
 public:
  SavedTensor() = default;
  // `output_index` >= 0: t is that output of the node that keeps it.
  explicit SavedTensor(const Tensor& t, int output_index = -1);
  // Throws AutogradError "x was modified in place after <op> saved it" or when the graph was freed.
  Tensor unpack(Node& owner) const;
  void release() {
    tensor_ = Tensor();
    released_ = true;
  }

 private:
  Tensor tensor_;
  bool released_ = false;
  uint64_t version_ = 0;
  int output_index_ = -1;
};

// Gradient metadata of one output, so that missing gradients can be made as zeros and wrong ones be refused.
struct OutputMeta {
  Shape shape;
  DType dtype = DType::f32;
  Device device = Device::cpu;
};

class LeafReports;  // leaf_listener.h
class Node;
struct NodeSet;  // engine.cpp

// What one run of the backward asks of a node. The run keeps it, not the node, so that threads may each run their own.
struct BackwardCall {
  const Node& node;
  const NodeSet* wanted = nullptr;  // nodes on a path to the inputs of grad(); null: all
  bool is_last = false;             // saved tensors are freed after this backward
  LeafReports* reports = nullptr;   // gets the leaves whose gradients are complete; null: nobody does
  // Is the gradient of input i wanted?
  bool needs(size_t i) const;
};

class Node : public std::enable_shared_from_this<Node> {
 public:
  virtual ~Node() = default;
  virtual std::string_view name() const = 0;
  // grads: one per output, undefined where no gradient arrived; passed by value, so that each can be freed after its use.
  // Returns one gradient per edge; undefined means zero. Runs with grad mode on when the backward is itself recorded.
  virtual Tensors backward(Tensors grads, const BackwardCall& call) = 0;
  virtual void release_saved() {}  // frees what forward saved, after a backward that does not retain the graph
  virtual bool is_autocast_cast() const { return false; }  // edge_of steps over these

  uint64_t sequence = 0;                // creation order: later nodes run first
  bool is_leaf = false;                 // adds gradients that arrive to the .grad of a leaf
  std::vector<Edge> edges;              // one per tensor input
  std::vector<OutputMeta> outputs;      // one per output
  const std::string* layer = nullptr;   // that made it; null outside of any. Never freed
  std::vector<std::shared_ptr<HookList>> hooks;      // per output; may be short
  std::vector<std::weak_ptr<TensorImpl>> retained;   // outputs with retain_grad; may be short
  Node* next_to_destroy = nullptr;
};

// Is this the only handle of the memory, so that a gradient may be taken over or added to in place?
bool is_sole(const Tensor& t);

// May the gradient that follows `edge` stay in a 16-bit dtype? See LowGradients.
bool may_stay_low(const Edge& edge);

// Makes a node that is destroyed without recursion, however deep the graph below it.
void destroy_node(Node* node);
template <class N, class... Args>
std::shared_ptr<N> make_node(Args&&... args) {
  return std::shared_ptr<N>(new N(std::forward<Args>(args)...), [](N* n) { destroy_node(n); });
}

// Throws AutogradError for a view from before a recorded write to its memory: it lacks the history that the write gave to its base.
void check_view(const TensorImpl& impl);

// The edge that a gradient of `t` follows: to its node, to its accumulator, or none.
// Autocast's casts to 16 bits are stepped over, so that an op may deliver the gradient in the dtype before the cast.
Edge edge_of(const Tensor& t);
// Makes `node` the history of `outputs` and gives it its place in the order.
void attach(const std::shared_ptr<Node>& node, std::span<const Tensor> outputs);
inline void attach(const std::shared_ptr<Node>& node, const Tensor& output) { attach(node, std::span(&output, 1)); }
// True when recording is on and some input requires grad.
bool should_record(std::span<const Tensor> inputs);

// The tensors that require grad among the inputs of ops that are not recorded: what a forward uses that is recorded later.
class UsedTensors {
 public:
  // Lists those of this thread while it lives.
  class Scope {
   public:
    [[nodiscard]] explicit Scope(UsedTensors& into);
    ~Scope();
    Scope(const Scope&) = delete;

   private:
    UsedTensors* outer_;
  };
  const Tensors& list() const { return list_; }
  void add(std::span<const Tensor> inputs);

 private:
  Tensors list_;
  std::unordered_set<const TensorImpl*> seen_;
};

// A cast inserted by autocast; edge_of steps over one to 16 bits.
Tensor record_autocast(const Tensor& source, const Tensor& low);

}  // namespace halfstep
