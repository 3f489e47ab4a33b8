// SPDX-License-Identifier: Apache-2.0
// Makes the parts of a training history of tests/amp/histories.safetensors from its specification; scripts/history_torch.py makes
// the same in PyTorch.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "halfstep.h"

namespace halfstep::testing::history {

using Json = nlohmann::json;

constexpr int64_t kSamples = 23, kClasses = 3;

inline Tensor floats(const Shape& shape, const std::function<double(int64_t)>& of) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  std::vector<double> v;
  for (int64_t i = 0; i < count; ++i) v.push_back(of(i));
  return tensor(v, shape, {.dtype = DType::f32});
}

// ---- model, data, loss

// `dropout`: puts a dropout in front, which PyTorch's net lacks.
inline Sequential net_of(const std::string& net, bool dropout) {
  Sequential out;
  if (dropout) out.append(Dropout(0.2));
  const auto add = [&](auto... layers) { (out.append(std::move(layers)), ...); };
  if (net == "mlp") add(Linear(4, 5), Tanh(), Linear(5, 3));
  if (net == "deep") add(Linear(4, 4), GELU(), Linear(4, 4), Tanh(), Linear(4, 3));
  if (net == "bn") add(Linear(4, 5, {.bias = false}), BatchNorm1d(5), Tanh(), Linear(5, 3));
  if (net == "ln") add(Linear(4, 5), LayerNorm(5), SiLU(), Linear(5, 3));
  if (net == "conv") add(Conv1d(2, 3, 3, {.padding = 1}), Tanh(), Conv1d(3, 3, 1));
  return out;
}

inline void set_first_weights(Sequential& net, const Json& spec) {
  const NoGrad off;
  const double n = spec["n"];
  const int norm = spec["net"] == "bn" ? 1 : spec["net"] == "ln" ? 2 : -1;  // index of the norm, whose weights are near 1
  int i = 0;
  for (const Tensor& p : net.parameters()) {
    p.detach().copy_(
        floats(p.shape(), [&](int64_t j) { return (i == norm ? 1 : 0) + 0.6 * std::sin(1.7 * double(j) + 0.9 * i + 0.3 * n); }));
    ++i;
  }
}

inline std::pair<Tensor, Tensor> data_of(const Json& spec) {
  const int64_t n = spec["n"];
  const bool places = spec["net"] == "conv";  // loss at 4 positions
  const Shape in = places ? Shape{kSamples, 2, 4} : Shape{kSamples, 4}, rows = places ? Shape{kSamples, 4} : Shape{kSamples},
              out = places ? Shape{kSamples, kClasses, 4} : Shape{kSamples, kClasses};
  const Tensor x = floats(in, [&](int64_t i) { return std::sin(1.3 * double(i) + 0.37 * double(n)); });
  const Json& loss = spec["loss"];
  const std::string kind = loss["kind"];
  const int64_t ignored = loss.value("ignored", 0);
  if (kind == "CrossEntropyLoss" || kind == "NLLLoss" || kind == "MultiMarginLoss")
    return {x, floats(rows, [&](int64_t i) {
              return (i * 5 + n) % 7 < ignored ? -100.0 : double((i * i + 2 * i + n) % kClasses);
            }).to(DType::i64)};
  const auto bit = [n](int64_t i) { return double((i * i + n) % 2); };
  return {x, floats(out, [&](int64_t i) {
            if (kind == "BCEWithLogitsLoss") return bit(i);
            if (kind == "SoftMarginLoss") return bit(i) * 2 - 1;
            if (kind == "PoissonNLLLoss") return double((i * i + n) % 4);
            if (kind == "KLDivLoss") return 0.3 + 0.1 * std::sin(double(i + n));
            return std::cos(0.9 * double(i) + double(n));
          })};
}

// A data set of pairs; TensorDataset refuses classes below 0, which CrossEntropyLoss ignores.
struct Pairs {
  Tensor x, y;
  int64_t size() const { return x.size(0); }
  std::pair<Tensor, Tensor> get(int64_t i) const { return {x[i], y[i]}; }
};

struct Order : Sampler {
  int64_t size() const override { return kSamples; }
  int64_t data_size() const override { return kSamples; }
  std::vector<int64_t> order(uint64_t, int64_t epoch) const override {
    const int64_t a = 1 + (5 * epoch + 3) % (kSamples - 1), b = 7 * epoch % kSamples;
    std::vector<int64_t> out;
    for (int64_t i = 0; i < kSamples; ++i) out.push_back((a * i + b) % kSamples);
    return out;
  }
};

