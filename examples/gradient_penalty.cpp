// SPDX-License-Identifier: Apache-2.0
// A loss that contains the norm of its own gradient (a gradient penalty), in mixed precision: backward through a backward.
//
// The gradients that the penalty is made of come from a scaled loss, so they are unscaled by hand before they enter it; then
// the whole loss is scaled and differentiated as usual.
#include <cmath>

#include "examples/claim.h"
#include "halfstep.h"

using namespace halfstep;

namespace {

struct Result {
  double loss = 0, penalty = 0;
  std::vector<float> gradient;  // of the first weight
};

// Trains for a few steps; `amp` turns on autocast and loss scaling.
Result train(bool amp, int steps) {
  manual_seed(3);
  const Tensor x = randn({64, 4}), y = x.square().sum({1}, true);
  Sequential net{Linear(4, 16), Tanh(), Linear(16, 1)};
  const MSELoss loss_fn;
  SGD opt(net.parameters(), {.lr = 1e-2});
  GradScaler scaler({.init_scale = 1024, .enabled = amp});
  Result result;
  for (int step = 0; step < steps; ++step) {
    opt.zero_grad();
    Tensor loss, penalty;
    {
      const Autocast region(Device::cpu, DType::f16, amp);
      loss = loss_fn(net(x), y);
    }
    Tensors gradients = grad({scaler.scale(loss)}, net.parameters(), {}, {.create_graph = true});
    for (Tensor& g : gradients) g = g * (1 / scaler.get_scale());
    {
      const Autocast region(Device::cpu, DType::f16, amp);
      Tensor squares = zeros({});
      for (const Tensor& g : gradients) squares = squares + pow(g, 2).sum();
      penalty = sqrt(squares);
      loss = loss + 0.1 * penalty;
    }
    scaler.scale(loss).backward();
    if (step == 0) { result.gradient = (net.parameters()[0].grad() * (1 / scaler.get_scale())).to_vector<float>(); }
    scaler.step(opt);
    scaler.update();
    result.loss = loss.item<double>();
    result.penalty = penalty.item<double>();
    if (step % 50 == 0)
      std::cout << (amp ? "amp  " : "f32  ") << "step " << step << "  loss " << result.loss << "  |gradient| " << result.penalty
                << '\n';
  }
  return result;
}

}  // namespace

int main() {
  const Result before = train(false, 1), plain = train(false, 201), amp = train(true, 201);
  claim(plain.loss < 0.75 * before.loss, "the penalised loss falls in float32");
  claim(amp.loss < 0.75 * before.loss, "and in mixed precision");
  double difference = 0, size = 0;
  for (size_t i = 0; i < plain.gradient.size(); ++i) {
    difference += std::pow(plain.gradient[i] - amp.gradient[i], 2);
    size += std::pow(plain.gradient[i], 2);
  }
  claim(std::sqrt(difference / size) < 1e-2, "gradients through the penalty agree within float16's precision");
  return failed_claims;
}
