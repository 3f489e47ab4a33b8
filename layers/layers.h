// Every layer. Constructor arguments, defaults, initialisation and parameter names are PyTorch's.
#pragma once

#include "framework/ops/ops.h"
#include "layers/module.h"

namespace halfstep {

struct LinearOptions {
  int64_t in_features, out_features;
  bool bias = true;
};
// y = x W^T + b. weight: [out, in], bias: [out], both from U(-1/sqrt(in), 1/sqrt(in)).
class Linear : public Module {
 public:
  explicit Linear(const LinearOptions& options, Generator* generator = nullptr);
  Linear(int64_t in_features, int64_t out_features, bool bias = true) : Linear(LinearOptions{in_features, out_features, bias}) {}
  Tensor forward(const Tensor& x) override { return linear(x, weight, bias); }
  Tensor forward_relu(const Tensor& x) { return linear(x, weight, bias, /*relu=*/true); }
  bool is_recordable() const override { return true; }
  std::string describe() const override;
  // Uses another layer's weight [out, in] from here on, an embedding's for one: both train it.
  void share_weight(const Tensor& other) { weight = share_parameter("weight", other); }
  Tensor weight, bias;  // bias undefined without one
};

// Runs its children in order. A Linear with the ReLU or GELU("tanh") after it, and a run of such Linears, is one call of
// linear() or mlp(): the same values, fewer passes. Children are named "0", "1"... or as given.
class Sequential : public Module {
 public:
  Sequential() = default;
  template <class... Ms>
  explicit Sequential(std::shared_ptr<Ms>... layers) {
    (push_back(layers), ...);
  }
  Sequential& push_back(std::shared_ptr<Module> layer);
  Sequential& push_back(const std::string& name, std::shared_ptr<Module> layer);
  Tensor forward(const Tensor& x) override;
  std::shared_ptr<Module> clone() const override;
  bool is_recordable() const override;  // when all children are
  std::string describe() const override { return "Sequential"; }

 private:
  // What forward runs next: `linears`, as one call of mlp(), or `module` where that list is empty.
  struct Stage {
    Module* module;
    std::vector<std::pair<Linear*, Activation>> linears;
    const std::string* path = nullptr;  // of the linears, for messages: "0", "0 to 4"
  };
  void path_changed() override;
  void add_to_stages(Module* module);
  static Tensor run_chain(const Stage& stage, const Tensor& x);
  std::vector<Stage> stages_;
};

class ReLU : public Module {
 public:
  Tensor forward(const Tensor& x) override { return relu(x); }
  bool is_recordable() const override { return true; }
  std::string describe() const override { return "ReLU()"; }
};
class GELU : public Module {
 public:
  explicit GELU(const std::string& approximate = "none");  // "none" (erf) or "tanh"
  Tensor forward(const Tensor& x) override { return tanh_ ? gelu_tanh(x) : gelu(x); }
  bool is_tanh() const { return tanh_; }
  bool is_recordable() const override { return true; }
  std::string describe() const override;

 private:
  bool tanh_;
};
class Tanh : public Module {
 public:
  Tensor forward(const Tensor& x) override { return tanh(x); }
  bool is_recordable() const override { return true; }
  std::string describe() const override { return "Tanh()"; }
};
class Sigmoid : public Module {
 public:
  Tensor forward(const Tensor& x) override { return sigmoid(x); }
  bool is_recordable() const override { return true; }
  std::string describe() const override { return "Sigmoid()"; }
};
class SiLU : public Module {
 public:
  Tensor forward(const Tensor& x) override { return silu(x); }
  bool is_recordable() const override { return true; }
  std::string describe() const override { return "SiLU()"; }
};
class Identity : public Module {
 public:
  Tensor forward(const Tensor& x) override { return x; }
  bool is_recordable() const override { return true; }
  std::string describe() const override { return "Identity()"; }
};
class Softmax : public Module {
 public:
  explicit Softmax(int64_t dim = -1) : dim_(dim) {}
  Tensor forward(const Tensor& x) override { return softmax(x, dim_); }
  bool is_recordable() const override { return true; }
  std::string describe() const override;

 private:
  int64_t dim_;
};
class Flatten : public Module {
 public:
  explicit Flatten(int64_t start_dim = 1, int64_t end_dim = -1) : start_(start_dim), end_(end_dim) {}
  Tensor forward(const Tensor& x) override { return flatten(x, start_, end_); }
  bool is_recordable() const override { return true; }
  std::string describe() const override;

 private:
  int64_t start_, end_;
};
class Dropout : public Module {
 public:
  explicit Dropout(double p = 0.5);
  Tensor forward(const Tensor& x) override { return dropout(x, p_, training()); }
  bool is_recordable() const override { return true; }
  std::string describe() const override;

 private:
  double p_;
};

// ---- losses: the ops of the same names with their options, called with what a model put out and what it should have put out.
class Loss {
 public:
  virtual ~Loss() = default;
  virtual Tensor operator()(const Tensor& output, const Tensor& target) const = 0;
  virtual bool is_recordable() const { return false; }  // as Module::is_recordable
  virtual std::string describe() const = 0;
};
class MSELoss : public Loss {
 public:
  explicit MSELoss(Reduction reduction = Reduction::mean) : reduction_(reduction) {}
  Tensor operator()(const Tensor& output, const Tensor& target) const override { return mse_loss(output, target, reduction_); }
  bool is_recordable() const override { return true; }
  std::string describe() const override { return "MSELoss()"; }

 private:
  Reduction reduction_;
};
class CrossEntropyLoss : public Loss {
 public:
  explicit CrossEntropyLoss(const CrossEntropyOptions& options = {}) : options_(options) {}
  Tensor operator()(const Tensor& output, const Tensor& target) const override { return cross_entropy(output, target, options_); }
  bool is_recordable() const override { return true; }
  std::string describe() const override { return "CrossEntropyLoss()"; }

 private:
  CrossEntropyOptions options_;
};

// ---- initialisers (PyTorch's torch.nn.init), in place, not recorded
namespace init {
void kaiming_uniform_(const Tensor& w, double a = 0, Generator* generator = nullptr);  // gain sqrt(2 / (1 + a^2)), fan in
void xavier_uniform_(const Tensor& w, double gain = 1, Generator* generator = nullptr);
}  // namespace init

}  // namespace halfstep
