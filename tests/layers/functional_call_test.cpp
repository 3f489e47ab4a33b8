// SPDX-License-Identifier: Apache-2.0
// Calls of a module with other tensors in place of its own.
#include "layers/module/functional_call.h"

#include <doctest/doctest.h>

#include "framework/autograd/autograd.h"
#include "framework/autograd/gradcheck.h"
#include "layers/layers.h"
#include "tests/layers/support.h"
#include "tests/support/errors.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

struct Counting : Module {
  Part<Linear> fc{this, "fc", 3, 2};
  ModuleBuffer calls = register_buffer("calls", zeros({}));
  bool fails = false;
  Tensor forward(const Tensor& x) override {
    calls += 1;
    check<ValueError>(!fails, "test", "fails");
    return fc(x);
  }
};

}  // namespace

TEST_CASE("functional_call: forward with other tensors, and the module as it was afterwards") {
  manual_seed(1);
  Sequential net{Linear(3, 4), Tanh(), Linear(4, 2)};  // which runs in pieces of its own
  const Tensor x = randn({5, 3}), w = randn({4, 3}), b = zeros({4});
  const auto before = net(x).to_vector<float>();
  const Tensor y = functional_call(net, {{"0.weight", w}, {"0.bias", b}}, x);
  CHECK(y.to_vector<float>() == net[2](tanh(linear(x, w, b))).to_vector<float>());
  CHECK(net(x).to_vector<float>() == before);
  CHECK(functional_call(net, net.named_parameters(), x).to_vector<float>() == before);
  const std::map<std::string, Tensor> map{{"2.bias", ones({2})}};
  CHECK(functional_call(net, map, x).to_vector<float>() != before);
  CHECK(functional_call(net, {}, x).to_vector<float>() == before);
}

TEST_CASE("functional_call: gradients and second derivatives for tensors that were computed") {
  manual_seed(2);
  Sequential net{Linear(3, 4), ReLU(), Linear(4, 2)};
  net.to(DType::f64);
  const Tensor x = randn({5, 3}, {.dtype = DType::f64}), lr = tensor({0.001}, {.dtype = DType::f64, .requires_grad = true});
  // One step of an optimizer, differentiable with respect to its rate.
  const Tensors grads = grad({net(x).square().sum()}, net.parameters(), {}, {.create_graph = true});
  StateDict stepped = net.named_parameters();
  for (size_t i = 0; i < stepped.size(); ++i) stepped[i].tensor = stepped[i].tensor - lr * grads[i];
  functional_call(net, stepped, x).square().sum().backward();
  CHECK(lr.grad().item<double>() < 0);
  for (const Tensor& p : net.parameters()) CHECK(p.grad().defined());
  const auto f = [&](const Tensors& in) { return Tensors{functional_call(net, {{"0.weight", in[0]}, {"2.weight", in[1]}}, x)}; };
  const Tensors at{randn({4, 3}, {.dtype = DType::f64, .requires_grad = true}),
                   randn({2, 4}, {.dtype = DType::f64, .requires_grad = true})};
  gradcheck(f, at);
  gradgradcheck(f, at);
}

