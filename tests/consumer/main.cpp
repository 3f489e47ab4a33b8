// SPDX-License-Identifier: Apache-2.0
// Fits y = sum of squares with a small network in mixed precision; fails when it does not learn.
#include <halfstep.h>

#include <cstdio>
#include <memory>

int main() {
  using namespace halfstep;
  manual_seed(1);
  const Tensor x = randn({256, 4});
  const Tensor y = x.square().sum({1}, /*keepdim=*/true);
  Sequential net(std::make_shared<Linear>(4, 32), std::make_shared<ReLU>(), std::make_shared<Linear>(32, 1));
  MSELoss loss_fn;
  Adam opt(net.parameters(), {.lr = 1e-2});
  GradScaler scaler;
  double first = 0, last = 0;
  for (int step = 0; step < 200; ++step) {
    opt.zero_grad();
    Tensor loss;
    {
      Autocast region(Device::cpu, DType::bf16);
      loss = loss_fn(net.forward(x), y);
    }
    scaler.scale(loss).backward();
    scaler.step(opt);
    scaler.update();
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  std::printf("loss %.3f -> %.3f\n", first, last);
  return last < first / 10 ? 0 : 1;
}
