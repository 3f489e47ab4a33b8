// SPDX-License-Identifier: Apache-2.0
// Gradients that are multiplied by the loss scale are no gradients to clip or to measure.
#include <doctest/doctest.h>

#include "amp/diagnosis/replay.h"
#include "amp/step/train_step.h"
#include "framework/autograd/grad_mode.h"
#include "framework/ops/ops.h"
#include "tests/amp/scaling.h"
#include "tests/support/errors.h"

using namespace halfstep;
using testing::error_of;

namespace {

struct Net {
  std::shared_ptr<Sequential> net = scaling::model();
  SGD opt{net->parameters(), {.lr = 0.1}};
  GradScaler scaler{{.init_scale = 64}};
  Tensor x = randn({4, 8});
  Tensor loss() { return (*net)(x).square().mean(); }
  std::vector<Tensor> parameters() const { return net->parameters(); }
};

std::string refused(const char* op) {
  return std::string("[") + op + "] these gradients are multiplied by the loss scale\nhelp: call scaler.unscale_(opt) first, "
                                  "or p.set_grad(p.grad()) if the program has divided them itself";
}

bool is_true(const Net& n) {
  return error_of([&] { grad_norm(n.parameters()); }).empty();
}

}  // namespace

TEST_CASE("clipping and norms refuse gradients that are multiplied by the loss scale") {
  Net n;
  n.scaler.scale(n.loss()).backward();
  CHECK(error_of([&] { clip_grad_norm_(n.parameters(), 1); }) == refused("clip_grad_norm_"));
  CHECK(error_of([&] { clip_grad_value_(n.parameters(), 1); }) == refused("clip_grad_value_"));
  CHECK(error_of([&] { clip_grad_agc_(n.parameters(), 1); }) == refused("clip_grad_agc_"));
  CHECK(error_of([&] { grad_norm(n.parameters()); }) == refused("grad_norm"));
  CHECK_THROWS_AS(clip_grad_norm_(n.parameters()[3], 1), AmpError);

  const Gradients gradients = n.scaler.unscale_(n.opt);
  const double norm = clip_grad_norm_(gradients, 1e-3).item<double>();
  CHECK(clip_grad_norm_(n.parameters(), 1).item<double>() == doctest::Approx(1e-3).epsilon(1e-3));
  n.opt.zero_grad();
  n.loss().backward();
  CHECK(grad_norm(n.parameters()).item<double>() == doctest::Approx(norm));
}

TEST_CASE("every way to a scaled backward marks, and unscaling, steps and zero_grad clear") {
  Net n;
  const auto after = [&](auto backward) {
    n.net->zero_grad();
    CHECK(is_true(n));
    backward();
    return is_true(n);
  };
  CHECK(after([&] { n.loss().backward(); }));
  CHECK(!after([&] { n.scaler.scale(n.loss()).backward(); }));
  CHECK(!after([&] { n.scaler.backward(n.loss()); }));
  CHECK(!after([&] { n.scaler.backward(n.loss(), 0.5); }));
  CHECK(!after([&] { n.loss().backward(n.scaler.seed(Device::cpu)); }));
  CHECK(!after([&] { n.loss().backward(n.scaler.seed(Device::cpu, 0.5)); }));
  CHECK(!after([&] { (n.scaler.scale(n.loss()) + n.scaler.scale(n.loss())).backward(); }));
  CHECK(after([&] { grad({n.scaler.scale(n.loss())}, n.parameters()); }));  // leaves no gradients behind

  CHECK(!after([&] { n.scaler.scale(n.loss()).backward(); }));
  n.scaler.step(n.opt);  // leaves true gradients
  CHECK(is_true(n));
  n.scaler.update();
  const Tensor p = n.parameters()[0];
  n.opt.zero_grad();
  n.scaler.backward(n.loss());
  for (const Tensor& q : n.parameters()) q.set_grad(ones(q.shape()));
  CHECK(is_true(n));
  CHECK(p.grad().defined());
}

