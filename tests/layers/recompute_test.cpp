// SPDX-License-Identifier: Apache-2.0
// Modules that are computed again in backward.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "amp/autocast/autocast.h"
#include "framework/autograd/grad_mode.h"
#include "framework/ops/ops.h"
#include "framework/tensor/memory.h"
#include "layers/layers.h"
#include "optim/optimizers.h"
#include "tests/support/errors.h"

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

namespace {

struct Dropped : Module {
  Part<Linear> fc{this, "fc", 4, 4};
  Part<Dropout> drop{this, "drop", 0.5};
  ModuleBuffer calls = register_buffer("calls", zeros({}));
  Tensor forward(const Tensor& x) override {
    {
      const NoGrad off;
      calls.add_(1);
    }
    return drop(tanh(fc(x)));
  }
};
using testing::error_of;

constexpr const char* kGone =
    "[recompute_in_backward] the module is gone whose forward backward would compute again\n"
    "help: let the module live until backward";
const std::string kReplaced =
    "[recompute_in_backward] parts or parameters of Dropped were replaced after the forward that backward would compute again\n"
    "help: replace them after backward";

Dropped recomputing() {
  Dropped net;
  net.recompute_in_backward(true);
  return net;
}

// The gradient of the weight after `between`, which happens between forward and backward; with or without recomputation.
template <class F>
std::vector<float> gradient(bool recompute, const F& between) {
  manual_seed(4);
  std::vector<Dropped> nets(2);
  for (Dropped& net : nets) net.recompute_in_backward(recompute);
  const Tensor x = randn({3, 4}), y = nets[1](x).square().sum(), weight = nets[1].fc->weight;
  between(nets);
  y.backward();
  return weight.grad().to_vector<float>();
}

}  // namespace

TEST_CASE("recompute_in_backward: a module may be moved between forward and backward, in any way") {
  const auto same = [](const auto& between) {
    const std::vector<float> plain = gradient(false, between);
    CHECK(gradient(true, between) == plain);
    CHECK(*std::max_element(plain.begin(), plain.end()) > 0);
  };
  same([](std::vector<Dropped>& nets) { nets.resize(9); });            // moves them elsewhere
  same([](std::vector<Dropped>& nets) { nets.erase(nets.begin()); });  // moves one into the other
  same([](std::vector<Dropped>& nets) { std::swap(nets[0], nets[1]); });
  same([](std::vector<Dropped>& nets) {
    std::swap(nets[0], nets[1]);
    nets.resize(9);
    nets.erase(nets.begin() + 1);
    std::swap(nets[0], nets[5]);
  });
  same([](std::vector<Dropped>& nets) { nets[1].eval(); });  // the modes are those of the forward
  same([](std::vector<Dropped>& nets) { nets[1].drop->eval(); });
}

TEST_CASE("recompute_in_backward: the modes of now come back, and buffers move once") {
  Dropped net = recomputing();
  const Tensor y = net(ones({2, 4})).sum();
  net.eval();
  y.backward();
  CHECK(!net.training());
  CHECK(!net.drop->training());
  CHECK(net.calls.item<float>() == 1);
}

TEST_CASE("recompute_in_backward: the precisions are those of the forward") {
  const auto run = [](bool change) {
    manual_seed(4);
    Dropped net = recomputing();
    net.fc->set_precision(DType::f32);
    Tensor y;
    {
      const Autocast region(Device::cpu, DType::bf16);
      y = net(randn({3, 4})).to(DType::f32).square().sum();
    }
    if (change) net.fc->clear_precision();
    y.backward();
    return net.fc->weight.grad().to_vector<float>();
  };
  CHECK(run(true) == run(false));
}

