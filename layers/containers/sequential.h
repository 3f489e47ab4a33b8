// SPDX-License-Identifier: Apache-2.0
// Layers one after the other.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "layers/containers/conv_norm.h"
#include "layers/containers/fused_relu.h"
#include "layers/feedforward/linear.h"
#include "layers/module/part.h"

namespace halfstep {

// Runs its children in order. A Linear with the ReLU or GELU("tanh") after it, and a run of such Linears, is one call of
// linear() or mlp(), and a convolution, a batch normalisation or a Residual with the ReLU after it one call that ends with the
// ReLU: the same values, fewer passes. In InferenceMode a convolution and the batch normalisation behind it are one convolution
// (layers/containers/conv_norm.h). Layers with a precision of their own and layers that recompute run by themselves, and so do all
// where a region has a policy for one of these ops.
// Children are named "0", "1"... or as given. A Sequential in another is written with braces around it, `Sequential{Sequential{
// ...}}` (with Clang `Sequential(AnyModule(Sequential(...)))`): in C++ `Sequential(Sequential(...))` is the inner one.
class Sequential : public Module {
 public:
  Sequential() = default;
  template <ModulePart... Ps>
  explicit Sequential(Ps&&... layers) {  // made in an order that the compiler chooses, as any arguments
    (append(std::forward<Ps>(layers)), ...);
  }
  Sequential(std::initializer_list<AnyModule> layers) { extend(layers); }  // made, and so drawn, in the order written
  // With names: Sequential{{"fc", Linear(2, 3)}, {"act", ReLU()}}.
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
  // The layers of another one, of a vector or of braces, which are shared.
  template <class List>
  Sequential& extend(const List& layers) {
    for (const auto& layer : layers) append(as_shared(layer));
    return *this;
  }
  Sequential& extend(std::initializer_list<AnyModule> layers) { return extend<>(layers); }
  size_t size() const { return child_slots().size(); }
  bool empty() const { return size() == 0; }
  Part<Module> operator[](int64_t i) const;  // -1: the last. Throws IndexError
  // The layer as what it is: `model.at<Linear>(0).weight`. Throws ValueError when it is something else.
  template <class M>
  M& at(size_t i) const {
    return module_as<M>((*this)[int64_t(i)], "Sequential", "layer ", i);
  }
  PartIterator begin() const { return PartIterator(child_slots().data()); }
  PartIterator end() const { return PartIterator(child_slots().data() + size()); }
  Tensor forward(const Tensor& x) override;
  bool is_recordable() const override;  // when all children are
  std::string describe() const override { return "Sequential"; }

 private:
  // What forward runs next: `linears`, as one call of mlp(), or where there are none `module`, with the ReLU behind it or without.
  struct Stage {
    Module* module;
    std::vector<std::pair<Linear*, Activation>> linears{};
    WithRelu relu = nullptr;            // of `module`, where a ReLU follows it
    const ConvNorm* conv_norm = nullptr;  // of `module`, where it is a convolution and a batch normalisation follows it
    const std::string* path = nullptr;  // of the linears, for messages: "0", "0 to 4"
    bool alone = false;                 // has a precision of its own: nothing joins it
  };
  void structure_changed() override;
  void add_to_stages(std::vector<Stage>& stages, size_t i) const;
  std::vector<Stage> make_stages() const;
  static Tensor run_stage(const Stage& stage, const Tensor& x);
  static Tensor run_chain(const Stage& stage, const Tensor& x);
  std::vector<std::shared_ptr<const ConvNorm>> conv_norms_;  // of each layer and the one before it, which keeps the folded weights
  std::vector<Stage> stages_;
};

}  // namespace halfstep