TEST_CASE("a sum of gradients that a scale multiplies and of others is refused where it is used, by the name of the parameter") {
  const std::string mixed =
      "[gradients] the gradient of gain is a sum of some that a loss scale multiplies and of others that it does not, or "
      "another one does\nhelp: pass every loss of a step through scaler.scale() of one scaler, unscale after the last backward, "
      "update after that, and call zero_grad() between steps";
  Tensor p = ones({2}).set_requires_grad();
  p.set_label("gain");
  GradScaler scaler({.init_scale = 16});
  SGD opt(std::vector<Tensor>{p}, 1.0);
  const auto plain = [&] { p.sum().backward(); };
  const auto scaled = [&] { scaler.scale(p.square().sum()).backward(); };
  const auto refused = [&](auto use) { return error_of([&] { use(); }) == mixed; };
  for (const bool first : {false, true}) {
    p.zero_grad();
    first ? plain() : scaled();
    first ? scaled() : plain();
    CHECK(refused([&] { scaler.step(opt); }));
    CHECK(refused([&] { scaler.unscale_(opt); }));
    CHECK(refused([&] { opt.step(); }));
    scaled();  // one more changes nothing
    CHECK(refused([&] { scaler.step(opt); }));
    CHECK(p.to_vector<float>() == std::vector<float>{1, 1});
  }
  p.zero_grad();
  scaled(), scaled();  // of one scale
  scaler.unscale_(opt);
  CHECK(p.grad().to_vector<float>() == std::vector<float>{4, 4});
  scaled();  // a late loss
  CHECK(refused([&] { scaler.step(opt); }));
  scaler.update();
  // What zero_grad or zero_ takes away is not there: a generator's loss leaves gradients in the critic, which nobody uses.
  for (const bool whole : {true, false}) {
    plain();
    whole ? p.zero_grad() : void(p.grad().zero_());
    scaled();
    scaler.unscale_(opt);
    CHECK(p.grad().to_vector<float>() == std::vector<float>{2, 2});
    scaler.update();
    p.zero_grad();
  }
}

TEST_CASE("other backward passes in a scaled one: hooks see it, and what follows it does not") {
  Net n, other;
  const Tensor y = n.loss();
  const Tensor product = n.scaler.scale(y);
  y.register_hook([&](const Tensor&) {
    const EnableGrad on;
    other.loss().backward();  // its own loss is not scaled, but may depend on gradients that are
    return Tensor();
  });
  product.backward();
  CHECK(!is_true(other));
  other.net->zero_grad();
  other.loss().backward();
  CHECK(is_true(other));
}

TEST_CASE("scalers that do not scale mark nothing") {
  for (const GradScalerOptions& options :
       {GradScalerOptions{.enabled = false}, GradScalerOptions{.init_scale = 1, .fixed = true}}) {
    Net n;
    GradScaler scaler(options);
    scaler.scale(n.loss()).backward();
    CHECK(is_true(n));
    scaler.backward(n.loss());
    CHECK(is_true(n));
    n.loss().backward(scaler.seed(Device::cpu));
    CHECK(is_true(n));
    CHECK(std::vector<Tensor>(scaler.unscale_(n.opt)).size() == n.parameters().size());
  }
}

TEST_CASE("after a train step with a scaler its gradients are refused, unless it clipped them in memory") {
  for (const double norm : {0.0, 1.0}) {
    for (const double value : {0.0, 1.0}) {
      Net n;
      const MSELoss loss;
      TrainStep step(*n.net, loss, n.opt, n.scaler, nullptr, {.amp = DType::f16, .clip_grad_norm = norm, .clip_grad_value = value});
      for (int i = 0; i < 2; ++i) step(n.x, n.x);
      CHECK(is_true(n) == (value > 0));
    }
  }
}

TEST_CASE("a step that is computed again for a diagnosis leaves the gradients and their marks") {
  Net n;
  n.scaler.backward(n.loss());
  replay_step({.module = *n.net, .batches = {{[&] { return n.loss(); }, {}, {}}}}, {.name = "float32", .low = {}});
  CHECK(!is_true(n));
  n.scaler.backward(n.loss());  // the next micro-batch
  CHECK(!is_true(n));
}

TEST_CASE("a gradient that is moved to other memory stays marked") {
  Net n;
  n.scaler.backward(n.loss());
  n.net->to(MemoryFormat::contiguous);
  n.net->to(DType::f64);
  CHECK(!is_true(n));
  n.scaler.abandon();
  n.net->to(DType::f32);
  n.net->zero_grad();
  n.scaler.backward(n.loss());
  gradients_of(n.parameters(), /*contiguous=*/true);
  CHECK(!is_true(n));
}
