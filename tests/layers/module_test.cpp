// SPDX-License-Identifier: Apache-2.0
#include "layers/module/module.h"

#include <doctest/doctest.h>

#include "amp/autocast/autocast.h"
#include "framework/base/list_text.h"
#include "layers/layers.h"
#include "optim/optimizers.h"
#include "tests/layers/support.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

struct Scale : Module {
  explicit Scale(int64_t n) {
    gain = register_parameter("gain", ones({n}));
    steps = register_buffer("steps", zeros({}, {.dtype = DType::i64}));
  }
  Tensor forward(const Tensor& x) override { return x * gain; }
  Parameter gain;
  ModuleBuffer steps;
};

struct Net : Module {
  Part<Linear> fc1{this, "fc1", 4, 3};
  Part<Scale> scale{this, "scale", 3};
  Part<Linear> fc2{this, "fc2", 3, 2, false};
  Tensor forward(const Tensor& x) override { return fc2(relu(scale(fc1(x)))); }
};

using Strings = std::vector<std::string>;

}  // namespace

TEST_CASE("names are PyTorch's: dotted paths in registration order, buffers in the state") {
  Net net;
  CHECK(names(net.named_parameters()) == Strings{"fc1.weight", "fc1.bias", "scale.gain", "fc2.weight"});
  CHECK(names(net.named_buffers()) == Strings{"scale.steps"});
  CHECK(names(net.state_dict()) == Strings{"fc1.weight", "fc1.bias", "scale.gain", "scale.steps", "fc2.weight"});
  CHECK(names(net.state_dict("net")).front() == "net.fc1.weight");
  CHECK(net.fc1->weight.label() == "fc1.weight");
  CHECK(net.parameter_count() == 12 + 3 + 3 + 6);
  CHECK(net.parameters()[3].same(net.fc2->weight));
  CHECK(net.fc1->weight.requires_grad());
  CHECK(!net.scale->steps.requires_grad());
  Strings modules;
  for (const auto& [name, module] : net.named_modules()) modules.push_back(name);
  CHECK(modules == Strings{"", "fc1", "scale", "fc2"});

  Sequential seq(std::make_shared<Linear>(2, 2), std::make_shared<ReLU>(), std::make_shared<Linear>(2, 1));
  CHECK(names(seq.state_dict()) == Strings{"0.weight", "0.bias", "2.weight", "2.bias"});
  CHECK(seq.parameters()[2].label() == "2.weight");
}

TEST_CASE("a module used twice is listed once among the parameters and twice in the state") {
  const auto shared = std::make_shared<Linear>(2, 2, false);
  Sequential seq(shared, std::make_shared<ReLU>(), shared);
  CHECK(names(seq.named_parameters()) == Strings{"0.weight"});
  CHECK(names(seq.state_dict()) == Strings{"0.weight", "2.weight"});
  CHECK(seq.named_modules().size() == 3);
}

TEST_CASE("modules print as in PyTorch") {
  Sequential seq(std::make_shared<Flatten>(), std::make_shared<Linear>(784, 256), std::make_shared<ReLU>(),
                 std::make_shared<Dropout>(0.25));
  seq.push_back("head", std::make_shared<Sequential>(std::make_shared<Linear>(256, 10, false), std::make_shared<Softmax>()));
  CHECK(seq.str() ==
        "Sequential(\n"
        "  (0): Flatten(start_dim=1, end_dim=-1)\n"
        "  (1): Linear(in_features=784, out_features=256, bias=True)\n"
        "  (2): ReLU()\n"
        "  (3): Dropout(p=0.25, inplace=False)\n"
        "  (head): Sequential(\n"
        "    (0): Linear(in_features=256, out_features=10, bias=False)\n"
        "    (1): Softmax(dim=-1)\n"
        "  )\n"
        ")");
  CHECK(Sequential().str() == "Sequential()");
}