TEST_CASE("functional_call: buffers, exceptions, ties, states and parametrizations") {
  Counting net;
  const Tensor x = ones({1, 3}), calls = full({}, 5.0);
  functional_call(net, {{"calls", calls}}, x);
  CHECK(calls.item<float>() == 6);
  CHECK(net.calls.item<float>() == 0);
  net.fails = true;
  const Tensor own = net.fc->weight;
  CHECK_THROWS_AS(functional_call(net, {{"fc.weight", zeros({2, 3})}}, x), ValueError);
  CHECK(net.fc->weight.same(own));
  CHECK(net.parameters()[0].same(own));

  struct Tied : Module {
    Part<Embedding> embedding{this, "embedding", 5, 3};
    Part<Linear> head{this, "head", 3, 5, false};
    Tied() { head->weight = embedding->weight; }
    Tensor forward(const Tensor& i) override { return head(embedding(i)); }
  } tied;
  const Tensor i = arange(5), e = ones({5, 3});
  for (const char* name : {"embedding.weight", "head.weight"})
    CHECK(functional_call(tied, {{name, e}}, i).to_vector<float>() == std::vector<float>(25, 3));
  CHECK_THROWS_WITH_AS(functional_call(tied, {{"embedding.weight", e}, {"head.weight", ones({5, 3})}}, i),
                       doctest::Contains("are one tensor"), ValueError);
  CHECK(tied.parameter_count() == 15);

  LSTM lstm(3, 4);
  StateDict zero;
  for (const NamedTensor& p : lstm.named_parameters()) zero.push_back({p.name, zeros_like(p.tensor)});
  CHECK(largest(functional_call(lstm, zero, ones({2, 1, 3})).output) == 0);
  CHECK(largest(lstm(ones({2, 1, 3})).output) > 0);
  CHECK(functional_call(net.fc, {{"weight", zeros({2, 3})}, {"bias", ones({2})}}, x).sum().item() == 2);

  Linear normed = weight_norm(Linear(3, 2, false));
  const Tensor g = functional_call(normed, {{"parametrizations.weight.original0", zeros({2, 1})}}, x);
  CHECK(largest(g) == 0);
  CHECK(largest(normed(x)) > 0);
}

TEST_CASE("functional_call refuses what does not fit") {
  Counting net;
  const Tensor x = ones({1, 3});
  refuses<ValueError>("[functional_call] Counting has no parameter or buffer \"fc.wieght\", did you mean fc.weight?", [&] {
    functional_call(net, {{"fc.wieght", zeros({2, 3})}}, x);
  });
  refuses<ValueError>("[functional_call] \"fc.weight\" is undefined", [&] { functional_call(net, {{"fc.weight", Tensor()}}, x); });
  net.fc->recompute_in_backward(true);
  CHECK_THROWS_WITH_AS(functional_call(net, {}, x), doctest::Contains("recomputes in backward"), ValueError);
  Linear normed = weight_norm(Linear(3, 2));
  CHECK_THROWS_WITH_AS(functional_call(normed, {{"weight", zeros({2, 3})}}, x),
                       doctest::Contains("has no parameter or buffer \"weight\""), ValueError);
}

TEST_CASE("buffers that are not persistent are moved and copied, not saved, and not asked for") {
  struct Masked : Module {
    ModuleBuffer mask = register_buffer("mask", ones({3}), /*persistent=*/false);
    ModuleBuffer seen = register_buffer("seen", zeros({}));
    Part<Linear> fc{this, "fc", 3, 3};
    Tensor forward(const Tensor& x) override { return fc(x * mask); }
  } net;
  CHECK(testing::names(net.state_dict()) == std::vector<std::string>{"seen", "fc.weight", "fc.bias"});
  CHECK(testing::names(net.named_buffers()) == std::vector<std::string>{"mask", "seen"});
  net.mask.fill_(2.0);
  Masked copy = net;
  CHECK(!copy.mask.shares_memory_with(net.mask));
  CHECK(copy.mask.to_vector<float>() == std::vector<float>{2, 2, 2});
  CHECK(testing::names(copy.state_dict()) == testing::names(net.state_dict()));
  net.mask = full({3}, 3.0);  // replaced: still not saved
  CHECK(testing::names(net.state_dict()) == std::vector<std::string>{"seen", "fc.weight", "fc.bias"});
  copy.load_state_dict(net.state_dict());  // strict
  CHECK(copy.mask.to_vector<float>() == std::vector<float>{2, 2, 2});
  StateDict with = net.state_dict();
  with.push_back({"mask", zeros({3})});
  CHECK_THROWS_WITH_AS(copy.load_state_dict(with), doctest::Contains("unexpected: mask"), ValueError);
  net.to(DType::f64).to(Device::meta);
  CHECK(net.mask.dtype() == DType::f64);
  CHECK(net.mask.device() == Device::meta);
}
