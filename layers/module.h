// Module: a tree of named parameters and buffers with a forward. Names, shapes and state_dict keys are PyTorch's.
//
//   struct Net : Module {
//     std::shared_ptr<Linear> fc1 = add("fc1", std::make_shared<Linear>(784, 256));
//     std::shared_ptr<Linear> fc2 = add("fc2", std::make_shared<Linear>(256, 10));
//     Tensor forward(const Tensor& x) override { return (*fc2)(relu((*fc1)(x))); }
//   };
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "framework/tensor/tensor.h"

namespace halfstep {

struct NamedTensor {
  std::string name;  // "0.weight"
  Tensor tensor;
};
using StateDict = std::vector<NamedTensor>;  // in registration order

struct LoadReport {
  std::vector<std::string> missing;     // in the module, not in the state
  std::vector<std::string> unexpected;  // in the state, not in the module
};

class Module {
 public:
  virtual ~Module() = default;
  virtual Tensor forward(const Tensor& x) = 0;
  Tensor operator()(const Tensor& x);  // forward; an error on the way says in which layer
  // Does forward do the same for any input of one shape, deciding nothing on the host? Then TrainStep records it by itself on a
  // GPU. Layers say yes; a module of yours does nothing wrong by saying no.
  virtual bool is_recordable() const { return false; }
  virtual std::string describe() const { return "Module"; }  // "Linear(in_features=784, out_features=256, bias=True)"
  const std::string& name() const { return name_; }          // in its parent; empty at the root
  std::string path() const { return path_ ? *path_ : ""; }   // from the root: "encoder.0"
  std::string str() const;                                   // the tree, as PyTorch prints it

  std::vector<Tensor> parameters() const;
  std::vector<NamedTensor> named_parameters(const std::string& prefix = "") const;
  std::vector<NamedTensor> named_buffers(const std::string& prefix = "") const;
  const std::vector<std::pair<std::string, std::shared_ptr<Module>>>& children() const { return children_; }
  std::vector<std::pair<std::string, Module*>> named_modules(const std::string& prefix = "");

  void train(bool on = true);  // recursive
  void eval() { train(false); }
  bool training() const { return training_; }
  void zero_grad() const;
  void requires_grad_(bool on) const;                 // freeze with false
  void apply(const std::function<void(Module&)>& f);  // children first, then this
  Module& to(Device device);                          // moves parameters and buffers in place
  Module& to(DType dtype);                            // floating parameters and buffers
  int64_t parameter_count() const;

  // Detached: tensors share memory with the module.
  StateDict state_dict(const std::string& prefix = "") const;
  // Copies values in. strict: throws ValueError listing every missing, unexpected and misshapen key, with near names.
  LoadReport load_state_dict(const StateDict& state, bool strict = true);

 protected:
  Tensor register_parameter(const std::string& name, const Tensor& t);  // sets requires_grad and label
  Tensor register_buffer(const std::string& name, const Tensor& t);
  template <class M>
  std::shared_ptr<M> add(const std::string& name, std::shared_ptr<M> child) {
    register_module(name, child);
    return child;
  }
  void register_module(const std::string& name, std::shared_ptr<Module> child);
  virtual void path_changed() {}  // this module, or one above it, was registered in another

 private:
  void set_path(const std::string& path);

  std::vector<NamedTensor> parameters_, buffers_;
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> children_;
  std::string name_;  // in its parent
  const std::string* path_ = nullptr;
  bool training_ = true;
};

}  // namespace halfstep
