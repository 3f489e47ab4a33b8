// SPDX-License-Identifier: Apache-2.0
// The usual loop in mixed precision: autocast around forward and loss, backward outside it, one scaler.update() a step.
//
// The same loop runs in float32 when both switches are off, which is the control that this program compares with.
#include <cmath>

#include "examples/claim.h"
#include "halfstep.h"

using namespace halfstep;

namespace {

struct Result {
  double first = 0, last = 0;
  int skipped = 0;
  double scale = 0;
};

Result train(bool amp, double init_scale) {
  manual_seed(1);
  const Tensor x = randn({256, 8}), y = sin(x.sum({1}, true));
  Sequential net{Linear(8, 32), Tanh(), Linear(32, 1)};
  SGD opt(net.parameters(), {.lr = 0.1});
  const MSELoss loss_fn;
  GradScaler scaler({.init_scale = init_scale, .enabled = amp});
  Result r;
  for (int step = 0; step < 500; ++step) {
    opt.zero_grad();
    Tensor loss;
    {
      const Autocast region(Device::cpu, DType::f16, amp);
      loss = loss_fn(net(x), y);
    }
    scaler.scale(loss).backward();
    r.skipped += scaler.step(opt).overflow();
    scaler.update();
    if (step == 0) r.first = loss.item<double>();
    r.last = loss.item<double>();
  }
  r.scale = scaler.get_scale();
  return r;
}

}  // namespace

int main() {
  const Result plain = train(false, 1), amp = train(true, 65536), high = train(true, 0x1p40);
  std::cout << "float32   loss " << plain.first << " -> " << plain.last << "\nfloat16   loss " << amp.first << " -> " << amp.last
            << ", scale " << amp.scale << ", " << amp.skipped << " steps skipped\nscale 2^40: " << high.skipped
            << " steps skipped until the scale was " << high.scale << '\n';
  claim(plain.last < 0.5 * plain.first, "the loss falls in float32");
  claim(std::fabs(amp.last - plain.last) < 0.05 * plain.last, "and to the same value in mixed precision");
  claim(high.skipped > 5 && high.last < 0.5 * high.first, "a scale that is far too high costs a few skipped steps, nothing else");
  return failed_claims;
}