TEST_CASE("recompute_in_backward: a module that is gone is an error") {
  const auto loss_of = [] {
    Dropped net = recomputing();
    return net(ones({2, 4})).sum();
  };
  CHECK(error_of([&] { loss_of().backward(); }) == kGone);
  std::vector<Dropped> nets(2);
  nets[1].recompute_in_backward(true);
  const Tensor y = nets[1](ones({2, 4})).sum();
  nets.pop_back();
  CHECK(error_of([&] { y.backward(); }) == kGone);
  Sequential whole{std::make_shared<Linear>(4, 4), std::make_shared<Linear>(4, 4)};
  whole[0]->recompute_in_backward(true);
  const Tensor z = whole(ones({2, 4}).set_requires_grad()).sum();
  whole = Sequential{std::make_shared<Linear>(4, 4)};
  CHECK(error_of([&] { z.backward(); }) == std::string(kGone) + "\nlayer: 0, backward of checkpoint");
}

TEST_CASE("recompute_in_backward: parts and parameters that were replaced are an error") {
  const auto error_after = [](const auto& replace) {
    Dropped net = recomputing();
    const Tensor y = net(ones({2, 4})).sum();
    replace(net);
    return error_of([&] { y.backward(); });
  };
  CHECK(error_after([](Dropped& net) { net.fc = Linear(4, 4); }) == kReplaced);
  CHECK(error_after([](Dropped& net) { net.drop = Dropout(0.1); }) == kReplaced);
  CHECK(error_after([](Dropped& net) { net.fc->weight = zeros({4, 4}); }) == kReplaced);
  CHECK(error_after([](Dropped& net) { net = Dropped(); }) == kReplaced);
  const std::string changed = error_after([](Dropped& net) {
    const NoGrad off;
    net.fc->bias.add_(1);
  });
  CHECK(changed.starts_with("[checkpoint] fc.bias of shape [4] was modified in place after checkpoint saved it"));
  CHECK(error_after([](Dropped& net) { net.fc->weight.set_requires_grad(false); }).empty());
}

TEST_CASE("recompute_in_backward: a step between two backwards is an error, as without it") {
  for (const bool recompute : {false, true}) {
    Sequential net{std::make_shared<Linear>(4, 4), std::make_shared<Linear>(4, 1)};
    net.recompute_in_backward(recompute);
    SGD optimizer(net.parameters(), {.lr = 0.1});
    const Tensor y = net(ones({2, 4})).sum();
    y.backward({}, /*retain_graph=*/true);
    optimizer.step();
    CHECK(error_of([&] { y.backward(); }).find("was modified in place") != std::string::npos);
  }
}

namespace {

// Modules of the class ModuleOf, which count their forwards.
struct Gated : ModuleOf<Gated> {
  Part<Linear> fc{this, "fc", 4, 4};
  Tensor forward(const Tensor& x, const Tensor& gate = {}) {
    ++forwards;
    const Tensor y = tanh(fc(x));
    return gate.defined() ? y * gate : y;
  }
  int forwards = 0;
};
struct InAndOut : ModuleOf<InAndOut> {
  Part<Gated> inner{this, "inner", Gated()};
  Tensor forward(Tensor x) {
    ++forwards;
    return inner(x + 1.0);
  }
  int forwards = 0;
};

}  // namespace

TEST_CASE("recompute_in_backward: a ModuleOf, whose call is from one tensor to one, within a module or without") {
  const Tensor x = arange(8.0, {.dtype = DType::f32}).reshape({2, 4});
  const auto run = [&](bool outer, bool inner) {
    manual_seed(3);
    InAndOut net;
    net.recompute_in_backward(outer);
    net.inner->recompute_in_backward(inner);
    const Tensor in = x.clone().set_requires_grad();
    const Tensor y = net(in);
    y.square().sum().backward();
    CHECK(net.forwards == 1 + outer);
    CHECK(net.inner->forwards == 1 + outer + inner);
    Tensors out{y, in.grad()};
    for (const Tensor& p : net.parameters()) out.push_back(p.grad());
    return out;
  };
  const Tensors plain = run(false, false);
  for (const auto& [outer, inner] : {std::pair{true, false}, std::pair{false, true}}) {
    const Tensors again = run(outer, inner);
    for (size_t i = 0; i < plain.size(); ++i) CHECK(equal(again[i], plain[i]));
  }
  Gated net;
  net.recompute_in_backward(true);
  net(x, ones({4})).sum().backward();  // two tensors are computed once
  CHECK(net.forwards == 1);
  net.eval();
  net(x).sum().backward();
  CHECK(net.forwards == 2);
}