// A user's loss: another loss times a factor.
struct Criterion : Loss {
  std::unique_ptr<Loss> base;
  bool of_logs = false;
  double factor = 1;
  Tensor operator()(const Tensor& output, const Tensor& target) const override {
    const Tensor loss = (*base)(of_logs ? log_softmax(output, 1) : output, target);
    return factor == 1 ? loss : loss * factor;
  }
  Denominator denominator(const Tensor& target) const override { return base->denominator(target); }
  std::string describe() const override { return base->describe(); }
};

inline std::unique_ptr<Criterion> criterion_of(const Json& loss) {
  const std::string kind = loss["kind"], how = loss.value("reduction", "mean");
  const Reduction reduction = how == "sum" ? Reduction::sum : Reduction::mean;
  const auto list = [&](const char* key) {
    return loss.contains(key) ? tensor(loss[key].get<std::vector<double>>(), {kClasses}, {.dtype = DType::f32}) : Tensor();
  };
  auto out = std::make_unique<Criterion>();
  const auto is = [&](auto made) { out->base = std::make_unique<decltype(made)>(std::move(made)); };
  const Tensor weight = list("weight");
  if (kind == "CrossEntropyLoss")
    is(CrossEntropyLoss({.weight = weight, .reduction = reduction, .label_smoothing = loss.value("label_smoothing", 0.0)}));
  if (kind == "NLLLoss") is(NLLLoss({.weight = weight, .reduction = reduction}));
  if (kind == "MSELoss") is(MSELoss({.reduction = reduction}));
  if (kind == "L1Loss") is(L1Loss({.reduction = reduction}));
  if (kind == "SmoothL1Loss") is(SmoothL1Loss({.reduction = reduction, .beta = loss.value("beta", 1.0)}));
  if (kind == "HuberLoss") is(HuberLoss({.reduction = reduction, .delta = loss.value("delta", 1.0)}));
  if (kind == "BCEWithLogitsLoss")
    is(BCEWithLogitsLoss({.weight = weight, .pos_weight = list("pos_weight"), .reduction = reduction}));
  if (kind == "PoissonNLLLoss") is(PoissonNLLLoss({.full = loss.value("full", false), .reduction = reduction}));
  if (kind == "SoftMarginLoss") is(SoftMarginLoss({.reduction = reduction}));
  if (kind == "MultiMarginLoss")
    is(MultiMarginLoss(
        {.p = loss.value("p", 1), .margin = loss.value("margin", 1.0), .weight = weight, .reduction = reduction}));
  if (kind == "KLDivLoss") is(KLDivLoss({.reduction = how}));
  REQUIRE_MESSAGE(out->base, kind);
  out->of_logs = kind == "NLLLoss" || kind == "KLDivLoss";
  return out;
}

// ---- optimizers

template <class O>
O with(O options, const Json& args) {
  for (const Option<O>& o : O::list()) {
    if (!args.contains(o.name)) continue;
    const Json& value = args[o.name];
    StoredOption stored = std::vector<double>();
    if (value.is_string())
      stored = value.get<std::string>();
    else if (value.is_array())
      stored = value.get<std::vector<double>>();
    else
      stored = std::vector<double>{value.is_boolean() ? double(value.get<bool>()) : value.get<double>()};
    REQUIRE(o.put(options, from_stored(stored, o)));
  }
  return options;
}

// Calls f.operator()<Opt>() for the optimizer of that name.
template <class F>
auto of_kind(const std::string& kind, const F& f) {
  if (kind == "SGD") return f.template operator()<SGD>();
  if (kind == "Adam") return f.template operator()<Adam>();
  if (kind == "AdamW") return f.template operator()<AdamW>();
  if (kind == "NAdam") return f.template operator()<NAdam>();
  if (kind == "RAdam") return f.template operator()<RAdam>();
  if (kind == "Adamax") return f.template operator()<Adamax>();
  if (kind == "RMSprop") return f.template operator()<RMSprop>();
  if (kind == "Adagrad") return f.template operator()<Adagrad>();
  if (kind == "Adadelta") return f.template operator()<Adadelta>();
  if (kind == "ASGD") return f.template operator()<ASGD>();
  if (kind == "Rprop") return f.template operator()<Rprop>();
  if (kind == "Adafactor") return f.template operator()<Adafactor>();
  if (kind == "Muon") return f.template operator()<Muon>();
  REQUIRE(kind == "LBFGS");
  return f.template operator()<LBFGS>();
}

