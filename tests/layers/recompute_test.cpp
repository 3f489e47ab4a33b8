// SPDX-License-Identifier: Apache-2.0
// Modules that are computed again in backward.
#include <doctest/doctest.h>

#include "amp/autocast/autocast.h"
#include "framework/autograd/grad_mode.h"
#include "framework/ops/ops.h"
#include "framework/tensor/memory.h"
#include "layers/layers.h"

using namespace halfstep;

namespace {

std::shared_ptr<Sequential> block() {
  return std::make_shared<Sequential>(std::make_shared<Conv2d>(3, 4, 3), std::make_shared<BatchNorm2d>(4), std::make_shared<ReLU>(),
                                      std::make_shared<Dropout>(0.5), std::make_shared<Linear>(4, 6), std::make_shared<ReLU>());
}

struct Result {
  std::vector<std::vector<float>> values;  // output, gradients, buffers
  bool operator==(const Result&) const = default;
};

// Two training steps of two blocks, with `names` recomputed.
Result run(const std::vector<std::string>& names, bool amp) {
  manual_seed(11);
  const auto net = std::make_shared<Sequential>(block(), std::make_shared<Flatten>(), std::make_shared<Linear>(96, 5));
  int found = 0;
  for (const auto& [name, module] : net->named_modules()) {
    for (const std::string& wanted : names) {
      if (name != wanted) continue;
      module->recompute_in_backward(true);
      ++found;
    }
  }
  CHECK(found == int(names.size()));
  CHECK(net->any_recomputes() == !names.empty());
  Result out;
  const auto keep = [&](const Tensor& t) { out.values.push_back(t.to(DType::f32).to_vector<float>()); };
  for (int step = 0; step < 2; ++step) {
    const Tensor x = randn({7, 3, 6, 6}, {.requires_grad = true});
    Tensor y;
    {
      const Autocast region(Device::cpu, DType::bf16, amp);
      y = (*net)(x);
    }
    keep(y);
    y.to(DType::f32).square().sum().backward();
    keep(x.grad());
    for (const Tensor& p : net->parameters()) keep(p.grad());
    for (const NamedTensor& b : net->named_buffers()) keep(b.tensor);
    net->zero_grad();
    keep(randn({3}));  // the generator has the position that it would have
  }
  return out;
}

}  // namespace

TEST_CASE("recompute_in_backward: the same bits of gradients, buffers and random numbers") {
  for (const bool amp : {false, true}) {
    CAPTURE(amp);
    const Result plain = run({}, amp);
    CHECK(run({"0"}, amp) == plain);
    CHECK(run({"0.0", "0.1", "0.3", "0.4"}, amp) == plain);
    CHECK(run({"0", "0.1", "2"}, amp) == plain);  // one within another
    CHECK(run({""}, amp) == plain);               // the whole net
  }
}

TEST_CASE("recompute_in_backward: keeps less between forward and backward, and nothing where there is no backward") {
  const auto held = [](bool recompute) {
    manual_seed(1);
    const auto net = std::make_shared<Sequential>();
    for (int i = 0; i < 8; ++i) net->push_back(std::make_shared<Linear>(64, 64)).push_back(std::make_shared<Tanh>());
    net->recompute_in_backward(recompute);
    const Tensor x = randn({512, 64});
    const size_t before = allocator(Device::cpu).stats().live;
    const Tensor y = (*net)(x);
    return allocator(Device::cpu).stats().live - before;
  };
  CHECK(held(true) * 4 < held(false));
  manual_seed(2);
  const auto net = block();
  net->recompute_in_backward(true);
  const Tensor x = randn({2, 3, 6, 6});
  const NoGrad off;
  CHECK((*net)(x).shape() == Shape{2, 4, 4, 6});
  net->eval();
  CHECK((*net)(x).to_vector<float>() == (*net)(x).to_vector<float>());
}
