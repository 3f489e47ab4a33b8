// SPDX-License-Identifier: Apache-2.0
// 16 bits beside float32: verdicts, the module that loses precision, and nothing left behind.
#include "amp/diagnosis/parity.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string_view>

#include "amp/autocast/autocast.h"
#include "framework/ops/ops.h"
#include "layers/layers.h"
#include "optim/optimizers.h"
#include "tests/amp/diagnosis/faults.h"

using namespace halfstep;
using faults::layers;

namespace {

// A model with batches, each a step by itself. same: each batch is the whole of the data.
struct Trained {
  std::shared_ptr<Module> model;
  std::shared_ptr<Loss> loss;
  std::vector<std::pair<Tensor, Tensor>> data;
  Trained(std::shared_ptr<Module> m, std::shared_ptr<Loss> l, const faults::Batches& batches, int count = 6, bool same = false)
      : model(std::move(m)), loss(std::move(l)) {
    model->train();
    for (int i = 0; i < count; ++i) data.push_back(batches(same ? 0 : i));
  }
  StepUnderTest step(DType low, double scale = 1) {
    StepUnderTest out{.module = *model, .batches = {}, .low = low};
    out.scale = scale;
    out.low_gradients = true;
    out.random = {77, 0};
    for (const auto& [x, y] : data) out.batches.push_back({[this, &x = x, &y = y] { return (*loss)((*model)(x), y); }, {x}, {y}});
    return out;
  }
};

std::shared_ptr<Sequential> with_middle(const std::shared_ptr<Module>& middle) {
  return layers({{"in", std::make_shared<Linear>(16, 32)},
                 {"middle", middle},
                 {"act", std::make_shared<ReLU>()},
                 {"head", std::make_shared<Linear>(32, 4)}});
}

// Adds a number and subtracts it again: what is left of x are the digits that 16 bits have beside it.
std::shared_ptr<Module> lossy(double number = 300) {
  return faults::function("Lossy", [number](const Tensor& x) { return (x + number) - number; });
}

const ModuleParity& of(const Parity& p, std::string_view path) {
  const auto at = std::find_if(p.modules.begin(), p.modules.end(), [&](const ModuleParity& m) { return m.path == path; });
  REQUIRE(at != p.modules.end());
  return *at;
}

}  // namespace

TEST_CASE("parity: a healthy model is harmless in both dtypes, with errors as its roundings make them") {
  for (const DType low : {DType::bf16, DType::f16}) {
    CAPTURE(low);
    manual_seed(1);
    Trained t(with_middle(std::make_shared<Tanh>()), faults::mse(), faults::regression({}, 16, 4));
    const Parity p = compare_with_float32(t.step(low, low == DType::f16 ? 1024 : 1));
    CHECK(p.verdict() == Parity::Verdict::harmless);
    CHECK(p.by_noise);
    CHECK(p.batches == 6);
    CHECK(p.measure() < 0.05);
    CHECK(p.measure() > 1e-5);
    CHECK(p.cosine > 0.999);
    for (const char* name : {"in", "head"}) {
      const ModuleParity& m = of(p, name);
      CAPTURE(name);
      CAPTURE(m.ratio());
      CHECK(m.roundings >= 3);
      CHECK(m.ratio() > 0.3);
      CHECK(m.ratio() < 1.5);
    }
    CHECK(std::none_of(p.modules.begin(), p.modules.end(), [](const ModuleParity& m) { return m.loses_precision(); }));
  }
}

TEST_CASE("parity: a module that loses precision is named, alone, and taking it to float32 gains most") {
  for (const DType low : {DType::bf16, DType::f16}) {
    CAPTURE(low);
    manual_seed(1);
    Trained t(with_middle(lossy(low == DType::bf16 ? 300 : 2400)), faults::mse(), faults::regression({}, 16, 4));
    const StepUnderTest step = t.step(low);
    const std::vector<ParityVariant> variants = bisection(step);
    const Parity p = compare_with_float32(step, variants);
    CAPTURE(p.measure());
    CHECK(p.verdict() != Parity::Verdict::harmless);
    for (const ModuleParity& m : p.modules) CHECK_MESSAGE(m.loses_precision() == (m.path == "middle"), m.path, " ", m.ratio());
    REQUIRE(variants.size() == p.variants.size());
    double middle = -1;
    for (size_t i = 0; i < variants.size(); ++i) {
      CAPTURE(variants[i].name);
      CAPTURE(p.variants[i]);
      CHECK(p.variants[i] <= 1.5 * p.measure());
      if (variants[i].name == "module middle") middle = p.variants[i];
      if (variants[i].name == "module head") CHECK(p.variants[i] > 0.5 * p.measure());
    }
    CHECK(middle >= 0);
    CHECK(middle < 0.1 * p.measure());
  }
}

