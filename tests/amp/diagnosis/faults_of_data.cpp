// SPDX-License-Identifier: Apache-2.0
// What is wrong with the data, and runs in which nothing is.

#include "framework/ops/ops.h"
#include "layers/layers.h"
#include "tests/amp/diagnosis/faults.h"

namespace halfstep::faults {
namespace {

// Row 3 of the step's input or target becomes `value`.
Batches poisoned(const Batches& batches, int at, double value, bool target = false) {
  return [=](int step) {
    auto [x, y] = batches(step);
    if (step == at) (target ? y : x).select(0, 3).fill_(value);
    return std::pair{x, y};
  };
}

Batches with_label(const Batches& batches, int64_t label, bool all = false) {
  return [=](int step) {
    auto [x, y] = batches(step);
    if (step == 4) (all ? y : y.select(0, 1)).fill_(double(label));
    return std::pair{x, y};
  };
}

// Steps take it for a mean over all rows.
std::shared_ptr<Loss> silent() {
  return loss_of([](const Tensor& x, const Tensor& y) { return cross_entropy(x, y); });
}

Run nan_in(const Draw& d, std::optional<DType> low, std::optional<double> scale, double value = kNan) {
  return training(mlp(d), mse(), low, scale, poisoned(regression(d, 16, 4), 5, value));
}

std::shared_ptr<Sequential> embedding() {
  return layers({{"embed", std::make_shared<Embedding>(10, 16)}, {"head", std::make_shared<Linear>(16, 4)}});
}

std::vector<Fault> of_batches() {
  return {
      {"NaN in a batch", "input_nonfinite", [](const Draw& d) { return nan_in(d, DType::f16, 256); }},
      {"inf in a batch", "input_nonfinite", [](const Draw& d) { return nan_in(d, DType::f16, 256, kInf); }},
      {"NaN in a batch, bfloat16", "input_nonfinite", [](const Draw& d) { return nan_in(d, DType::bf16, {}); }},
      {"NaN in a batch, float32", "input_nonfinite", [](const Draw& d) { return nan_in(d, kSingle, {}); }},
      {"NaN in a target", "target_nonfinite",
       [](const Draw& d) { return training(mlp(d), mse(), DType::f16, 256, poisoned(regression(d, 16, 4), 5, kNan, true)); }},
      {"a label that equals the number of classes", "target_index",
       [](const Draw& d) { return training(mlp(d), cross_entropy(), DType::f16, 256, with_label(classes(d, 16, 4), 4)); }},
      {"a label of -1", "target_index",
       [](const Draw& d) { return training(mlp(d), cross_entropy(), DType::bf16, {}, with_label(classes(d, 16, 4), -1)); }},
      {"all targets ignored, by a loss that does not say so", "targets_ignored",
       [](const Draw& d) { return training(mlp(d), silent(), DType::f16, 256, with_label(classes(d, 16, 4), -100, true)); }},
      {"an index beyond the embedding", "target_index",
       [](const Draw&) {
         const Batches words = [](int step) {
           Generator g(uint64_t(9 + step));
           Tensor x = randint(0, 10, {16}, {.dtype = DType::i64}, &g);
           if (step == 4) x.select(0, 1).fill_(10);
           return std::pair{x, randint(0, 4, {16}, {.dtype = DType::i64}, &g)};
         };
         return training(embedding(), cross_entropy(), DType::f16, 256, words);
       }},
      {"NaN in the second of four micro-batches", "input_nonfinite",
       [](const Draw& d) {
         Run run = training(mlp(d), mse(), DType::f16, 256, poisoned(regression(d, 16, 4), 9, kNan));
         run.step.accumulate_steps = 4;
         return run;
       }},
  };
}

std::vector<Fault> of_nothing() {
  return {
      {"control: float16", "", [](const Draw& d) { return training(mlp(d), mse(), DType::f16, 1024, regression(d, 16, 4)); }},
      {"control: bfloat16", "",
       [](const Draw& d) { return training(mlp(d), cross_entropy(), DType::bf16, {}, classes(d, 16, 4), 0.1); }},
      {"control: some targets ignored", "",
       [](const Draw& d) {
         const Batches some = [b = classes(d, 16, 4)](int step) {
           auto [x, y] = b(step);
           y.select(0, 4).fill_(-100);
           return std::pair{x, y};
         };
         return training(mlp(d), cross_entropy(), DType::f16, 256, some);
       }},
      {"control: dropout behind a stateful LSTM", "",
       [](const Draw&) {
         auto m = layers({{"lstm", std::make_shared<LSTM>(8, 16, LSTMOptions{.batch_first = true, .stateful = true})},
                          {"drop", std::make_shared<Dropout>(0.3)},
                          {"head", std::make_shared<Linear>(16, 4)}});
         return training(m, mse(), DType::f16, 256, sequences(6));
       }},
  };
}

}  // namespace

std::vector<Fault> of_data() {
  std::vector<Fault> out = of_batches();
  for (const Fault& f : of_nothing()) out.push_back(f);
  return out;
}

}  // namespace halfstep::faults
