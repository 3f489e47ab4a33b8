// SPDX-License-Identifier: Apache-2.0
// Modules whose branches join again: skip connections, towers, and graphs of named nodes. PyTorch has no such modules; they
// replace a few lines of a forward in models that have none, such as those of a config.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "layers/containers/conv_norm.h"
#include "layers/containers/fused_relu.h"
#include "layers/module/module.h"

namespace halfstep {

// Ways to join tensors. Elementwise ones broadcast; all promote dtypes.
//   add, mul, mean, max    of the elements
//   concat, stack          along dim, which is a new one for stack
//   dot, cosine            of two tensors along dim, which stays with size 1: sum(a b), and sum(a b) / (|a| |b|)
enum class Combine : uint8_t { add, mul, mean, max, concat, stack, dot, cosine };
std::string_view name(Combine how);
std::optional<Combine> combine_of(std::string_view name);
// Throws ValueError for no tensors, or if dot and cosine do not get two; ShapeError if shapes do not fit.
Tensor combine(Combine how, const Tensors& xs, int64_t dim = 1);

// body(x) + shortcut(x), or body(x) + x without a shortcut.
class Residual : public Module {
 public:
  explicit Residual(std::shared_ptr<Module> body, std::shared_ptr<Module> shortcut = nullptr);
  Tensor forward(const Tensor& x) override { return add_shortcut(x, /*relu=*/false); }
  Tensor forward_relu(const Tensor& x) { return add_shortcut(x, /*relu=*/true); }
  // Computes relu(layer(x)). Adds and applies the ReLU in one pass if no hook needs the value between; in that of the batch
  // normalisation that ends a body, if this is a Sequential.
  Tensor relu(const Tensor& x);
  bool is_recordable() const override;
  std::string describe() const override { return "Residual"; }

 private:
  Tensor add_shortcut(const Tensor& x, bool relu);
};

// Computes combine(branch(x) for each branch). The branches are named by `names`, one each, or "0", "1"... if it is empty.
class Parallel : public Module {
 public:
  Parallel(std::vector<std::shared_ptr<Module>> branches, Combine how, int64_t dim = 1, const std::vector<std::string>& names = {});
  Tensor forward(const Tensor& x) override;
  bool is_recordable() const override;
  std::string describe() const override;

 private:
  Combine how_;
  int64_t dim_;
};

// Nodes that refer to the outputs of others by name. A node combines its inputs if it has several, then runs its layer if it has
// one. The last node's output is the result. A ReLU behind a sum of two, or behind a layer that Sequential would fuse with it, is
// computed in the same pass, by Sequential's rules; so are a batch normalisation, the sum of two that reads it, and its ReLU.
//
//   Graph unet({{.name = "down", .layer = encoder},
//               {.name = "middle", .layer = bottom},
//               {.name = "up", .inputs = {"down", "middle"}, .combine = Combine::concat, .layer = decoder}});
class Graph : public Module {
 public:
  // A named slice of the batch: x[start:end] along dim.
  struct Input {
    std::string name;
    int64_t start = 0;
    std::optional<int64_t> end{};
    int64_t dim = -1;
    Tensor of(const Tensor& x) const;
  };
  struct Node {
    std::string name;                   // of its output, and of its layer in the state_dict
    std::vector<std::string> inputs{};  // names of earlier nodes or of batch inputs; none: the node before it
    std::optional<Combine> combine{};   // needed for several inputs
    int64_t dim = 1;                    // of combine
    std::shared_ptr<Module> layer{};    // a layer given to two nodes is shared, under the first node's name
  };
  // Without inputs the batch is called "input". Throws ValueError for duplicate and unknown names, for several inputs without a
  // combine, and for a node whose output is not used.
  explicit Graph(std::vector<Node> nodes, std::vector<Input> inputs = {});
  Tensor forward(const Tensor& x) override;
  Graph(const Graph& other);
  Graph(Graph&&) noexcept = default;
  bool is_recordable() const override;
  std::string describe() const override { return "Graph"; }
  const std::vector<Node>& nodes() const { return nodes_; }  // with implicit inputs filled in
  const std::vector<Input>& inputs() const { return inputs_; }

 private:
  struct Step {
    std::vector<size_t> from;       // indices of its inputs among all values: those of inputs_, then those of nodes_
    std::vector<size_t> last;       // those of `from` that no later step reads
    std::optional<size_t> layer{};  // index of the child
    // A batch normalisation or a ReLU behind this node is computed with it if nothing else reads the value between.
    std::shared_ptr<const ConvNorm> conv_norm{};  // replaces the layer
    bool sum_relu = false;                        // computes add_relu() of the two inputs instead of the sum and the ReLU
    WithRelu relu = nullptr;                      // of the layer
    bool passes_on = false;                       // returns its input, because an earlier step has computed the node's layer
    // A batch normalisation of which a sum with a ReLU is the only reader is left to that sum: `leaves_norm` is set for it, and for
    // the convolution before it, unless both are folded in this call.
    struct Norm {
      size_t node, input;  // its node, and which input of the sum it makes
    };
    std::optional<Norm> norm{};
    bool leaves_norm = false;
  };
  void structure_changed() override;
  void find_fusions();
  void find_norm(Step& sum, std::span<const int> uses);
  std::optional<size_t> only_before(size_t i, std::span<const int> uses) const;
  bool may_fuse() const;  // at this call
  Tensor run_step(size_t i, Tensors in, bool fused) const;
  std::vector<Node> nodes_;
  std::vector<Input> inputs_;
  std::vector<Step> steps_;
};

}  // namespace halfstep
