// SPDX-License-Identifier: Apache-2.0
// What does not fit into float16: gradients under a loss scale, and activations, weights and gradients at any scale.
#include "framework/ops/ops.h"
#include "layers/layers.h"
#include "optim/optimizers.h"
#include "tests/amp/diagnosis/faults.h"

namespace halfstep::faults {
namespace {

constexpr DType kF16 = DType::f16;
constexpr double kDefault = 65536;  // the scaler's first scale

std::shared_ptr<Loss> mse_times(double by) {
  return loss_of([by](const Tensor& a, const Tensor& b) { return mse_loss(a, b) * by; });
}

std::vector<Fault> of_scale() {
  return {
      {"MSE as a sum, large targets", "overflow_scale",
       [](const Draw& d) {
         return training(mlp(d), std::make_shared<MSELoss>(LossOptions{Reduction::sum}), kF16, kDefault,
                         regression(d, 16, 4, 1, 30), 1e-4);
       }},
      {"init_scale 2^24", "overflow_scale",
       [](const Draw& d) { return training(mlp(d), mse(), kF16, 0x1p24, regression(d, 16, 4, 1, 3)); }},
      {"loss times 1000", "overflow_scale",
       [](const Draw& d) { return training(mlp(d), mse_times(1000), kF16, kDefault, regression(d, 16, 4), 1e-6); }},
      {"four micro-batches, large targets", "overflow_scale",
       [](const Draw& d) {
         Run run = training(mlp(d), mse(), kF16, kDefault, regression(d, 16, 4, 1, 2e3), 1e-6);
         run.step.accumulate_steps = 4;
         return run;
       }},
      {"growth_interval 2", "overflow_scale",
       [](const Draw& d) {
         Run run = training(mlp(d), mse(), kF16, 1024, regression(d, 16, 4, 1, 20), 1e-3);
         run.scaler.growth_interval = 2;
         run.steps = 200;
         run.skips = 1;
         return run;
       }},
      {"LSTM, scale 2^22", "overflow_scale",
       [](const Draw&) {
         auto m = layers({{"lstm", std::make_shared<LSTM>(8, 16, LSTMOptions{.batch_first = true})},
                          {"head", std::make_shared<Linear>(16, 4)}});
         return training(m, mse(), kF16, 0x1p22, sequences(6, 50), 1e-4);
       }},
      {"clipping, scale 2^24", "overflow_scale",
       [](const Draw& d) {
         Run run = training(mlp(d), mse(), kF16, 0x1p24, regression(d, 16, 4, 1, 3));
         run.step.clip_grad_norm = 1;
         return run;
       }},
  };
}

std::vector<Fault> of_activations() {
  return {
      {"weights of 1e4", "activation_range",
       [](const Draw& d) {
         auto m = mlp(d);
         scale_parameter(*m, "fc1.weight", 3e4);
         scale_parameter(*m, "fc2.weight", 10);
         return training(m, mse(), kF16, kDefault, regression(d, 16, 4), 1e-9);
       }},
      {"a residual stream that doubles", "activation_range",
       [](const Draw& d) {
         const auto stretch = [](const Tensor& x) {
           Tensor y = x;
           for (int i = 0; i < 24; ++i) y = y + y * 0.9;
           return y;
         };
         auto m = layers({{"in", std::make_shared<Linear>(16, 32)},
                          {"stretch", function("Stretch", stretch)},
                          {"head", std::make_shared<Linear>(32, 4)}});
         return training(m, mse(), kF16, kDefault, regression(d, 16, 4), 1e-12);
       }},
      {"inputs of 1e5", "input_range",
       [](const Draw& d) { return training(mlp(d), mse(), kF16, kDefault, regression(d, 16, 4, 1e5), 1e-12); }},
      {"the square of 400 x", "activation_range",
       [](const Draw& d) {
         auto m = layers({{"in", std::make_shared<Linear>(16, 32)},
                          {"square", function("Square", [](const Tensor& x) { return square(x * 400.0); })},
                          {"head", std::make_shared<Linear>(32, 4)}});
         return training(m, mse(), kF16, kDefault, regression(d, 16, 4), 1e-14);
       }},
      {"scores of attention without their scale", "activation_range",
       [](const Draw& d) {
         const auto scores = [](const Tensor& x) { return mm(softmax(mm(x * 60.0, (x * 60.0).t()), -1), x); };
         auto m = layers({{"qk", std::make_shared<Linear>(16, 64)},
                          {"scores", function("Scores", scores)},
                          {"head", std::make_shared<Linear>(64, 4)}});
         return training(m, mse(), kF16, kDefault, regression(d, 16, 4, 3), 1e-9);
       }},
      {"a convolution with large weights", "activation_range",
       [](const Draw&) {
         auto m = layers({{"conv", std::make_shared<Conv2d>(1, 4, 3)},
                          {"act", std::make_shared<ReLU>()},
                          {"flat", std::make_shared<Flatten>()},
                          {"head", std::make_shared<Linear>(4 * 6 * 6, 4)}});
         scale_parameter(*m, "conv.weight", 1e5);
         const Batches images = [](int step) {
           Generator g(uint64_t(7 + step));
           const Tensor x = randn({4, 1, 8, 8}, {}, &g);
           return std::pair{x, randn({4, 4}, {}, &g)};
         };
         return training(m, mse(), kF16, kDefault, images, 1e-14);
       }},
      {"a weight of 1e5", "weight_range",
       [](const Draw& d) {
         auto m = mlp(d);
         const NoGrad off;
         for (const NamedTensor& p : m->named_parameters())
           if (p.name == "fc2.weight") p.tensor.select(0, 3).fill_(1e5);
         return training(m, mse(), kF16, kDefault, regression(d, 16, 4, 1e-3), 1e-12);
       }},
      {"a model of one layer with weights beyond 65504", "weight_range",
       [](const Draw& d) {
         auto m = std::make_shared<Linear>(16, 4);
         scale_parameter(*m, "weight", 1e6);
         return training(m, mse(), kF16, kDefault, regression(d, 16, 4, 1e-3), 1e-12);
       }},
      {"a temperature of 1e-5", "activation_range",
       [](const Draw& d) {
         auto m = layers(
             {{"in", std::make_shared<Linear>(16, 8)}, {"cold", function("Cold", [](const Tensor& x) { return x / 1e-5; })}});
         return training(m, cross_entropy(), kF16, kDefault, classes(d, 16, 8), 1e-12);
       }},
  };
}

std::vector<Fault> of_gradients() {
  return {
      {"loss times 1e8 at scale 1", "gradient_range",
       [](const Draw& d) { return training(mlp(d), mse_times(1e8), kF16, 1, regression(d, 16, 4), 1e-14); }},
      {"loss times 1e9 behind flat layers", "gradient_range",
       [](const Draw& d) {
         auto m = layers({{"in", std::make_shared<Linear>(16, 8)},
                          {"small", function("Small", [](const Tensor& x) { return tanh(x * 1e-3) * 1e4; })},
                          {"steep", function("Steep", [](const Tensor& x) { return x * 1e4; })},
                          {"flat", function("Flat", [](const Tensor& x) { return tanh(x * 1e-5); })}});
         return training(m, mse_times(1e9), kF16, 4, regression(d, 16, 8), 1e-14);
       }},
  };
}

}  // namespace

std::vector<Fault> of_range() {
  std::vector<Fault> out = of_scale();
  for (const auto& part : {of_activations(), of_gradients()}) out.insert(out.end(), part.begin(), part.end());
  return out;
}

}  // namespace halfstep::faults
