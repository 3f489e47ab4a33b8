// SPDX-License-Identifier: Apache-2.0
// Modules whose branches join again: skip connections, towers, and graphs of named nodes. PyTorch has no such modules; each
// replaces a few lines of a forward, for models without one, such as those of a config.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "layers/containers/conv_norm.h"
#include "layers/containers/fused_relu.h"
#include "layers/module/module.h"

namespace halfstep {

// How tensors that meet become one. Elementwise ones broadcast, and all promote:
//   add, mul, mean, max    of the elements
//   concat, stack          along dim, which is a new one for stack
//   dot, cosine            of two tensors along dim, which stays with size 1: sum(a b), and sum(a b) / (|a| |b|)
enum class Combine : uint8_t { add, mul, mean, max, concat, stack, dot, cosine };
std::string_view name(Combine how);
std::optional<Combine> combine_of(std::string_view name);
// Throws ValueError for no tensors, or for other than two where two are needed; ShapeError where they do not fit.
Tensor combine(Combine how, const Tensors& xs, int64_t dim = 1);

// body(x) + shortcut(x), or body(x) + x without a shortcut.
class Residual : public Module {
 public:
  explicit Residual(std::shared_ptr<Module> body, std::shared_ptr<Module> shortcut = nullptr);
  Tensor forward(const Tensor& x) override { return joined(x, /*relu=*/false); }
  Tensor forward_relu(const Tensor& x) { return joined(x, /*relu=*/true); }
  // relu(layer(x)), the sum and the ReLU in one pass if no hook needs the value between.
  Tensor relu(const Tensor& x);
  bool is_recordable() const override;
  std::string describe() const override { return "Residual"; }

 private:
  Tensor joined(const Tensor& x, bool relu);
};

// combine(branch(x) for each branch). The branches are named "0", "1"..., or as `names` says, which has one for each or is empty.
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

// Nodes that refer to the outputs of others by name. A node joins its inputs, if it has several, and runs its layer on that, if it
// has one. The result is that of the last node. A ReLU behind a sum of two, or behind a layer that Sequential would run with it, is
// computed in the same pass, by Sequential's rules.
//
//   Graph unet({{.name = "down", .layer = encoder},
//               {.name = "middle", .layer = bottom},
//               {.name = "up", .inputs = {"down", "middle"}, .combine = Combine::concat, .layer = decoder}});
class Graph : public Module {
 public:
  // A part of the batch under a name of its own: x[start:end] along dim.
  struct Input {
    std::string name;
    int64_t start = 0;
    std::optional<int64_t> end{};
    int64_t dim = -1;
    Tensor of(const Tensor& x) const;
  };
  struct Node {
    std::string name;                   // name of its output, and of its layer in the state_dict
    std::vector<std::string> inputs{};  // names of nodes before it, or of the batch; none: the node before it
    std::optional<Combine> combine{};   // needed for several inputs
    int64_t dim = 1;                    // of combine
    std::shared_ptr<Module> layer{};    // two nodes with the same one share its weights, under the first node's name
  };
  // Without inputs the batch is called "input". Throws ValueError for names that are there twice or not at all, for several inputs
  // without a combine, and for a node that nothing uses.
  explicit Graph(std::vector<Node> nodes, std::vector<Input> inputs = {});
  Tensor forward(const Tensor& x) override;
  Graph(const Graph& other);
  Graph(Graph&&) noexcept = default;
  bool is_recordable() const override;
  std::string describe() const override { return "Graph"; }
  const std::vector<Node>& nodes() const { return nodes_; }  // with all their inputs
  const std::vector<Input>& inputs() const { return inputs_; }

 private:
  struct Step {
    std::vector<size_t> from;       // places of its inputs among all values: those of inputs_, then those of nodes_
    std::vector<size_t> last;       // of these, the ones that nothing needs afterwards
    std::optional<size_t> layer{};  // which child
    // Where a batch normalisation or a ReLU follows, and nothing else reads the value between, it is computed with what comes
    // before it.
    std::shared_ptr<const ConvNorm> conv_norm{};  // in place of the layer
    bool sum_relu = false;                        // add_relu() of the two inputs, in place of the sum and the ReLU
    WithRelu relu = nullptr;                      // of the layer
    bool passes = false;                          // a step before has computed the node's layer
  };
  void structure_changed() override;
  void find_joined();
  std::optional<size_t> only_before(size_t i, std::span<const int> uses) const;
  bool fuses() const;  // at this call
  Tensor run_step(size_t i, Tensors in, bool fused) const;
  std::vector<Node> nodes_;
  std::vector<Input> inputs_;
  std::vector<Step> steps_;
};

}  // namespace halfstep