TEST_CASE("train and eval, freezing, zero_grad and apply reach the whole tree") {
  Net net;
  CHECK(net.fc1->training());
  net.eval();
  CHECK(!net.training());
  CHECK(!net.scale->training());
  net.train();
  CHECK(net.fc2->training());

  net(ones({1, 4})).sum().backward();
  CHECK(net.fc1->weight.grad().defined());
  net.zero_grad();
  for (const Tensor& p : net.parameters()) CHECK(!p.grad().defined());
  net.requires_grad_(false);
  CHECK(!net(ones({1, 4})).requires_grad());
  net.requires_grad_(true);

  Strings order;
  net.apply([&](Module& m) { order.push_back(m.describe().substr(0, m.describe().find('('))); });
  CHECK(order == Strings{"Linear", "Scale", "Linear", "Net"});
}

TEST_CASE("a state loads into another module, converting dtypes, and shadows notice") {
  manual_seed(1);
  Net a, b;
  {
    const Autocast region(Device::cpu, DType::bf16);
    b(ones({1, 4}));
  }
  REQUIRE(autocast::shadow_of(b.fc1->weight).defined());
  StateDict state = a.state_dict();
  for (NamedTensor& n : state) {
    if (n.tensor.is_floating_point()) n.tensor = n.tensor.to(DType::f64);
  }
  const LoadReport report = b.load_state_dict(state);
  CHECK(report.missing.empty());
  CHECK(report.unexpected.empty());
  CHECK(!autocast::shadow_of(b.fc1->weight).defined());
  const Tensor x = randn({5, 4});
  CHECK(a(x).to_vector<float>() == b(x).to_vector<float>());
  CHECK(b.fc1->weight.dtype() == DType::f32);
  a.load_state_dict(a.state_dict());  // of itself
}

TEST_CASE("load_state_dict names every fault at once, and changes nothing") {
  Net net;
  const std::vector<float> before = net.fc1->bias.to_vector<float>();
  StateDict state = net.state_dict();
  for (NamedTensor& n : state) n.tensor = zeros(n.tensor.shape());
  state[0].name = "fc1.wieght";
  state[2].tensor = zeros({4});
  state.push_back({"head.bias", zeros({2})});
  CHECK_THROWS_WITH_AS(net.load_state_dict(state),
                       "[load_state_dict] the state does not fit Net:\n"
                       "  missing: fc1.weight (did you mean fc1.wieght?)\n"
                       "  unexpected: fc1.wieght (did you mean fc1.weight?)\n"
                       "  unexpected: head.bias\n"
                       "  shape: scale.gain must be [3], got [4]",
                       ValueError);
  CHECK(net.fc1->bias.to_vector<float>() == before);

  state[2].tensor = zeros({3});
  const LoadReport report = net.load_state_dict(state, /*strict=*/false);
  CHECK(report.missing == Strings{"fc1.weight"});
  CHECK(report.unexpected == Strings{"fc1.wieght", "head.bias"});
  CHECK(net.fc1->bias.to_vector<float>() == std::vector<float>(3, 0));
}

TEST_CASE("to(dtype) converts floating parameters and buffers in place, with their gradients") {
  Net net;
  net(ones({1, 4})).sum().backward();
  const Tensor weight = net.fc1->weight;
  net.to(DType::f64);
  CHECK(weight.dtype() == DType::f64);
  CHECK(weight.grad().dtype() == DType::f64);
  CHECK(weight.requires_grad());
  CHECK(net.scale->steps.dtype() == DType::i64);
  net.zero_grad();
  net(ones({1, 4}, {.dtype = DType::f64})).sum().backward();
  CHECK(weight.grad().dtype() == DType::f64);
  net.to(Device::cpu);
  CHECK(net.fc1->weight.same(weight));
  CHECK_THROWS_WITH_AS(net.to(DType::i64), "[Module::to] parameters must be floating point, got int64", DTypeError);
}

