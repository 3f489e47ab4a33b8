// SPDX-License-Identifier: Apache-2.0
#include "layers/running_statistics.h"

#include <doctest/doctest.h>

#include <vector>

#include "framework/ops/ops.h"
#include "layers/layers.h"
#include "optim/averages.h"
#include "optim/optimizers.h"

using namespace halfstep;

TEST_CASE("update_bn makes the statistics of batch norms those of the inputs") {
  Sequential net(make<BatchNorm1d>(2), make<Linear>(2, 1));
  auto& norm = static_cast<BatchNorm1d&>(*net.children()[0]);
  net(tensor({100, 200, 300, 400}, {2, 2}, {}));
  net.eval();
  update_bn(net, std::vector<Tensor>{tensor({1, 2, 3, 6}, {2, 2}, {}), tensor({5, 0, 7, 0}, {2, 2}, {})});
  CHECK(norm.running_mean.to_vector<double>() == std::vector<double>{4, 2});
  CHECK(norm.running_var.to_vector<double>() == std::vector<double>{2, 4});
  CHECK(norm.momentum() == 0.1);
  CHECK(!net.training());
}

TEST_CASE("averaged weights by statistics of others warn, those of update_bn and exponential averages do not") {
  Sequential net(make<Linear>(2, 2), make<BatchNorm1d>(2));
  SGD opt(net.parameters(), 0.1);
  WeightAverage swa(opt, {.equal = true}), ema(opt, {.decay = 0.9});
  const Tensor x = rand({8, 2});
  net(x).square().sum().backward();
  opt.step();
  net.eval();
  const auto warned = [&](WeightAverage& average, bool update) {
    const WeightAverage::Scope averaged(average);
    if (update) update_bn(net, std::vector<Tensor>{x});
    const uint64_t before = AveragedWeights::warnings();
    net(x);
    return AveragedWeights::warnings() > before;
  };
  CHECK(!warned(ema, false));
  CHECK(!warned(swa, true));
  CHECK(warned(swa, false));
  net(x);
  const uint64_t before = AveragedWeights::warnings();
  net(x);
  CHECK(AveragedWeights::warnings() == before);
  swa.copy_to_parameters();
  net(x);
  CHECK(AveragedWeights::warnings() > before);
  update_bn(net, std::vector<Tensor>{x});
  const uint64_t updated = AveragedWeights::warnings();
  net(x);
  CHECK(AveragedWeights::warnings() == updated);
}