TEST_CASE("parity: the update's error is the gradient's for SGD, larger for Adam, and nothing is updated") {
  manual_seed(1);
  Trained t(with_middle(std::make_shared<Tanh>()), faults::mse(), faults::regression({}, 16, 4));
  const auto weights = [&] {
    std::vector<double> out;
    for (const Tensor& p : t.model->parameters())
      for (const double v : p.to_vector<double>()) out.push_back(v);
    return out;
  };
  const std::vector<double> before = weights();
  CHECK_FALSE(compare_with_float32(t.step(DType::bf16)).update_error);
  SGD sgd(t.model->parameters(), {.lr = 0.1});
  const Parity plain = compare_with_float32(t.step(DType::bf16), {}, &sgd);
  REQUIRE(plain.update_error);
  CHECK(*plain.update_error == doctest::Approx(plain.error).epsilon(0.01));
  Adam adam(t.model->parameters(), {.lr = 0.001});
  const Parity first = compare_with_float32(t.step(DType::bf16), {}, &adam);
  REQUIRE(first.update_error);
  CHECK(*first.update_error > 1.5 * first.error);  // of its first update only the signs of gradients are left
  CHECK(!adam.state_dict().contains("0.step"));
  CHECK(weights() == before);
  SGD still(t.model->parameters(), {.lr = 0});
  CHECK_FALSE(compare_with_float32(t.step(DType::bf16), {}, &still).update_error);
}

TEST_CASE("parity: without noise the gradient itself is what the error is held against") {
  manual_seed(1);
  const faults::Draw d{.rows = 64};
  auto model = std::make_shared<Linear>(16, 4);
  Trained t(model, faults::mse(), faults::regression(d, 16, 4), 3, /*same=*/true);
  const Parity far = compare_with_float32(t.step(DType::bf16));
  CHECK_FALSE(far.by_noise);
  CHECK(far.verdict() == Parity::Verdict::harmless);
  CHECK(far.measure() == far.error);
  // Where the batches' gradient is zero, what 16 bits make of it is all error.
  for (int i = 0; i < 400; ++i) {
    const auto& [x, y] = t.data[0];
    (*t.loss)((*model)(x), y).backward();
    const NoGrad off;
    for (const Tensor& p : model->parameters()) {
      p.add_(p.grad() * -0.3);
      p.zero_grad();
    }
  }
  const Parity near = compare_with_float32(t.step(DType::bf16));
  CHECK_FALSE(near.by_noise);
  CHECK(near.verdict() == Parity::Verdict::harmful);
  CHECK(near.error > 1);
  const Parity single = compare_with_float32(Trained(t.model, t.loss, faults::regression(d, 16, 4), 1).step(DType::bf16));
  CHECK_FALSE(single.by_noise);
  // Of other batches the gradient is large beside their rounding.
  Trained noisy(t.model, t.loss, faults::regression(d, 16, 4));
  CHECK(compare_with_float32(noisy.step(DType::bf16)).by_noise);
}

TEST_CASE("parity: a loss scale that is too high is lowered, and float16 without one flushes gradients") {
  manual_seed(1);
  Trained t(with_middle(std::make_shared<Tanh>()), faults::mse(), faults::regression({}, 16, 4, 1, 10));
  const Parity high = compare_with_float32(t.step(DType::f16, 0x1p30));
  CHECK_FALSE(high.fault);
  CHECK(high.scale < 0x1p24);
  CHECK(high.scale >= 256);
  CHECK(high.verdict() == Parity::Verdict::harmless);
  CHECK(high.flushed < 0.01);
  Trained small(t.model, faults::loss_of([](const Tensor& a, const Tensor& b) { return mse_loss(a, b) * 1e-8; }),
                faults::regression({}, 16, 4));
  const Parity flushed = compare_with_float32(small.step(DType::f16));
  CHECK(flushed.flushed > 0.3);
  CHECK(flushed.verdict() != Parity::Verdict::harmless);
  CHECK(compare_with_float32(small.step(DType::f16, 0x1p24)).verdict() == Parity::Verdict::harmless);
}