TEST_CASE("registration refuses names and tensors that cannot serve") {
  struct Open : Module {
    using Module::register_buffer;
    using Module::register_module;
    using Module::register_parameter;
    Tensor forward(const Tensor& x) override { return x; }
  } m;
  m.register_parameter("w", ones({1}));
  m.register_parameter("bias", Tensor());
  CHECK(m.parameters().size() == 1);
  CHECK_THROWS_WITH_AS(m.register_buffer("w", ones({1})), "[register_buffer] the name \"w\" is already taken", ValueError);
  CHECK_THROWS_WITH_AS(m.register_parameter("a.b", ones({1})),
                       "[register_parameter] a name must be non-empty and without a dot, got \"a.b\"", ValueError);
  CHECK_THROWS_WITH_AS(m.register_parameter("n", arange(3)),
                       "[register_parameter] \"n\" must be floating point, got int64\nhelp: register it as a buffer", DTypeError);
  CHECK_THROWS_WITH_AS(m.register_parameter("n", ones({1}, {.requires_grad = true}) * 2.0),
                       "[register_parameter] \"n\" must be a leaf tensor, it was computed by an operation\nhelp: pass x.detach()",
                       ValueError);
  CHECK_THROWS_WITH_AS(Sequential(std::shared_ptr<Module>()), "[register_module] \"0\" must be a module, got a null pointer",
                       ValueError);
}

TEST_CASE("near names") {
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(nearest_name("momentun", {"lr", "momentum", "nesterov"}) == "momentum");
  CHECK(nearest_name("xyz", {"lr", "momentum"}) == "");
}

TEST_CASE("an error in a forward says in which layer") {
  const auto inner = std::make_shared<Sequential>(std::make_shared<Linear>(4, 3), std::make_shared<ReLU>(),
                                                  std::make_shared<Linear>(3, 2), std::make_shared<Softmax>(5));
  Sequential net;
  net.push_back("encoder", inner);
  net.push_back("head", std::make_shared<Linear>(3, 2));
  CHECK_THROWS_WITH_AS(net(ones({2, 5})),
                       "[mlp] weight 0 must be [out, 5] to match the input, got [3, 4]\n"
                       "layer: encoder.0, Linear(in_features=4, out_features=3, bias=True)",
                       ShapeError);
  CHECK_THROWS_WITH_AS(net(ones({2, 4})), doctest::Contains("\nlayer: encoder.3, Softmax(dim=5)"), IndexError);
  Sequential flat(std::make_shared<Linear>(2, 2), std::make_shared<Tanh>(), std::make_shared<Linear>(3, 2));
  CHECK_THROWS_WITH_AS(flat(ones({2, 2})),
                       "[linear] weight must be [out, 2] to match input [2, 2], got [2, 3]\n"
                       "layer: 2, Linear(in_features=3, out_features=2, bias=True)",
                       ShapeError);
}

TEST_CASE("a module that was converted since the forward has no backward") {
  const Tensor x = ones({2, 3}, {.requires_grad = true});
  const auto refused = [&](const auto& change) {
    Linear layer(3, 3);
    layer.to(DType::f64).to(DType::f32);  // so that its memory has never been written to in place
    const Tensor loss = layer(x).sum();
    change(layer);
    CHECK_THROWS_WITH_AS(loss.backward(), doctest::Contains("weight of shape [3, 3] was modified in place after linear saved it"),
                         AutogradError);
  };
  refused([](Module& m) { m.to(DType::f64); });
  refused([](Module& m) { m.to(DType::f16); });
  refused([](Module& m) { m.to(Device::meta); });
  Linear layer(3, 3);
  const Tensor sum = (layer.bias + 1.0).sum();  // saves nothing
  layer.to(DType::f64);
  CHECK_THROWS_WITH_AS(sum.backward(),
                       "[backward] bias of shape [3] was float32 on cpu in the forward and is float64 on cpu now\n"
                       "help: convert and move modules before the forward",
                       AutogradError);
}

TEST_CASE("no module is below itself") {
  const auto outer = std::make_shared<Sequential>(), middle = std::make_shared<Sequential>(),
             inner = std::make_shared<Sequential>();
  outer->push_back(middle);
  middle->push_back(inner);
  for (const auto& above : {outer, middle, inner})
    CHECK_THROWS_WITH_AS(inner->push_back(above),
                         "[register_module] a module cannot be its own child, nor that of a module below it", ValueError);
}

