// SPDX-License-Identifier: Apache-2.0
// A batch in four parts: gradients add up, scaled by one and the same scale; unscale, step and update come once, at the end.
#include <algorithm>
#include <cmath>

#include "examples/claim.h"
#include "halfstep.h"

using namespace halfstep;

namespace {

std::vector<float> train(bool amp, int parts) {
  manual_seed(3);
  const Tensor x = randn({64, 4}), y = tanh(x.sum({1}, true));
  Sequential net{Linear(4, 16), Tanh(), Linear(16, 1)};
  SGD opt(net.parameters(), {.lr = 0.2});
  GradScaler scaler({.init_scale = 4096, .enabled = amp});
  for (int step = 0; step < 10; ++step) {
    opt.zero_grad();
    const int64_t size = x.size(0) / parts;
    for (int part = 0; part < parts; ++part) {
      Tensor loss;
      {
        const Autocast region(Device::cpu, DType::f16, amp);
        loss = mse_loss(net(x.narrow(0, part * size, size)), y.narrow(0, part * size, size)) / double(parts);
      }
      scaler.scale(loss).backward();  // adds to .grad; no unscale_ and no update before the last part
    }
    scaler.step(opt);
    scaler.update();
  }
  return net.parameters()[0].detach().to_vector<float>();
}

double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double d = 0;
  for (size_t i = 0; i < a.size(); ++i) d = std::max(d, double(std::fabs(a[i] - b[i])));
  return d;
}

}  // namespace

int main() {
  const auto whole = train(false, 1), parts = train(false, 4), amp = train(true, 4);
  std::cout << "largest difference of a weight from one batch in float32: " << difference(whole, parts) << " in four parts, "
            << difference(whole, amp) << " in four parts and mixed precision\n";
  claim(difference(whole, parts) < 1e-6, "four parts are one batch");
  claim(difference(whole, amp) < 2e-3, "also in mixed precision, within float16's precision");
  return failed_claims;
}
