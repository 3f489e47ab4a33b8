// SPDX-License-Identifier: Apache-2.0
// Clipping in mixed precision: the bound is meant for true gradients, so they are unscaled first.
#include <algorithm>
#include <cmath>

#include "examples/claim.h"
#include "halfstep.h"

using namespace halfstep;

namespace {

constexpr double kBound = 0.5;

// The weights after ten steps, and the largest gradient norm that an update used.
std::pair<std::vector<float>, double> train(bool amp) {
  manual_seed(2);
  const Tensor x = randn({64, 4}), y = 10.0 * x.sum({1}, true);
  Linear net(4, 1);
  SGD opt(net.parameters(), {.lr = 0.1});
  GradScaler scaler({.init_scale = 4096, .enabled = amp});
  double largest = 0;
  for (int step = 0; step < 10; ++step) {
    opt.zero_grad();
    Tensor loss;
    {
      const Autocast region(Device::cpu, DType::f16, amp);
      loss = mse_loss(net(x), y);
    }
    scaler.scale(loss).backward();
    scaler.unscale_(opt);  // now .grad has the values that it would have without a scale
    clip_grad_norm_(net.parameters(), kBound);
    double squares = 0;
    for (const Tensor& p : net.parameters()) squares += p.grad().square().sum().item<double>();
    largest = std::max(largest, std::sqrt(squares));
    scaler.step(opt);  // does not unscale again
    scaler.update();
  }
  return {net.parameters()[0].detach().to_vector<float>(), largest};
}

}  // namespace

int main() {
  const auto [plain, plain_norm] = train(false);
  const auto [amp, amp_norm] = train(true);
  std::cout << "norm of the gradients after clipping: " << plain_norm << " in float32, " << amp_norm << " in mixed precision\n";
  claim(amp_norm <= kBound * 1.001, "the bound holds for the unscaled gradients");
  double difference = 0;
  for (size_t i = 0; i < plain.size(); ++i) difference = std::max(difference, double(std::fabs(plain[i] - amp[i])));
  claim(difference < 5e-3, "the weights are those of the float32 run within float16's precision");
  return failed_claims;
}
