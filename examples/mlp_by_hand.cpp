// SPDX-License-Identifier: Apache-2.0
// A training loop in mixed precision, written out: digits, a small network, evaluation.
#include "examples/claim.h"
#include "framework/data/loading/loader.h"
#include "framework/data/sets/digits.h"
#include "halfstep.h"

using namespace halfstep;

namespace {

struct Net : Module {
  Part<Linear> fc1{this, "fc1", 784, 64};
  Part<Linear> fc2{this, "fc2", 64, 10};
  Tensor forward(const Tensor& x) override { return fc2(relu(fc1(flatten(x, 1)))); }
};

// Share of the samples that are named right.
double accuracy(Net& net, DataLoader<>& loader) {
  const NoGrad quiet;
  net.eval();
  double right = 0;
  for (auto& [x, target] : loader) right += (net(x).argmax(1) == target).to(DType::f32).sum().item<double>();
  net.train();
  return right / double(loader.dataset().size());
}

}  // namespace

int main() {
  manual_seed(1);
  Net net;
  std::cout << net << '\n';
  DataLoader loader(std::make_shared<DigitsDataset>(DigitsOptions{.size = 2000}), {.batch_size = 50, .shuffle = true});
  DataLoader test(std::make_shared<DigitsDataset>(DigitsOptions{.split = Split::test, .size = 500}), {.batch_size = 100});
  const CrossEntropyLoss loss_fn;
  AdamW opt(net.parameters(), {.lr = 3e-3});
  GradScaler scaler;

  double first = 0, last = 0;
  for (int epoch = 0; epoch < 5; ++epoch) {
    double sum = 0;
    for (auto& [x, target] : loader) {
      opt.zero_grad();
      Tensor loss;
      {
        Autocast region(Device::cpu, DType::bf16);  // forward and loss, nothing else
        loss = loss_fn(net(x), target);
      }
      scaler.scale(loss).backward();
      scaler.step(opt);
      scaler.update();
      sum += loss.item<double>();
    }
    last = sum / double(loader.size());
    if (epoch == 0) first = last;
    std::cout << "epoch " << epoch << "  loss " << last << "  scale " << scaler.get_scale() << '\n';
  }
  const double right = accuracy(net, test);
  std::cout << "accuracy on digits not trained on: " << right << '\n';

  claim(last < 0.25 * first, "the loss fell to less than a quarter");
  claim(right > 0.9, "nine digits of ten are named right");
  claim(net.fc1->weight.dtype() == DType::f32 && net.fc1->weight.grad().dtype() == DType::f32,
        "weights and their gradients stayed float32 all along");
  return failed_claims;
}
