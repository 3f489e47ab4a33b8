// SPDX-License-Identifier: Apache-2.0
#include "layers/running_statistics.h"

#include <doctest/doctest.h>

#include <vector>

#include "framework/ops/ops.h"
#include "layers/layers.h"

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
