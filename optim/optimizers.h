// The optimizers: PyTorch's names, arguments, defaults and state. Their rules stand in framework/math/update_rules.h.
#pragma once

#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/check.h"
#include "optim/optimizer.h"

namespace halfstep {

struct SGDOptions {
  double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false, maximize = false;
};
class SGD : public FusedOptimizer {
 public:
  SGD(std::vector<Tensor> params, const SGDOptions& options = {})
      : SGD(std::vector<ParamGroup>{{std::move(params), {}, {}}}, options) {}
  SGD(std::vector<ParamGroup> groups, const SGDOptions& options = {})
      : FusedOptimizer(std::move(groups), options.lr), options_(options) {
    check<ValueError>(options.lr >= 0, "SGD", "lr must be >= 0, got ", options.lr);
    check<ValueError>(options.momentum >= 0, "SGD", "momentum must be >= 0, got ", options.momentum);
    check<ValueError>(options.weight_decay >= 0, "SGD", "weight_decay must be >= 0, got ", options.weight_decay);
    check<ValueError>(!options.nesterov || (options.momentum > 0 && options.dampening == 0), "SGD",
                      "nesterov needs momentum > 0 and dampening 0, got momentum ", options.momentum, " and dampening ",
                      options.dampening);
  }

  std::string describe() const override {
    std::ostringstream out;
    out << "SGD(lr=" << lr();
    if (options_.momentum != 0) out << ", momentum=" << options_.momentum;
    if (options_.dampening != 0) out << ", dampening=" << options_.dampening;
    if (options_.weight_decay != 0) out << ", weight_decay=" << options_.weight_decay;
    if (options_.nesterov) out << ", nesterov=True";
    if (options_.maximize) out << ", maximize=True";
    out << ')';
    return out.str();
  }

 protected:
  UpdateRule rule(double lr, std::optional<double> weight_decay) const override {
    return math::SgdRule{.lr = lr,
                         .momentum = options_.momentum,
                         .dampening = options_.dampening,
                         .weight_decay = weight_decay.value_or(options_.weight_decay),
                         .nesterov = options_.nesterov,
                         .maximize = options_.maximize};
  }
  std::vector<std::string> states() const override {
    return options_.momentum == 0 ? std::vector<std::string>{} : std::vector<std::string>{"momentum_buffer"};
  }

 private:
  SGDOptions options_;
};

struct AdamOptions {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  std::optional<double> weight_decay = {};  // unset: 0 for Adam, 0.01 for AdamW
  bool amsgrad = false, maximize = false;
};
class Adam : public FusedOptimizer {
 public:
  Adam(std::vector<Tensor> params, const AdamOptions& options = {})
      : Adam(std::vector<ParamGroup>{{std::move(params), {}, {}}}, options) {}
  Adam(std::vector<ParamGroup> groups, const AdamOptions& options = {}) : Adam(std::move(groups), options, false) {}

  std::string describe() const override {
    std::ostringstream out;
    out << name() << "(lr=" << lr() << ", betas=(" << options_.beta1 << ", " << options_.beta2 << "), eps=" << options_.eps
        << ", weight_decay=" << *options_.weight_decay;
    if (options_.amsgrad) out << ", amsgrad=True";
    if (options_.maximize) out << ", maximize=True";
    out << ')';
    return out.str();
  }

 protected:
  Adam(std::vector<ParamGroup> groups, const AdamOptions& options, bool decoupled)
      : FusedOptimizer(std::move(groups), options.lr), options_(options), decoupled_(decoupled) {
    if (!options_.weight_decay) options_.weight_decay = decoupled ? 0.01 : 0.0;
    check<ValueError>(options.lr >= 0, name(), "lr must be >= 0, got ", options.lr);
    check<ValueError>(options.eps >= 0, name(), "eps must be >= 0, got ", options.eps);
    check<ValueError>(options.beta1 >= 0 && options.beta1 < 1, name(), "beta1 must be in [0, 1), got ", options.beta1);
    check<ValueError>(options.beta2 >= 0 && options.beta2 < 1, name(), "beta2 must be in [0, 1), got ", options.beta2);
    check<ValueError>(*options_.weight_decay >= 0, name(), "weight_decay must be >= 0, got ", *options_.weight_decay);
  }
  UpdateRule rule(double lr, std::optional<double> weight_decay) const override {
    return math::AdamRule{.lr = lr,
                          .beta1 = options_.beta1,
                          .beta2 = options_.beta2,
                          .eps = options_.eps,
                          .weight_decay = weight_decay.value_or(*options_.weight_decay),
                          .decoupled = decoupled_,
                          .amsgrad = options_.amsgrad,
                          .maximize = options_.maximize};
  }
  std::vector<std::string> states() const override {
    std::vector<std::string> names{"exp_avg", "exp_avg_sq"};
    if (options_.amsgrad) names.push_back("max_exp_avg_sq");
    return names;
  }

 private:
  const char* name() const { return decoupled_ ? "AdamW" : "Adam"; }

  AdamOptions options_;
  bool decoupled_;
};
// Adam with decoupled weight decay.
class AdamW : public Adam {
 public:
  AdamW(std::vector<Tensor> params, const AdamOptions& options = {})
      : AdamW(std::vector<ParamGroup>{{std::move(params), {}, {}}}, options) {}
  AdamW(std::vector<ParamGroup> groups, const AdamOptions& options = {}) : Adam(std::move(groups), options, true) {}
};

}  // namespace halfstep
