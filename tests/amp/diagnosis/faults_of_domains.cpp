// SPDX-License-Identifier: Apache-2.0
// Functions outside of their domain, which no precision mends, and look-alikes that are fine.

#include "framework/ops/ops.h"
#include "layers/layers.h"
#include "tests/amp/diagnosis/faults.h"

namespace halfstep::faults {
namespace {

// A function between two layers.
Fault through(const std::string& name, const std::string& cause, const Function& f, std::optional<DType> low = DType::f16) {
  return {name, cause, [=](const Draw& d) {
            Layers list{{"in", std::make_shared<Linear>(16, 8)}};
            for (int64_t i = 0; i < d.more; ++i) list.push_back({"mid" + std::to_string(i), std::make_shared<Linear>(8, 8)});
            list.push_back({"odd", function("Odd", f)});
            list.push_back({"head", std::make_shared<Linear>(8, 4)});
            const std::optional<DType> dtype = d.any_precision ? d.low : low;
            const bool scaled = dtype == DType::f16;
            return training(layers(list), mse(), dtype, scaled ? std::optional(d.scale) : std::nullopt, regression(d, 16, 4), 1e-3);
          }};
}

Tensor nothing_of(const Tensor& x) { return relu(x) * 0.0; }

std::vector<Fault> of_logarithms_and_roots() {
  return {
      through("log of relu", "log_domain", [](const Tensor& x) { return log(relu(x)); }),
      through(
          "log of negative values", "log_domain", [](const Tensor& x) { return log(x); }, kSingle),
      through("log times a mask of 0 and 1", "log_domain",
              [](const Tensor& x) {
                const Tensor r = relu(x);
                return log(r) * r.gt(0).to(DType::f32);
              }),
      through("log behind where", "log_domain",
              [](const Tensor& x) {
                const Tensor r = square(x) * 0.0;
                return where(r.gt(0), log(r), zeros_like(r).to(DType::f32));
              }),
      {"cross entropy by logs of hard probabilities", "log_domain",
       [](const Draw& d) {
         auto m = layers({{"in", std::make_shared<Linear>(16, 1)},
                          {"sigmoid", function("Sigmoid", [](const Tensor& x) { return sigmoid(x * 1e3); })}});
         const auto loss = [](const Tensor& p, const Tensor& t) {
           const Tensor y = t.gt(0).to(DType::f32);
           return -mean(y * log(p) + (1.0 - y) * log(1.0 - p));
         };
         return training(m, loss_of(loss), DType::f16, 256, regression(d, 16, 1));
       }},
      through("the slope of sqrt at 0", "sqrt_domain", [](const Tensor& x) { return sqrt(square(x) * 0.0); }),
      through(
          "a length by hand of a zero vector", "sqrt_domain",
          [](const Tensor& x) { return x + sqrt(sum(square(x * 0.0), {1}, true)); }, DType::bf16),
      through(
          "sqrt of negative values", "sqrt_domain", [](const Tensor& x) { return sqrt(x); }, DType::bf16),
      through("a power 0.5 of negative values", "pow_domain", [](const Tensor& x) { return pow(x, 0.5); }),
      through(
          "the slope of acos at 1", "domain", [](const Tensor& x) { return acos(x * 0.0 + 1.0); }, kSingle),
      through("control: log of clamped values", "", [](const Tensor& x) { return log(clamp(x, 1e-3, std::nullopt)); }),
  };
}

std::vector<Fault> of_divisions() {
  return {
      through("division by relu", "division_by_zero", [](const Tensor& x) { return x / relu(x); }),
      through("x over its norm", "division_by_zero",
              [](const Tensor& x) { return nothing_of(x) / norm(nothing_of(x), 2, {1}, true); }),
      through("rsqrt of a variance of 0", "division_by_zero",
              [](const Tensor& x) { return nothing_of(x) * rsqrt(nothing_of(x).var({0}, 0, true)); }),
      through("variance of one value", "too_few_values", [](const Tensor& x) { return x + x.narrow(1, 0, 1).var({1}, 1, true); }),
      through(
          "exp of 300 x", "exp_overflow", [](const Tensor& x) { return exp(x * 300.0); }, kSingle),
      through("softmax by hand", "exp_overflow",
              [](const Tensor& x) {
                const Tensor e = exp(x * 300.0);
                return e / sum(e, {1}, true);
              }),
      through(
          "control: norm of a zero vector", "", [](const Tensor& x) { return x + norm(nothing_of(x), 2, {1}, true); }, kSingle),
      through(
          "control: std of a constant", "", [](const Tensor& x) { return x + nothing_of(x).std({1}, 1, true); }, kSingle),
  };
}

std::vector<Fault> of_masks() {
  return {
      through("masked_fill of a whole row", "masked_row",
              [](const Tensor& x) {
                Tensor mask = zeros(x.shape(), {.dtype = DType::boolean});
                mask.select(0, 2).fill_(1);
                return softmax(x.masked_fill(mask, -kInf), 1);
              }),
      through(
          "an added mask that hides a row", "masked_row",
          [](const Tensor& x) {
            Tensor mask = zeros(x.shape());
            mask.select(0, 2).fill_(-kInf);
            return softmax(x + mask, 1);
          },
          DType::bf16),
      through("a mask from the host that hides a row", "masked_row",
              [](const Tensor& x) {
                std::vector<float> mask(size_t(x.numel()), 0);
                for (size_t i = 0; i < size_t(x.size(1)); ++i) mask[i] = -float(kInf);
                return softmax(x + from_vector(mask, x.shape()), 1);
              }),
      through(
          "inf in a mask times 0", "zero_times_inf",
          [](const Tensor& x) {
            Tensor mask = zeros(x.shape());
            mask.select(0, 1).fill_(kInf);
            return x + mask * zeros(x.shape());
          },
          kSingle),
      {"control: a causal mask of -inf", "",
       [](const Draw& d) {
         const auto attend = [](const Tensor& x) {
           const Tensor later = ones({x.size(0), x.size(0)}).triu(1).to(DType::boolean);
           return mm(softmax(mm(x, x.t()).masked_fill(later, -kInf), -1), x);
         };
         auto m = layers({{"in", std::make_shared<Linear>(16, 16)},
                          {"attend", function("Attend", attend)},
                          {"head", std::make_shared<Linear>(16, 4)}});
         return training(m, mse(), DType::f16, 256, regression(d, 16, 4));
       }},
  };
}

}  // namespace

std::vector<Fault> of_domains() {
  std::vector<Fault> out = of_logarithms_and_roots();
  for (const auto& part : {of_divisions(), of_masks()}) out.insert(out.end(), part.begin(), part.end());
  return out;
}

}  // namespace halfstep::faults
