// SPDX-License-Identifier: Apache-2.0
// Modules whose branches meet again: against the same written out by hand.
#include "layers/containers/graph.h"

#include <doctest/doctest.h>

#include "amp/autocast/autocast.h"
#include "framework/autograd/grad_mode.h"
#include "framework/autograd/gradcheck.h"
#include "framework/tensor/memory.h"
#include "layers/layers.h"
#include "tests/support/errors.h"

using namespace halfstep;
using halfstep::testing::error_of;

namespace {

bool same(const Tensor& a, const Tensor& b) { return a.shape() == b.shape() && a.to_vector<float>() == b.to_vector<float>(); }

std::vector<std::string> names(const Module& m) {
  std::vector<std::string> out;
  for (const NamedTensor& p : m.named_parameters()) out.push_back(p.name);
  return out;
}

using Nodes = std::vector<Graph::Node>;

}  // namespace

TEST_CASE("tensors meet in eight ways") {
  const Tensor a = tensor({1, 5, 3, -2}, {2, 2}), b = tensor({4, 2, 1, 7}, {2, 2});
  const auto values = [&](Combine how, int64_t dim = 1) { return combine(how, {a, b}, dim).to_vector<float>(); };
  using V = std::vector<float>;
  CHECK(values(Combine::add) == V{5, 7, 4, 5});
  CHECK(values(Combine::mul) == V{4, 10, 3, -14});
  CHECK(values(Combine::mean) == V{2.5, 3.5, 2, 2.5});
  CHECK(values(Combine::max) == V{4, 5, 3, 7});
  CHECK(values(Combine::concat) == V{1, 5, 4, 2, 3, -2, 1, 7});
  CHECK(values(Combine::concat, 0) == V{1, 5, 3, -2, 4, 2, 1, 7});
  CHECK(combine(Combine::stack, {a, b}, 1).shape() == Shape{2, 2, 2});
  CHECK(values(Combine::dot) == V{14, -11});
  CHECK(combine(Combine::dot, {a, b}, 1).shape() == Shape{2, 1});
  CHECK(combine(Combine::cosine, {a, a}, -1).to_vector<float>()[0] == doctest::Approx(1));
  CHECK(combine(Combine::mean, {a, b, a}).to_vector<float>()[0] == doctest::Approx(2));
  CHECK(same(combine(Combine::concat, {a}), a));
  for (int i = 0; i < 8; ++i) CHECK(combine_of(name(Combine(i))) == Combine(i));
  CHECK(!combine_of("matmul"));
  CHECK(error_of([&] { combine(Combine::dot, {a, b, a}); }) == "[combine] dot takes two tensors, got 3");
  CHECK(error_of([&] { combine(Combine::add, {}); }) == "[combine] add needs tensors, got 0");
}

TEST_CASE("Residual adds its input, or what a shortcut makes of it") {
  manual_seed(3);
  const auto body = std::make_shared<Linear>(3, 3), across = std::make_shared<Linear>(3, 3, false);
  const Tensor x = randn({4, 3});
  Residual plain(body);
  CHECK(same(plain(x), (*body)(x) + x));
  CHECK(names(plain) == std::vector<std::string>{"body.weight", "body.bias"});
  Residual with(body, across);
  CHECK(same(with(x), (*body)(x) + (*across)(x)));
  CHECK(names(with) == std::vector<std::string>{"body.weight", "body.bias", "shortcut.weight"});
  CHECK(plain.is_recordable());
  CHECK(!Residual(std::make_shared<Module>()).is_recordable());
  Residual narrower(std::make_shared<Linear>(3, 2));
  CHECK(error_of([&] { narrower(x); }).find("[add] shapes must broadcast, got [4, 2] and [4, 3]") == 0);
  const Autocast region(Device::cpu, DType::bf16);
  CHECK(plain(x).dtype() == DType::f32);  // bfloat16 of the body and float32 of x promote
  CHECK(plain(x.to(DType::bf16)).dtype() == DType::bf16);
}

TEST_CASE("Parallel joins its branches") {
  manual_seed(3);
  const auto a = std::make_shared<Linear>(3, 2), b = std::make_shared<Linear>(3, 4);
  const Tensor x = randn({4, 3});
  Parallel p({a, b}, Combine::concat);
  CHECK(same(p(x), cat({(*a)(x), (*b)(x)}, 1)));
  CHECK(p.describe() == "Parallel(combine=concat, dim=1)");
  CHECK(Parallel({a}, Combine::add).describe() == "Parallel(combine=add)");
  CHECK(names(p) == std::vector<std::string>{"0.weight", "0.bias", "1.weight", "1.bias"});
  CHECK(error_of([] { Parallel({}, Combine::add); }) == "[Parallel] needs at least one branch");
  CHECK(names(Parallel({a, b}, Combine::concat, 1, {"left", "1"})) ==
        std::vector<std::string>{"left.weight", "left.bias", "1.weight", "1.bias"});
  CHECK(error_of([&] {
          Parallel({a, b}, Combine::concat, 1, {"left"});
        }) == "[Parallel] must have a name for each of its 2 branches, got 1");
}

