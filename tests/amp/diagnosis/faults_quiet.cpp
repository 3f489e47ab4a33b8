// SPDX-License-Identifier: Apache-2.0
// Faults that break no step, found in observed steps, and healthy runs that look a little like them.
#include "framework/autograd/autograd.h"
#include "framework/ops/ops.h"
#include "layers/layers.h"
#include "optim/optimizers.h"
#include "tests/amp/diagnosis/faults.h"

namespace halfstep::faults {
namespace {

Run observed(Run run) {
  run.observed = true;
  run.steps = 30;
  return run;
}

// Parameters, and so everything, in bfloat16.
Run in_bfloat16(std::shared_ptr<Module> m, const Batches& batches, double lr) {
  m->to(DType::bf16);
  const auto loss = loss_of([](const Tensor& a, const Tensor& b) { return mse_loss(a.to(DType::f32), b); });
  const Batches rounded = [batches](int step) {
    const auto [x, y] = batches(step);
    return std::pair{x.to(DType::bf16), y};
  };
  return observed(training(m, loss, kSingle, {}, rounded, lr));
}

// No input gets past fc2.
std::shared_ptr<Sequential> always_off(const Draw& d) {
  auto m = mlp(d);
  const NoGrad off;
  for (const NamedTensor& p : m->named_parameters())
    if (p.name == "fc2.bias") p.tensor.fill_(-100);
  return m;
}

std::vector<Fault> of_small_numbers() {
  return {
      {"parameters in bfloat16, lr 1e-4", "lost_updates",
       [](const Draw& d) { return in_bfloat16(mlp(d), regression(d, 16, 4), 1e-4); }},
      {"float16 without a scaler, loss times 1e-6", "underflow",
       [](const Draw& d) {
         const auto loss = loss_of([](const Tensor& a, const Tensor& b) { return mse_loss(a, b) * 1e-6; });
         return observed(training(mlp(d), loss, DType::f16, {}, regression(d, 16, 4), 1e4));
       }},
      {"scale 2^-20", "underflow",
       [](const Draw& d) { return observed(training(mlp(d), mse(), DType::f16, 0x1p-20, regression(d, 16, 4))); }},
      {"LayerNorm weights of 1 in bfloat16, Adam, lr 1e-3", "lost_updates",
       [](const Draw& d) {
         auto m = layers({{"in", std::make_shared<Linear>(16, 32)},
                          {"norm", std::make_shared<LayerNorm>(Shape{32})},
                          {"act", std::make_shared<ReLU>()},
                          {"head", std::make_shared<Linear>(32, 4)}});
         Run run = in_bfloat16(m, regression(d, 16, 4), 1e-3);
         run.optimizer = std::make_shared<Adam>(m->parameters(), AdamOptions{.lr = 1e-3});
         return run;
       }},
      {"units that are always off, growth_interval 1", "dead_gradient",
       [](const Draw& d) {
         Run run = observed(training(always_off(d), mse(), DType::f16, 256, regression(d, 16, 4)));
         run.scaler.growth_interval = 1;
         return run;
       }},
  };
}

std::vector<Fault> of_healthy_runs() {
  return {
      {"observed, float16", "",
       [](const Draw& d) { return observed(training(mlp(d), mse(), DType::f16, 1024, regression(d, 16, 4))); }},
      {"observed, bfloat16", "",
       [](const Draw& d) { return observed(training(mlp(d), cross_entropy(), DType::bf16, {}, classes(d, 16, 4), 0.1)); }},
      {"observed, an embedding of which few rows are used", "",
       [](const Draw&) {
         auto m = layers({{"embed", std::make_shared<Embedding>(1000, 16)}, {"head", std::make_shared<Linear>(16, 4)}});
         const Batches words = [](int step) {
           Generator g(uint64_t(9 + step));
           const Tensor x = randint(0, 1000, {16}, {.dtype = DType::i64}, &g);
           return std::pair{x, randint(0, 4, {16}, {.dtype = DType::i64}, &g)};
         };
         return observed(training(m, cross_entropy(), DType::bf16, {}, words, 0.1));
       }},
      // Of one shape: in deeper nets gradients are smaller, so that most updates are lost at this rate too.
      {"observed, parameters in bfloat16, lr 0.3", "",
       [](const Draw& d) {
         Draw same;
         same.data = d.data;
         return in_bfloat16(mlp(same), regression(same, 16, 4), 0.3);
       }},
  };
}

}  // namespace

std::vector<Fault> of_quiet() {
  std::vector<Fault> out = of_small_numbers();
  const std::vector<Fault> healthy = of_healthy_runs();
  out.insert(out.end(), healthy.begin(), healthy.end());
  return out;
}

}  // namespace halfstep::faults
