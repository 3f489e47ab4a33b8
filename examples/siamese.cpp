// SPDX-License-Identifier: Apache-2.0
// A siamese network: do two pictures show the same digit? Its data set is a struct of this file, and its steps take two inputs.
#include "examples/claim.h"
#include "halfstep.h"

using namespace halfstep;

namespace {

// Pairs of digits. Half of them show the same digit, on average; which ones is drawn anew in each epoch.
struct PairsDataset {
  DigitsDataset digits;
  int64_t size() const { return digits.size(); }
  auto get(int64_t i, Generator& random) const {
    const auto [first, digit] = digits.get(i);
    const bool same = rand({1}, {}, &random).item<float>() < 0.5;
    const int64_t label = same ? digit.item<int64_t>() : randint(0, 10, {1}, {}, &random).item<int64_t>();
    const int64_t other = randint(0, size() / 10, {1}, {}, &random).item<int64_t>() * 10 + label;  // sample j shows j % 10
    return std::tuple{first, digits.get(other).first, float(label == digit.item<int64_t>())};
  }
};

struct Siamese : ModuleOf<Siamese> {
  Part<Sequential> tower{this, "tower", Sequential{Flatten(), Linear(784, 64), ReLU(), Linear(64, 16)}};
  Part<Linear> head{this, "head", 16, 1};
  Tensor forward(const Tensor& a, const Tensor& b) { return head((tower(a) - tower(b)).square()).squeeze(1); }
};

}  // namespace

int main() {
  manual_seed(1);
  const auto [train, test] = random_split(PairsDataset{DigitsDataset({.size = 3000})}, {0.8, 0.2});
  DataLoader loader(train, {.batch_size = 50, .shuffle = true, .num_workers = 2}), pairs(test, {.batch_size = 100});
  Siamese net;
  const BCEWithLogitsLoss loss_fn;
  AdamW opt(net.parameters(), {.lr = 3e-3});
  GradScaler scaler;
  TrainStep step(net, loss_fn, opt, scaler, nullptr, {.amp = DType::bf16});

  double first = 0, last = 0;
  for (int epoch = 0; epoch < 8; ++epoch) {
    double sum = 0;
    for (auto& [a, b, same] : loader) sum += step(a, b, same).loss.item<double>();
    last = sum / double(loader.size());
    if (epoch == 0) first = last;
    std::cout << "epoch " << epoch << "  loss " << last << '\n';
  }

  const NoGrad quiet;
  double right = 0;
  for (auto& [a, b, same] : pairs) right += ((net(a, b) > 0) == (same > 0.5)).to(DType::f32).sum().item<double>();
  right /= double(test.size());
  std::cout << "pairs not trained on that are judged right: " << right << '\n';

  claim(last < 0.5 * first, "the loss fell to less than half");
  claim(right > 0.85, "more than 85 % of the pairs not trained on are judged right");
  return failed_claims;
}