// `own`: the group's options, in addition to the shared ones.
template <class Opt>
ParamGroup group_of(std::vector<Tensor> params, const Json& shared, const Json& own) {
  using O = typename Opt::Options;
  ParamGroup out{.params = std::move(params)};
  if (own.empty()) return out;
  if (own.size() == 1 && own.contains("lr"))
    out.lr = own["lr"].get<double>();
  else
    out.options = with(with(O(), shared), own);
  return out;
}

// ---- schedules

inline SchedulePtr schedule_of(const Json& spec, Optimizer& o) {
  const std::string kind = spec["kind"];
  const Json a = spec.value("args", Json::object());
  const auto parts = [&] {
    std::vector<SchedulePtr> out;
    for (const Json& part : a["parts"]) out.push_back(schedule_of(part, o));
    return out;
  };
  const auto by_count = [a](int64_t t) { return a["lambda"][0].get<double>() + a["lambda"][1].get<double>() * double(t % 4); };
  const auto number = [&](const char* key, double missing) { return a.value(key, missing); };
  const auto count = [&](const char* key, int64_t missing) { return a.value(key, missing); };
  if (kind == "StepLR") return std::make_shared<StepLR>(o, count("step_size", 1), number("gamma", 0.1));
  if (kind == "MultiStepLR")
    return std::make_shared<MultiStepLR>(o, Milestones(a["milestones"].get<std::vector<int64_t>>()), number("gamma", 0.1));
  if (kind == "ConstantLR") return std::make_shared<ConstantLR>(o, number("factor", 1.0 / 3), count("total_iters", 5));
  if (kind == "LinearLR")
    return std::make_shared<LinearLR>(o, number("start_factor", 1.0 / 3), number("end_factor", 1), count("total_iters", 5));
  if (kind == "ExponentialLR") return std::make_shared<ExponentialLR>(o, number("gamma", 0.1));
  if (kind == "PolynomialLR") return std::make_shared<PolynomialLR>(o, count("total_iters", 5), number("power", 1));
  if (kind == "CosineAnnealingLR") return std::make_shared<CosineAnnealingLR>(o, count("T_max", 1), number("eta_min", 0));
  if (kind == "MultiplicativeLR") return std::make_shared<MultiplicativeLR>(o, by_count);
  if (kind == "LambdaLR") return std::make_shared<LambdaLR>(o, by_count);
  if (kind == "CosineAnnealingWarmRestarts")
    return std::make_shared<CosineAnnealingWarmRestarts>(o, count("T_0", 1), count("T_mult", 1), number("eta_min", 0));
  if (kind == "OneCycleLR")
    return std::make_shared<OneCycleLR>(o, OneCycleOptions{.max_lr = number("max_lr", 0),
                                                           .total_steps = count("total_steps", 1),
                                                           .pct_start = number("pct_start", 0.3),
                                                           .anneal_strategy = a.value("anneal_strategy", "cos"),
                                                           .cycle_momentum = a.value("cycle_momentum", true),
                                                           .base_momentum = number("base_momentum", 0.85),
                                                           .max_momentum = number("max_momentum", 0.95),
                                                           .div_factor = number("div_factor", 25),
                                                           .three_phase = a.value("three_phase", false)});
  if (kind == "CyclicLR")
    return std::make_shared<CyclicLR>(o, CyclicOptions{.base_lr = number("base_lr", 0),
                                                       .max_lr = number("max_lr", 0),
                                                       .step_size_up = count("step_size_up", 1),
                                                       .step_size_down = count("step_size_down", 0),
                                                       .mode = a.value("mode", "triangular"),
                                                       .gamma = number("gamma", 1),
                                                       .cycle_momentum = a.value("cycle_momentum", true),
                                                       .base_momentum = number("base_momentum", 0.8),
                                                       .max_momentum = number("max_momentum", 0.9)});
  if (kind == "ReduceLROnPlateau")
    return std::make_shared<ReduceLROnPlateau>(o, PlateauOptions{.mode = a.value("mode", "min"),
                                                                 .factor = number("factor", 0.1),
                                                                 .patience = count("patience", 10),
                                                                 .threshold = number("threshold", 1e-4),
                                                                 .threshold_mode = a.value("threshold_mode", "rel"),
                                                                 .cooldown = count("cooldown", 0),
                                                                 .min_lr = number("min_lr", 0)});
  if (kind == "SequentialLR") return std::make_shared<SequentialLR>(o, parts(), a["milestones"].get<std::vector<int64_t>>());
  if (kind == "ChainedScheduler") return std::make_shared<ChainedScheduler>(o, parts());
  REQUIRE(kind == "Epochs");
  return std::make_shared<Epochs>(o, schedule_of(a["of"], o), count("steps", 1));
}

}  // namespace halfstep::testing::history