TEST_CASE("a Graph runs a U-Net as a forward written by hand does, and its gradients are those of differences") {
  manual_seed(5);
  const auto down = std::make_shared<Conv2d>(2, 3, 3, ConvLayerOptions{.padding = 1});
  const auto bottom = std::make_shared<Sequential>(std::make_shared<MaxPool2d>(2), std::make_shared<Conv2d>(3, 4, 1));
  const auto up = std::make_shared<ConvTranspose2d>(4, 3, 2, ConvTransposeLayerOptions{.stride = 2});
  const auto head = std::make_shared<Conv2d>(6, 1, 1);
  Graph net({{.name = "down", .layer = down},
             {.name = "bottom", .layer = bottom},
             {.name = "up", .layer = up},
             {.name = "head", .inputs = {"down", "up"}, .combine = Combine::concat, .layer = head}});
  const Tensor x = randn({2, 2, 4, 4});
  const Tensor d = (*down)(x);
  CHECK(same(net(x), (*head)(cat({d, (*up)((*bottom)(d))}, 1))));
  CHECK(names(net).front() == "down.weight");
  CHECK(names(net)[2] == "bottom.1.weight");
  net.to(DType::f64);
  CHECK_NOTHROW(gradcheck([&](const Tensors& in) { return Tensors{net(in[0])}; },
                          {randn({1, 2, 4, 4}, {.dtype = DType::f64}).set_requires_grad()}));
}

TEST_CASE("two nodes of a Graph share a layer: trained and saved once") {
  manual_seed(5);
  const auto tower = make<Linear>(2, 3);
  Graph net({{.name = "left", .inputs = {"a"}, .layer = tower},
             {.name = "right", .inputs = {"b"}, .layer = tower},
             {.name = "score", .inputs = {"left", "right"}, .combine = Combine::dot}},
            {{.name = "a", .end = 2}, {.name = "b", .start = 2}});
  const Tensor x = randn({4, 4});
  const Tensor a = narrow(x, 1, 0, 2), b = narrow(x, 1, 2, 2);
  CHECK(same(net(x), sum((*tower)(a) * (*tower)(b), {1}, true)));
  CHECK(names(net) == std::vector<std::string>{"left.weight", "left.bias"});
  CHECK(net.parameter_count() == 9);
  const auto copy = net.clone();
  CHECK(same((*copy)(x), net(x)));
  CHECK(copy->parameter_count() == 9);
  CHECK(copy->parameters()[0].data_ptr() != tower->weight.data_ptr());
}

TEST_CASE("copies of Residual and Parallel have weights of their own") {
  manual_seed(5);
  Residual r(make<Linear>(2, 2), make<Linear>(2, 2));
  Parallel p({make<Linear>(2, 2), make<Linear>(2, 2)}, Combine::max, 0);
  const Tensor x = randn({4, 2});
  for (Module* m : {static_cast<Module*>(&r), static_cast<Module*>(&p)}) {
    m->eval();
    const auto copy = m->clone();
    CHECK(same((*copy)(x), (*m)(x)));
    CHECK(copy->describe() == m->describe());
    CHECK(!copy->training());
    CHECK(copy->parameters()[0].data_ptr() != m->parameters()[0].data_ptr());
  }
}

TEST_CASE("a Graph frees outputs that no later node reads") {
  Nodes nodes;
  for (int i = 0; i < 20; ++i) nodes.push_back({.name = std::to_string(i), .layer = std::make_shared<ReLU>()});
  Graph net(std::move(nodes));
  const DefaultDevice on(Device::meta);
  const NoGrad off;
  const Tensor x = empty({1 << 20});
  Allocator& memory = allocator(Device::meta);
  const size_t before = memory.stats().live;
  memory.reset_peak();
  net(x);
  CHECK(memory.stats().peak - before <= 2 * (size_t(4) << 20));
}

TEST_CASE("a Graph that cannot run is refused when it is made") {
  const auto says = [](const Nodes& nodes, const std::vector<Graph::Input>& inputs = {}) {
    return error_of([&] { Graph(nodes, inputs); });
  };
  CHECK(says({}) == "[Graph] needs at least one node");
  CHECK(says({{.name = "a"}, {.name = "a"}}) == "[Graph] two nodes or inputs are called \"a\"");
  CHECK(says({{.name = "a.b"}}) == "[Graph] the name of a node must not be empty or contain a dot, got \"a.b\"");
  CHECK(says({{.name = "a"}, {.name = "b", .inputs = {"imput"}}}) ==
        "[Graph] node \"b\" takes \"imput\", which no input and no node before it is called; did you mean \"input\"?");
  CHECK(says({{.name = "a", .inputs = {"b"}}, {.name = "b"}}).find("node \"a\" takes \"b\"") != std::string::npos);
  CHECK(says({{.name = "a"}, {.name = "b", .inputs = {"a", "input"}}}) ==
        "[Graph] node \"b\" has 2 inputs and must say how to combine them");
  CHECK(says({{.name = "a"}, {.name = "b", .inputs = {"input"}}}).find("[Graph] no node reads the output of \"a\"\nhelp: ") == 0);
  CHECK(says({{.name = "a"}}, {{.name = "x", .end = 1}, {.name = "y", .start = 1}}) ==
        "[Graph] node \"a\" is the first and must say which inputs it takes");
  CHECK(says({{.name = "a"}}, {{.name = "x"}, {.name = "x"}}) == "[Graph] two inputs are called \"x\"");
  Graph cut({{.name = "a", .inputs = {"x"}}}, {{.name = "x", .start = 2, .end = 5}});
  CHECK(error_of([&] {
          cut(ones({3, 4}));
        }) == "[Graph] input \"x\" must be a part of the 4 places along dimension -1, got 2 to 5");
}