TEST_CASE("parity: where a batch is not finite there is a diagnosis in place of a comparison") {
  manual_seed(1);
  auto broken = layers({{"in", std::make_shared<Linear>(16, 8)},
                        {"log", faults::function("Log", [](const Tensor& x) { return log(relu(x)); })},
                        {"head", std::make_shared<Linear>(8, 4)}});
  const Parity p = compare_with_float32(Trained(broken, faults::mse(), faults::regression({}, 16, 4)).step(DType::f16));
  REQUIRE(p.fault);
  CHECK(p.fault->cause == "log_domain");
  CHECK(p.verdict() == Parity::Verdict::harmful);
  auto large = with_middle(std::make_shared<ReLU>());
  faults::scale_parameter(*large, "in.weight", 1e5);
  const Parity range = compare_with_float32(Trained(large, faults::mse(), faults::regression({}, 16, 4)).step(DType::f16, 1024));
  REQUIRE(range.fault);
  CHECK(range.fault->cause == "activation_range");
}

TEST_CASE("parity leaves every byte as it was: buffers, states, gradients, random numbers, precisions, 16-bit copies") {
  manual_seed(3);
  auto model = layers({{"lstm", std::make_shared<LSTM>(8, 16, LSTMOptions{.batch_first = true, .stateful = true})},
                       {"norm", std::make_shared<LayerNorm>(Shape{16})},
                       {"drop", std::make_shared<Dropout>(0.3)},
                       {"half", std::make_shared<Linear>(16, 16)},
                       {"head", std::make_shared<Linear>(16, 4)}});
  auto images = layers({{"conv", std::make_shared<Conv2d>(1, 4, 3)},
                        {"norm", std::make_shared<BatchNorm2d>(4)},
                        {"flat", std::make_shared<Flatten>()},
                        {"head", std::make_shared<Linear>(4 * 6 * 6, 4)}});
  const faults::Batches pictures = [](int i) {
    Generator g(uint64_t(7 + i));
    const Tensor x = randn({4, 1, 8, 8}, {}, &g);
    return std::pair{x, randn({4, 4}, {}, &g)};
  };
  model->train();
  (*model)(faults::sequences(5)(99).first);  // so that there is a state
  for (Trained t : {Trained(model, faults::mse(), faults::sequences(5)), Trained(images, faults::mse(), pictures)}) {
    for (const bool copies : {false, true}) {
      if (copies) {
        const Autocast region(Device::cpu, DType::bf16);
        (*t.model)(t.data[0].first);
      }
      for (const Tensor& p : t.model->parameters()) p.set_grad(p.detach() * 2);
      const std::string bytes = faults::bytes_of(*t.model);
      const StepUnderTest step = t.step(DType::bf16);
      const Parity p = compare_with_float32(step, bisection(step));
      CHECK_FALSE(p.fault);
      CHECK(p.verdict() == Parity::Verdict::harmless);
      CHECK(faults::bytes_of(*t.model) == bytes);
      CHECK_FALSE(t.model->any_hooks());
      for (const auto& [name, module] : t.model->named_modules()) CHECK_FALSE(module->precision().has_value());
      const auto has_copy = [](const Tensor& w) { return autocast::shadow_of(w).defined(); };
      const std::vector<Tensor> all = t.model->parameters();
      CHECK(std::any_of(all.begin(), all.end(), has_copy) == copies);
      // Twice the same.
      CHECK(compare_with_float32(step).measure() == p.measure());
    }
  }
}

TEST_CASE("parity computes a module alone from the state and the random numbers that it has in the step") {
  manual_seed(3);
  auto model = layers({{"lstm", std::make_shared<LSTM>(8, 16, LSTMOptions{.batch_first = true, .stateful = true})},
                       {"drop", std::make_shared<Dropout>(0.5)},
                       {"more", std::make_shared<Dropout>(0.5)},
                       {"head", std::make_shared<Linear>(16, 4)}});
  Trained t(model, faults::mse(), faults::sequences(5));
  (*model)(t.data[3].first * 10.0);  // a state that the first batch does not begin with
  StepUnderTest step = t.step(DType::bf16);
  step.batches[0].loss = [&, first = step.batches[0].loss] {
    reset_states(*model);
    return first();
  };
  const Parity p = compare_with_float32(step);
  for (const char* name : {"lstm", "drop", "more", "head"})
    CHECK_MESSAGE(of(p, name).ratio() < 1.5, std::string(name), " ", of(p, name).error);
}
