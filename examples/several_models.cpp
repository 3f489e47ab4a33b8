// SPDX-License-Identifier: Apache-2.0
// Two models, two losses, two optimizers, one scaler: each loss is scaled, each optimizer steps by itself, one update ends the
// step. An optimizer whose gradients overflowed skips; the other steps; the scale backs off for both.
#include <limits>

#include "examples/claim.h"
#include "halfstep.h"

using namespace halfstep;

int main() {
  manual_seed(4);
  const Tensor x = randn({32, 4});
  Linear first(4, 2), second(4, 2);
  SGD opt_first(first.parameters(), {.lr = 0.1}), opt_second(second.parameters(), {.lr = 0.1});
  GradScaler scaler({.init_scale = 1024});
  for (int step = 0; step < 3; ++step) {
    opt_first.zero_grad();
    opt_second.zero_grad();
    Tensor loss_first, loss_second;
    {
      const Autocast region(Device::cpu, DType::f16);
      const Tensor a = first(x), b = second(x);
      loss_first = mse_loss(a, b * 0.5);
      loss_second = mse_loss(b, a * 0.5);
    }
    scaler.scale(loss_first).backward({}, /*retain_graph=*/true);  // both losses go through both models
    scaler.scale(loss_second).backward();
    const bool overflow = step == 1;
    if (overflow)
      second.parameters()[0].grad().fill_(std::numeric_limits<double>::infinity());  // as if a gradient had left the range
    const auto before = second.parameters()[0].detach().to_vector<float>(),
               moved = first.parameters()[0].detach().to_vector<float>();
    const double scale = scaler.get_scale();
    scaler.unscale_(opt_first);  // may be inspected or clipped here
    const auto outcome_first = scaler.step(opt_first), outcome_second = scaler.step(opt_second);
    scaler.update();
    std::cout << "step " << step << ": scale " << scale << " -> " << scaler.get_scale() << '\n';
    claim(outcome_first.applied() && first.parameters()[0].detach().to_vector<float>() != moved, "the first model steps");
    if (overflow) {
      claim(outcome_second.overflow() && second.parameters()[0].detach().to_vector<float>() == before,
            "the second skips and keeps every bit");
      claim(scaler.get_scale() == scale / 2, "the scale backs off for both");
    } else {
      claim(outcome_second.applied(), "the second steps, too");
    }
  }
  return failed_claims;
}
