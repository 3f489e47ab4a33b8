// SPDX-License-Identifier: Apache-2.0
// The graph: nodes made by ops, edges to the nodes of their inputs, and what backward needs.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "framework/base/guard.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

// Leads to input `index` of the backward of `node`, which is output `index` of its forward. Null if no gradient is wanted.
struct Edge {
  std::shared_ptr<Node> node;
  uint32_t index = 0;
  DType dtype = DType::f32;  // dtype of the gradient: the input's before autocast lowered it; float32 where autocast raised it
  explicit operator bool() const { return node != nullptr; }
};

// A tensor kept for backward, with its version at that time. A node keeps its own output without history, so that it never owns
// itself; unpack restores the history.
class SavedTensor {
 public:
  SavedTensor() = default;
  // If `output_index` >= 0, t is that output of the node that keeps it.
  explicit SavedTensor(const Tensor& t, int output_index = -1);
  // Returns the tensor. Throws AutogradError if it was modified in place since, or if the graph was freed.
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

// Shape, dtype and device of one output's gradient: for zeros in place of missing gradients, and to refuse wrong ones.
struct OutputMeta {
  Shape shape;
  DType dtype = DType::f32;
  Device device = Device::cpu;
};

class LeafReports;  // leaf_listener.h
class Node;
struct NodeSet;  // engine.cpp

// Parameters of one backward run for a node. The run stores them, not the node, so that several threads may run one graph.
struct BackwardCall {
  const Node& node;
  const NodeSet* wanted = nullptr;  // nodes on a path to the inputs of grad(); null: all
  bool is_last = false;             // saved tensors are freed after this backward
  LeafReports* reports = nullptr;   // receives the leaves whose gradients are complete; null: they are not reported
  // Returns whether the gradient of input i is wanted.
  bool needs(size_t i) const;
};

class Node : public std::enable_shared_from_this<Node> {
 public:
  virtual ~Node() = default;
  virtual std::string_view name() const = 0;
  // grads: one per output, undefined where no gradient arrived; passed by value, so that each can be freed after its use.
  // Returns one gradient per edge; undefined means zero. Runs with grad mode on when the backward is itself recorded.
  virtual Tensors backward(Tensors grads, const BackwardCall& call) = 0;
  // Frees the tensors that forward saved, after a backward that does not retain the graph.
  virtual void release_saved() {}
  // Returns whether backward also takes the gradient of its one output in two parts, grads[0] and grads[1], whose sum it is.
  virtual bool takes_two_parts() const { return false; }
  // Returns the input whose gradient is made of the sums of the columns of the one output's, a bias; -1: none.
  virtual int summed_input() const { return -1; }
  // Returns whether the gradient of input 0 has the columns of the output's, and their sums if these came with it (column_sums.h).
  virtual bool keeps_columns() const { return false; }
  // Returns whether this is a cast by autocast to 16 bits, which edge_of skips.
  virtual bool is_autocast_cast() const { return false; }

  uint64_t sequence = 0;                            // creation order: later nodes run first
  bool is_leaf = false;                             // whether it adds its gradients to the .grad of a leaf
  std::vector<Edge> edges;                          // one per tensor input
  std::vector<OutputMeta> outputs;                  // one per output
  const std::string* layer = nullptr;               // layer that made the node; null outside of layers. Never freed
  std::vector<std::shared_ptr<HookList>> hooks;     // per output; may be short
  std::vector<std::weak_ptr<TensorImpl>> retained;  // outputs with retain_grad; may be short
  Node* next_to_destroy = nullptr;                  // link of the queue in destroy_node
};

// Returns whether this is the only handle of the memory, so that a gradient may be taken over or added to in place.
bool is_sole(const Tensor& t);

// Returns whether the gradient along `edge` may stay in a 16-bit dtype; see LowGradients.
bool may_stay_low(const Edge& edge);

// Returns the preferred dtype of the gradient of a node's input: that of its edge, or the node's own 16 bits if it may stay low.
DType grad_dtype(const Node& node, size_t input);

// Destroys a node without recursion, however deep the graph below it is.
void destroy_node(Node* node);
template <class N, class... Args>
std::shared_ptr<N> make_node(Args&&... args) {
  return std::shared_ptr<N>(new N(std::forward<Args>(args)...), [](N* n) { destroy_node(n); });
}

// Throws AutogradError for a view made before a recorded write to its memory, because the view lacks the history of that write.
void check_view(const TensorImpl& impl);

// Returns the edge for a gradient of `t`: to its node, to its accumulator, or none. Skips autocast's casts to 16 bits, so that an
// op may return the gradient in the dtype before the cast.
Edge edge_of(const Tensor& t);
// Makes `node` the history of `outputs`, and numbers it.
void attach(const std::shared_ptr<Node>& node, std::span<const Tensor> outputs);
inline void attach(const std::shared_ptr<Node>& node, const Tensor& output) { attach(node, std::span(&output, 1)); }
// Returns whether recording is on and some input requires grad. With recording off, lists the inputs in the thread's UsedTensors.
// Throws as check_view.
bool should_record(std::span<const Tensor> inputs);

// The tensors that require grad among the inputs of unrecorded ops. checkpoint() thus finds the tensors that its function uses.
class UsedTensors {
 public:
  // Collects the tensors of this thread while it lives.
  class Scope : LocalGuard {
   public:
    [[nodiscard]] explicit Scope(UsedTensors& into);
    ~Scope();

   private:
    UsedTensors* outer_;
  };
  const Tensors& list() const { return list_; }
  void add(std::span<const Tensor> inputs);

 private:
  Tensors list_;
  std::unordered_set<const TensorImpl*> seen_;
};

// Records a cast by autocast; edge_of skips casts to 16 bits.
Tensor record_autocast(const Tensor& source, const Tensor& low);
// Returns `low`, a result that an op rounded to 16 bits at once where autocast would cast it later, with the history of that cast:
// the op gets its gradient in `wide`.
Tensor record_rounding(const Tensor& low, DType wide);
// Returns that dtype of a tensor with such a history; none for others. A view of the tensor gets such a history too.
std::optional<DType> rounded_from(const Tensor& t);

}  // namespace halfstep