TEST_CASE("parts may be given by value") {
  struct Net : Module {
    Part<Sequential> body{this, "body", Sequential{Conv2d(1, 2, 3, {.padding = 1}), BatchNorm2d(2), std::make_shared<ReLU>()}};
    Part<ModuleList> heads{this, "heads", ModuleList{Linear(2, 3), LSTM(2, 3, {.batch_first = true})}};
    Tensor forward(const Tensor& x) override { return heads->at<Linear>(0)(body(x).mean({2, 3})); }
  } net;
  net.body->push_back(Dropout(0));
  Strings labels;
  for (const NamedTensor& p : net.named_parameters()) labels.push_back(p.tensor.label());
  CHECK(labels == Strings{"body.0.weight", "body.0.bias", "body.1.weight", "body.1.bias", "heads.0.weight", "heads.0.bias",
                          "heads.1.weight_ih_l0", "heads.1.weight_hh_l0", "heads.1.bias_ih_l0", "heads.1.bias_hh_l0"});
  CHECK(net.body->children()[0]->path() == "body.0");
  net(rand({2, 1, 4, 4})).sum().backward();
  CHECK(net.parameters()[0].grad().defined());
  net.eval();
  CHECK(!net.body->children()[3]->training());
  CHECK(net.heads->at<LSTM>(1)(rand({1, 5, 2})).output.shape() == Shape{1, 5, 3});
  // One that is a variable stays what it is: two modules with the same parameters would be a surprise.
  static_assert(!ModulePart<Linear&> && ModulePart<Linear> && ModulePart<std::shared_ptr<Linear>&>);
  CHECK(Sequential(Sequential{ReLU()}).children().size() == 1);
}

TEST_CASE("a module that takes one tensor may give several") {
  struct Halves : ModuleOf<Halves> {
    std::pair<Tensor, Tensor> forward(Tensor x) { return {x * 0.5, x * 2.0}; }
  } halves;
  const auto [half, twice] = halves(ones({}));
  CHECK(half.item() == 0.5);
  CHECK(twice.item() == 2);
  CHECK_THROWS_AS(static_cast<Module&>(halves).forward(ones({})), ValueError);
}

TEST_CASE("an error names the layer that raised it, below a list and in a run of fused layers") {
  struct Listed : Module {
    Part<ModuleList> blocks{this, "blocks", ModuleList{Linear(4, 3), Linear(4, 3)}};
    Part<Sequential> body{this, "body", Sequential{Linear(3, 5), ReLU(), Linear(6, 2), ReLU(), Linear(2, 1)}};
    Tensor forward(const Tensor& x) override {
      Tensor y = x;
      for (const auto& block : blocks) y = block(y);
      return y;
    }
  } net;
  CHECK_THROWS_WITH_AS(net(ones({2, 4})), doctest::Contains("\nlayer: blocks.1, Linear(in_features=4"), ShapeError);
  CHECK_THROWS_WITH_AS(net.body(ones({2, 3})), doctest::Contains("\nlayer: body.2, Linear(in_features=6"), ShapeError);
  net.body[2] = Linear(5, 2);
  CHECK(net.body(ones({2, 3})).shape() == Shape{2, 1});
  net.body[2]->to(Device::meta);
  CHECK_THROWS_WITH_AS(net.body(ones({2, 3})), doctest::Contains("\nlayer: body.2, Linear(in_features=5"), DeviceError);
}

