// SPDX-License-Identifier: Apache-2.0
// Gradients and the switches around them.
#pragma once

#include "framework/autograd/autograd.h"
#include "framework/autograd/functional.h"
#include "torch/tensor/network.h"

namespace torch {

// What backward needs besides tensors.
class IValue {
 public:
  IValue() = default;
  IValue(Tensor t) : v_(std::move(t)) {}
  IValue(bool b) : v_(b) {}
  IValue(double d) : v_(d) {}
  template <std::integral T>
  IValue(T i) : v_(int64_t(i)) {}
  IValue(std::string s) : v_(std::move(s)) {}
  IValue(const char* s) : v_(std::string(s)) {}
  IValue(std::vector<int64_t> l) : v_(std::move(l)) {}
  IValue(std::vector<Tensor> l) : v_(std::move(l)) {}
  Tensor toTensor() const { return get<Tensor>("Tensor"); }
  bool toBool() const { return get<bool>("Bool"); }
  double toDouble() const { return get<double>("Double"); }
  int64_t toInt() const { return get<int64_t>("Int"); }
  std::string toStringRef() const { return get<std::string>("String"); }
  std::vector<int64_t> toIntVector() const { return get<std::vector<int64_t>>("IntList"); }
  std::vector<Tensor> toTensorVector() const { return get<std::vector<Tensor>>("TensorList"); }
  bool isTensor() const { return std::holds_alternative<Tensor>(v_); }
  bool isInt() const { return std::holds_alternative<int64_t>(v_); }
  bool isBool() const { return std::holds_alternative<bool>(v_); }
  bool isDouble() const { return std::holds_alternative<double>(v_); }
  bool isNone() const { return v_.index() == 0; }

 private:
  template <class T>
  const T& get(const char* what) const {
    if (!std::holds_alternative<T>(v_)) detail::fail("Expected ", what, " in an IValue of another kind");
    return std::get<T>(v_);
  }
  std::variant<std::monostate, Tensor, bool, double, int64_t, std::string, std::vector<int64_t>, std::vector<Tensor>> v_;
};

// As in libtorch, these may also be made by new.
struct AutoGradMode : hs::GradMode {
  [[nodiscard]] explicit AutoGradMode(bool on) : hs::GradMode(on) {}
  static void* operator new(size_t bytes) { return ::operator new(bytes); }
};
struct NoGradGuard : AutoGradMode {
  [[nodiscard]] NoGradGuard() : AutoGradMode(false) {}
};
namespace GradMode {
inline bool is_enabled() { return hs::grad_enabled(); }
}  // namespace GradMode
class InferenceMode {
 public:
  [[nodiscard]] explicit InferenceMode(bool on = true) {
    TORCH_CHECK(on || !is_enabled(), "InferenceMode(false) within InferenceMode is not provided: end the outer scope first");
    if (on) mode_.emplace();
  }
  static bool is_enabled() { return hs::inference_enabled(); }

 private:
  std::optional<hs::InferenceMode> mode_;
};

namespace autograd {

using Variable = Tensor;
using variable_list = std::vector<Tensor>;
using tensor_list = std::vector<Tensor>;

// Returns a tensor with the memory of another one and a graph of its own.
inline Tensor make_variable(const Tensor& data, bool requires_grad = false) {
  return Tensor(data.h().detach()).set_requires_grad(requires_grad);
}

struct Edge {
  std::shared_ptr<Node> function;
  uint32_t input_nr = 0;
};
struct Node {
  explicit Node(std::shared_ptr<hs::Node> node) : node_(std::move(node)) {}
  std::string name() const;  // "MulBackward0"
  std::vector<Edge> next_edges() const;

 private:
  std::shared_ptr<hs::Node> node_;
};

void backward(const variable_list& outputs, const variable_list& gradients = {}, std::optional<bool> retain_graph = {},
              bool create_graph = false, const std::optional<variable_list>& inputs = {});
variable_list grad(const variable_list& outputs, const variable_list& inputs, const variable_list& gradients = {},
                   std::optional<bool> retain_graph = {}, bool create_graph = false, bool allow_unused = false);

}  // namespace autograd

}  // namespace torch

// at:: and c10:: are the same names, but for at::tensor, which keeps the C++ type of the numbers.
namespace at {
using namespace ::torch;
template <class T>
requires std::is_arithmetic_v<T> Tensor tensor(T v, const TensorOptions& o = {}) {
  return ::torch::tensor(v, o.has_dtype() ? o : o.dtype(::torch::detail::scalar_type_of<T>()));
}
template <class T>
Tensor tensor(std::initializer_list<T> v, const TensorOptions& o = {}) {
  return ::torch::tensor(::torch::ArrayRef<T>(v), o.has_dtype() ? o : o.dtype(::torch::detail::scalar_type_of<T>()));
}
template <class T>
Tensor tensor(const std::vector<T>& v, const TensorOptions& o = {}) {
  return ::torch::tensor(v, o.has_dtype() ? o : o.dtype(::torch::detail::scalar_type_of<T>()));
}
}  // namespace at
namespace c10 {
using namespace ::torch;
}
namespace caffe2 {
using namespace ::torch;
}
