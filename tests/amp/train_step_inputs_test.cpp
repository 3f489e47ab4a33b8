// SPDX-License-Identifier: Apache-2.0
// Steps of modules with several inputs, and of a loss that a function computes.
#include <doctest/doctest.h>

#include "amp/step/train_step.h"
#include "framework/data/loading/loader.h"
#include "framework/data/sets/tensor_dataset.h"
#include "tests/amp/scaling.h"
#include "tests/io/files.h"

using namespace halfstep;
using scaling::bytes;

namespace {

// Two towers that share a layer, as a siamese network has them.
struct Towers : ModuleOf<Towers> {
  Part<Linear> left{this, "left", 4, 8}, right{this, "right", 3, 8}, head{this, "head", 8, 2};
  Tensor forward(const Tensor& a, const Tensor& b) { return head(relu(left(a)) * relu(right(b))); }
};

struct TowersBench {
  Towers net;
  MSELoss loss;
  SGD opt;
  GradScaler scaler;
  TrainStep step;

  explicit TowersBench(const TrainStepOptions& options, bool scaled = false)
      : net((manual_seed(7), Towers())),
        opt(net.parameters(), {.lr = 0.1, .momentum = 0.9}),
        scaler({.init_scale = 256, .enabled = scaled}),
        step(net, loss, opt, scaler, nullptr, options) {}
};

struct Rows {
  Tensor a = (manual_seed(1), randn({8, 4})), b = randn({8, 3}), y = randn({8, 2});
};

}  // namespace

TEST_CASE("train step: a module of two inputs steps as a loop written by hand") {
  const Rows rows;
  for (const bool clips : {false, true}) {
    TowersBench a({.clip_grad_norm = clips ? 0.1 : 0}, true), b({}, true);
    for (int i = 0; i < 3; ++i) {
      const StepResult r = a.step(rows.a, rows.b, rows.y);
      CHECK(r.stepped);
      CHECK(r.output.shape() == Shape{8, 2});
      b.opt.zero_grad();
      const Tensor loss = b.loss(b.net(rows.a, rows.b), rows.y);
      b.scaler.scale(loss).backward();
      if (clips) {
        b.scaler.unscale_(b.opt);
        clip_grad_norm_(b.net.parameters(), 0.1);
      }
      b.scaler.step(b.opt);
      b.scaler.update();
      CHECK(r.loss.item<float>() == loss.item<float>());
    }
    CHECK(bytes(a.net) == bytes(b.net));
  }
}

TEST_CASE("train step: the forward of several inputs runs in the region") {
  const Rows rows;
  const TowersBench exact({});
  for (const DType low : {DType::bf16, DType::f16}) {
    TowersBench a({.amp = low}, true), b({.amp = low}, true), clean({});
    for (int i = 0; i < 3; ++i) {
      const StepResult r = a.step(rows.a, rows.b, rows.y);
      CHECK(r.output.dtype() == low);
      const StepResult s = b.step([&] { return b.loss(b.net(rows.a, rows.b), rows.y); });
      CHECK(r.loss.item<float>() == s.loss.item<float>());
      CHECK(r.loss.item<double>() == doctest::Approx(clean.step(rows.a, rows.b, rows.y).loss.item<double>()).epsilon(0.02));
    }
    CHECK(bytes(a.net) == bytes(b.net));
    CHECK(bytes(a.net) != bytes(exact.net));
  }
}

TEST_CASE("train step: lists, tuples of a loader and functions of the loss are the same step") {
  const Rows rows;
  TowersBench three({}), list({}), batches({}), function({});
  DataLoader loader(TensorDataset(rows.a, rows.b, rows.y), {.batch_size = 4});
  for (auto& [a, b, y] : loader) three.step(a, b, y);
  for (auto& [a, b, y] : loader) list.step(Tensors{a, b}, y);
  for (auto& batch : loader) batches.step(batch);
  for (auto& [x1, x2, y] : loader) {
    const Tensor a = x1, b = x2, target = y;
    const StepResult r = function.step([&] { return function.loss(function.net(a, b), target); });
    CHECK(!r.output.defined());
    CHECK(r.loss.defined());
  }
  CHECK(bytes(three.net) == bytes(list.net));
  CHECK(bytes(three.net) == bytes(batches.net));
  CHECK(bytes(three.net) == bytes(function.net));
  CHECK(bytes(three.net) != bytes(TowersBench({}).net));
}

TEST_CASE("train step: accumulation and clipping hold for several inputs, and weigh rows") {
  const Rows rows;
  TowersBench whole({.clip_grad_norm = 0.5}), parts({.clip_grad_norm = 0.5, .accumulate_steps = 2});
  for (int i = 0; i < 2; ++i) {
    whole.step(rows.a, rows.b, rows.y);
    parts.step(rows.a.narrow(0, 0, 3), rows.b.narrow(0, 0, 3), rows.y.narrow(0, 0, 3));
    CHECK(parts.step.pending() == 1);
    parts.step(rows.a.narrow(0, 3, 5), rows.b.narrow(0, 3, 5), rows.y.narrow(0, 3, 5));
  }
  for (size_t i = 0; i < whole.net.parameters().size(); ++i)
    CHECK(max((whole.net.parameters()[i] - parts.net.parameters()[i]).abs()).item<double>() < 1e-6);
}

TEST_CASE("train step: inputs that a module does not take are refused, with the cure") {
  const Rows rows;
  TowersBench bench({});
  const std::string few = testing::message_of<ValueError>([&] { bench.step(rows.a, rows.b, rows.b, rows.y); });
  CHECK_MESSAGE(few.find("got 3 for Towers") != std::string::npos, few);
  CHECK_MESSAGE(few.find("step([&]") != std::string::npos, few);
  CHECK_THROWS_AS(bench.step(Tensors{}, rows.y), ValueError);
  CHECK_THROWS_AS(bench.step([&] { return bench.net(rows.a, rows.b); }), ShapeError);  // not one number
  // A module that is known only as a Module takes one tensor.
  Module& module = bench.net;
  TrainStep erased(module, bench.loss, bench.opt, bench.scaler, nullptr);
  CHECK_THROWS_AS(erased(rows.a, rows.b, rows.y), ValueError);
}
