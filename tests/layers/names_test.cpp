// SPDX-License-Identifier: Apache-2.0
// A program with PyTorch's namespaces and without halfstep's: the names that it defines itself are free.
#include <doctest/doctest.h>

#include "halfstep.h"

namespace names_test {

namespace nn = halfstep::nn;
namespace F = nn::functional;
namespace optim = halfstep::optim;
using halfstep::Tensor;

// Names of namespace halfstep, too.
struct Node {};
struct Function {};
struct Batch {
  Tensor x, y;
};

struct Net : nn::ModuleOf<Net> {
  nn::Part<nn::Linear> fc1{this, "fc1", 4, 8}, fc2{this, "fc2", 8, 2};
  Tensor forward(const Tensor& x) { return fc2(F::relu(fc1(x))); }
};

TEST_CASE("a program uses nn, F, optim and data") {
  halfstep::manual_seed(1);
  Net net;
  nn::init::zeros_(net.fc2->bias);
  optim::AdamW optimizer(net.parameters(), {.lr = 0.05});
  optim::lr_scheduler::StepLR schedule(optimizer, 10);
  const Batch batch{halfstep::randn({16, 4}), halfstep::randn({16, 2})};
  const auto loss = [&] { return F::mse_loss(net(batch.x), batch.y); };
  const float before = loss().item<float>();
  for (int i = 0; i < 20; ++i) {
    optimizer.zero_grad();
    loss().backward();
    nn::utils::clip_grad_norm_(net.parameters(), 1.0);
    optimizer.step();
    schedule.step();
  }
  CHECK(loss().item<float>() < 0.8f * before);
  [[maybe_unused]] const halfstep::data::TensorDataset<>* data = nullptr;
}

}  // namespace names_test
