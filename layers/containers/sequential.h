// SPDX-License-Identifier: Apache-2.0
// A container that runs layers one after the other.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "layers/containers/conv_norm.h"
#include "layers/containers/fused_relu.h"
#include "layers/feedforward/linear.h"
#include "layers/module/part.h"

namespace halfstep {

// Runs its children in order and fuses neighbours: a Linear with the ReLU or GELU("tanh") behind it, and a run of such Linears,
// become one call of linear() or mlp(); a convolution, a batch normalisation or a Residual applies the ReLU behind it in the same
// pass. In InferenceMode a convolution and the batch normalisation behind it become one convolution
// (layers/containers/conv_norm.h). The values are the same. Layers with a precision of their own and layers that recompute are not
// fused, nor is any layer if a region has a policy for one of these ops.
//
// Children are named "0", "1"... or as given. Write a Sequential inside another with braces, `Sequential{Sequential{...}}` (with
// Clang `Sequential(AnyModule(Sequential(...)))`): in C++ `Sequential(Sequential(...))` copies the inner one.
class Sequential : public Module {
 public:
  Sequential() = default;
  template <ModulePart... Ps>
  explicit Sequential(Ps&&... layers) {  // constructed in an order that the compiler chooses
    (append(std::forward<Ps>(layers)), ...);
  }
  Sequential(std::initializer_list<AnyModule> layers) { extend(layers); }  // constructed, and initialised, in the order written
  // Takes names: Sequential{{"fc", Linear(2, 3)}, {"act", ReLU()}}.
  Sequential(std::initializer_list<std::pair<std::string, AnyModule>> layers) {
    for (const auto& [name, layer] : layers) push_back(name, layer);
  }
  Sequential(const Sequential& other) : Module(other) { structure_changed(); }
  Sequential(Sequential&&) noexcept = default;
  Sequential& operator=(Sequential&& other) {
    Module::operator=(std::move(other));
    return *this;
  }
  template <ModulePart P>
  Sequential& append(P&& layer) {
    return push_back(std::to_string(size()), std::forward<P>(layer));
  }
  template <ModulePart P>
  Sequential& push_back(P&& layer) {
    return append(std::forward<P>(layer));
  }
  template <ModulePart P>
  Sequential& push_back(const std::string& name, P&& layer) {
    register_listed(name, as_shared(std::forward<P>(layer)));
    return *this;
  }
  // Appends the layers of another Sequential, a vector or braces, and shares them.
  template <class List>
  Sequential& extend(const List& layers) {
    for (const auto& layer : layers) append(as_shared(layer));
    return *this;
  }
  Sequential& extend(std::initializer_list<AnyModule> layers) { return extend<>(layers); }
  size_t size() const { return child_slots().size(); }
  bool empty() const { return size() == 0; }
  Part<Module> operator[](int64_t i) const;  // Counts from the end for negative i. Throws IndexError.
  // Returns the layer as an M: `model.at<Linear>(0).weight`. Throws ValueError if it has another type.
  template <class M>
  M& at(size_t i) const {
    return module_as<M>((*this)[int64_t(i)], "Sequential", "layer ", i);
  }
  PartIterator begin() const { return PartIterator(child_slots().data()); }
  PartIterator end() const { return PartIterator(child_slots().data() + size()); }
  Tensor forward(const Tensor& x) override;
  // Computes add_relu(net(x), residual()). If the last layer is a batch normalisation, it adds the residual in its pass, and
  // residual() is called before it.
  Tensor add_relu(const Tensor& x, const std::function<Tensor()>& residual);
  bool is_recordable() const override;  // true if all children are
  std::string describe() const override { return "Sequential"; }

 private:
  // One call of forward: `linears` as one mlp(), or else `module`; with or without the ReLU behind it.
  struct Stage {
    Module* module;
    std::vector<std::pair<Linear*, Activation>> linears{};
    WithRelu relu = nullptr;              // of `module`, if a ReLU follows it
    const ConvNorm* conv_norm = nullptr;  // of `module`, if it is a convolution and a batch normalisation follows it
    const std::string* path = nullptr;    // of the linears, for messages: "0", "0 to 4"
    bool alone = false;                   // is not fused: has a precision of its own, or recomputes in backward
  };
  void structure_changed() override;
  // Adds child i to the last stage if they can be fused, else as a stage of its own.
  void add_to_stages(std::vector<Stage>& stages, size_t i) const;
  std::vector<Stage> make_stages() const;
  // Returns the batch normalisation that ends forward if at this call a sum behind it can be computed in its pass; else null.
  BatchNormNd* norm_before_sum() const;
  bool some_alone() const;  // whether layers have a precision of their own or recompute, at this call
  static Tensor run_stage(const Stage& stage, const Tensor& x);
  static Tensor run_chain(const Stage& stage, const Tensor& x);
  std::vector<std::shared_ptr<const ConvNorm>> conv_norms_;  // caches of folded weights, one for each layer and the one before it
  std::vector<Stage> stages_;
};

}  // namespace halfstep
