// SPDX-License-Identifier: Apache-2.0
// Updates that drive weights away, states that were broken before the step, and a fault that does not come back.

#include "framework/ops/ops.h"
#include "layers/layers.h"
#include "optim/optimizers.h"
#include "tests/amp/diagnosis/faults.h"

namespace halfstep::faults {
namespace {

std::vector<Fault> of_updates() {
  return {
      {"SGD, lr 100, float32", "optimizer_blowup",
       [](const Draw& d) { return training(mlp(d), mse(), kSingle, {}, regression(d, 16, 4), 100); }},
      {"SGD, lr 100, bfloat16", "optimizer_blowup",
       [](const Draw& d) { return training(mlp(d), mse(), DType::bf16, {}, regression(d, 16, 4), 100); }},
      {"SGD, lr 100, float16", "optimizer_blowup",
       [](const Draw& d) { return training(mlp(d), mse(), DType::f16, 16, regression(d, 16, 4), 100); }},
      {"Adam with eps 0, rows of an embedding that no batch has", "optimizer_blowup",
       [](const Draw&) {
         auto m = layers({{"embed", std::make_shared<Embedding>(10, 16)}, {"head", std::make_shared<Linear>(16, 4)}});
         const Batches words = [](int step) {
           Generator g(uint64_t(9 + step));
           const Tensor x = randint(0, 5, {16}, {.dtype = DType::i64}, &g);
           return std::pair{x, randint(0, 4, {16}, {.dtype = DType::i64}, &g)};
         };
         Run run = training(m, cross_entropy(), DType::bf16, {}, words);
         run.optimizer = std::make_shared<Adam>(m->parameters(), AdamOptions{.lr = 1e-3, .eps = 0});
         return run;
       }},
      {"momentum 0.99, lr 1", "optimizer_blowup",
       [](const Draw& d) {
         auto m = layers({{"head", std::make_shared<Linear>(16, 4)}});
         Run run = training(m, mse(), kSingle, {}, regression(d, 16, 4, 3));
         run.optimizer = std::make_shared<SGD>(m->parameters(), SGDOptions{.lr = 1, .momentum = 0.99});
         run.steps = 600;
         return run;
       }},
  };
}

// Forty layers whose weights are 30 times too large.
Run deep(const Draw& d, std::optional<DType> low, std::optional<double> scale) {
  Layers list;
  for (int i = 0; i < 40; ++i) {
    list.push_back({"fc" + std::to_string(i), std::make_shared<Linear>(32, 32)});
    list.push_back({"act" + std::to_string(i), std::make_shared<ReLU>()});
  }
  auto m = layers(list);
  scale_parameter(*m, "", 30);
  return training(m, mse(), low, scale, regression(d, 32, 32), 1e-30);
}

std::vector<Fault> of_growth() {
  return {
      {"an RNN of ReLUs over 60 steps", "divergence",
       [](const Draw&) {
         auto m = layers({{"rnn", std::make_shared<RNN>(8, 16, RNNOptions{.nonlinearity = "relu", .batch_first = true})},
                          {"head", std::make_shared<Linear>(16, 4)}});
         scale_parameter(*m, "rnn.weight_hh_l0", 20);
         return training(m, mse(), kSingle, {}, sequences(60), 1e-30);
       }},
      {"a deep net with large weights, float32", "divergence", [](const Draw& d) { return deep(d, kSingle, {}); }},
      {"a deep net with large weights, float16", "divergence", [](const Draw& d) { return deep(d, DType::f16, 256); }},
  };
}

std::vector<Fault> of_broken() {
  return {
      {"NaN in a weight that was loaded", "weights_broken",
       [](const Draw& d) {
         auto m = mlp(d);
         const NoGrad off;
         for (const NamedTensor& p : m->named_parameters())
           if (p.name == "fc2.weight") p.tensor.select(0, 3).fill_(kNan);
         return training(m, mse(), DType::f16, 256, regression(d, 16, 4));
       }},
      {"NaN in a running variance that is used", "buffers_broken",
       [](const Draw& d) {
         auto norm = std::make_shared<BatchNorm1d>(32);
         norm->running_var.select(0, 3).fill_(kNan);
         auto m = layers({{"in", std::make_shared<Linear>(16, 32)}, {"norm", norm}, {"head", std::make_shared<Linear>(32, 4)}});
         Run run = training(m, mse(), DType::f16, 256, regression(d, 16, 4));
         run.before = [norm](int) { norm->eval(); };
         return run;
       }},
      {"NaN in the kept state of an LSTM", "state_broken",
       [](const Draw&) {
         auto lstm = std::make_shared<LSTM>(8, 16, LSTMOptions{.batch_first = true, .stateful = true});
         auto m = layers({{"lstm", lstm}, {"head", std::make_shared<Linear>(16, 4)}});
         Run run = training(m, mse(), DType::f16, 256, sequences(6));
         run.before = [lstm](int step) {
           if (step == 3) lstm->kept_state().h.fill_(kNan);
         };
         return run;
       }},
      {"an inf that does not come back", "not_reproduced",
       [](const Draw& d) {
         const auto once = [count = std::make_shared<int>(0)](const Tensor& x) { return ++*count == 6 ? x / 0.0 : x; };
         auto m = layers(
             {{"in", std::make_shared<Linear>(16, 8)}, {"odd", function("Odd", once)}, {"head", std::make_shared<Linear>(8, 4)}});
         return training(m, mse(), DType::f16, 256, regression(d, 16, 4));
       }},
  };
}

}  // namespace

std::vector<Fault> of_states() {
  std::vector<Fault> out = of_updates();
  for (const auto& part : {of_growth(), of_broken()}) out.insert(out.end(), part.begin(), part.end());
  return out;
}

}  // namespace halfstep::faults