// Clang warns of these classes, as it does in a user's program.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverloaded-virtual"
TEST_CASE("a forward by value of a class without parts names the cure where it is not found") {
  struct Doubles : ModuleOf<Doubles> {
    Tensor forward(Tensor x) { return x * 2.0; }
  } found;
  CHECK(static_cast<Module&>(found)(ones({1})).item() == 2);
  struct Plain : Module {
    Tensor forward(Tensor x) { return x * 2.0; }
  } plain;
  struct Made : Module {
    Tensor forward(Tensor x) { return x * 2.0; }
  };
  CHECK((*make<Made>())(ones({1})).item() == 2);  // make() knows the class
  CHECK_THROWS_WITH_AS(plain(ones({1})), doctest::Contains("give it Tensor forward(const Tensor& x) override"), ValueError);
}
#pragma GCC diagnostic pop

TEST_CASE("a state_dict is a snapshot, with what is tied tied; state_tensors are the module's own memory") {
  struct Net : Module {
    Part<Embedding> table{this, "table", 5, 3};
    Part<BatchNorm1d> norm{this, "norm", 3};
    Part<Linear> head{this, "head", 3, 5, LinearOptions{.bias = false}};
    Net() { head->weight = table->weight; }
    Tensor forward(const Tensor& x) override { return head(norm(table(x))); }
  };
  Net net;
  const StateDict best = net.state_dict();
  const auto values = [&] {
    std::vector<std::vector<double>> out;
    for (const NamedTensor& n : net.state_tensors()) out.push_back(n.tensor.to_vector<double>());
    return out;
  };
  const auto then = values();
  const Tensor x = arange(5);
  SGD optimizer(net.parameters(), 0.1);
  net(x).square().sum().backward();
  optimizer.step();
  CHECK(values() != then);
  CHECK(best[0].tensor.shares_memory_with(best.back().tensor));
  CHECK(!best[0].tensor.shares_memory_with(net.table->weight));
  net.load_state_dict(best);
  CHECK(values() == then);
  net.state_tensors()[0].tensor.fill_(1);
  CHECK(net.head->weight.sum().item() == 15);
}

TEST_CASE("tensors and modules are found by name, and a wrong name by a near one") {
  Sequential net{Linear(4, 3), Sequential{{Linear(3, 2)}}};
  CHECK(net.get_parameter("1.0.weight").same(net.parameters()[2]));
  CHECK(net.state_dict()["0.bias"].shape() == Shape{3});
  CHECK(net.named_parameters().contains("0.bias"));
  CHECK(!net.named_parameters().contains("2.bias"));
  CHECK(net.get_submodule("1.0").describe() == Linear(3, 2).describe());
  CHECK(&net.get_submodule("") == &net);
  CHECK_THROWS_WITH_AS(net.get_parameter("1.0.wieght"), doctest::Contains("did you mean \"1.0.weight\"?"), ValueError);
  CHECK_THROWS_WITH_AS(net.get_submodule("1.0.fc"), doctest::Contains("[get_submodule] there is no \"1.0.fc\""), ValueError);
  CHECK_THROWS_AS(net.get_buffer("0.bias"), ValueError);
  CHECK_THROWS_AS(net.state_dict().at("0"), ValueError);
}

TEST_CASE("a child that is registered twice is one child, as in PyTorch, but printed twice") {
  struct Shares : Module {
    Part<Linear> a{this, "a", 1, 1};
    Part<Linear> b{this, "b", a};
    Part<Sequential> c{this, "c", Sequential{a.ptr(), a.ptr()}};
  };
  Shares net;
  CHECK(net.children().size() == 2);
  std::string names;
  for (const auto& [name, child] : net.named_children()) names += name;
  CHECK(names == "ac");
  std::string order;
  net.apply([&](Module& m) { order += m.describe().substr(0, 2); });
  CHECK(order == "LiLiSeSh");  // PyTorch's order: once for each parent
  CHECK(net.c->children().size() == 1);
  CHECK(
      net.str() ==
      "Shares(\n  (a): Linear(in_features=1, out_features=1, bias=True)\n  (b): Linear(in_features=1, out_features=1, bias=True)\n"
      "  (c): Sequential(\n    (0): Linear(in_features=1, out_features=1, bias=True)\n"
      "    (1): Linear(in_features=1, out_features=1, bias=True)\n  )\n)");
  net.b = nullptr;
  CHECK(net.children().size() == 2);
}
