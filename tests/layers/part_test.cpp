// SPDX-License-Identifier: Apache-2.0
// What is assigned is what is trained: parts, parameters and buffers that are replaced, copied and moved with their module.
#include "layers/module/part.h"

#include <doctest/doctest.h>

#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "layers/layers.h"
#include "optim/optimizers.h"
#include "tests/layers/support.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

using Strings = std::vector<std::string>;

struct Gained : Module {
  Parameter gain = register_parameter("gain", ones({3}));
  ModuleBuffer steps = register_buffer("steps", zeros({}, {.dtype = DType::i64}));
  ModuleBuffer scratch = register_buffer("scratch", zeros({2}), /*persistent=*/false);
  Tensor forward(const Tensor& x) override {
    steps += 1;
    return x * gain;
  }
};

struct Parted : Module {
  Part<Linear> fc1{this, "fc1", 4, 3};
  Part<Gained> scale{this, "scale"};
  Part<Module> act{this, "act", ReLU()};
  Part<Linear> fc2{this, "fc2", Linear(3, 2, false)};
  Part<Linear> spare{this, "spare", nullptr};
  Tensor forward(const Tensor& x) override { return fc2(act(scale(fc1(x)))); }
};

// Members that are not inline in the object are copied with their class's own containers only.
struct InVector : Module {
  std::vector<Part<Linear>> layers;
  InVector() { layers.push_back(add("first", Linear(2, 2))); }
  Tensor forward(const Tensor& x) override { return layers[0](x); }
};

bool equal_states(const Module& a, const Module& b) {
  const StateDict x = a.state_dict(), y = b.state_dict();
  bool same = testing::names(x) == testing::names(y);
  for (size_t i = 0; same && i < x.size(); ++i) same = x[i].tensor.to_vector<double>() == y[i].tensor.to_vector<double>();
  return same;
}

bool shares_memory(const Module& a, const Module& b) {
  for (const NamedTensor& x : a.state_dict()) {
    for (const NamedTensor& y : b.state_dict()) {
      if (x.tensor.shares_memory_with(y.tensor)) return true;
    }
  }
  return false;
}

}  // namespace

TEST_CASE("a part that is replaced is called, trained, moved and saved in place of the other") {
  Parted net;
  net.fc2 = Linear(3, 5);
  CHECK(net(ones({2, 4})).shape() == Shape{2, 5});
  CHECK(names(net.named_parameters()) == Strings{"fc1.weight", "fc1.bias", "scale.gain", "fc2.weight", "fc2.bias"});
  CHECK(net.parameters()[3].same(net.fc2->weight));
  CHECK(net.fc2->weight.label() == "fc2.weight");
  CHECK(net.fc2->path() == "fc2");
  net.to(DType::f64);
  CHECK(net.fc2->weight.dtype() == DType::f64);
  const auto made = std::make_shared<Linear>(3, 7);
  net.eval();
  net.fc2 = made;
  CHECK(!made->training());
  CHECK(net.fc2.get() == made.get());
  net.fc2 = nullptr;
  CHECK(!net.fc2);
  CHECK(names(net.named_parameters()) == Strings{"fc1.weight", "fc1.bias", "scale.gain"});
  CHECK_THROWS_WITH_AS(net.fc2(ones({2, 3})), "[Part] \"fc2\" holds no module", ValueError);
  net.spare = Linear(1, 1);
  CHECK(names(net.named_parameters()).back() == "spare.bias");
  net.act = Sequential{Linear(3, 3), Tanh()};
  CHECK(names(net.named_parameters())[3] == "act.0.weight");
  CHECK(net.children().size() == 4);
  const auto round = std::make_shared<Parted>();
  CHECK_THROWS_WITH_AS(round->act = round, doctest::Contains("[Part] a module cannot be its own child"), ValueError);
  CHECK_THROWS_WITH_AS(round->act = make<Sequential>(AnyModule(round)), doctest::Contains("nor that of a module below it"),
                       ValueError);
}

TEST_CASE("a part without a name takes nothing") {
  Part<Linear> loose;
  CHECK_THROWS_WITH_AS(loose = Linear(2, 2), doctest::Contains("[Part] this member has no name"), ValueError);
  CHECK_THROWS_AS(loose(ones({1, 2})), ValueError);
  Parameter parameter;
  CHECK_THROWS_WITH_AS(parameter = ones({2}), doctest::Contains("[Parameter] this member has no name"), ValueError);
  Parted net;
  CHECK_THROWS_WITH_AS((Part<Linear>{&net, "fc1", 1, 1}), "[register_module] the name \"fc1\" is already taken", ValueError);
}

TEST_CASE("a module keeps its name and path when another is moved into it") {
  Parted net;
  Linear* const before = net.fc1.get();
  *net.fc1 = Linear(4, 3, false);
  CHECK(net.fc1.get() == before);
  CHECK(net.fc1->path() == "fc1");
  CHECK(names(net.named_parameters()) == Strings{"fc1.weight", "scale.gain", "fc2.weight"});
  CHECK(net.fc1->weight.label() == "fc1.weight");
  CHECK(net.fc1->weight.same(net.parameters()[0]));
  net.fc1->bias = zeros({3});  // an option that was left out
  CHECK(names(net.named_parameters())[1] == "fc1.bias");
  CHECK(net.fc1->bias.label() == "fc1.bias");

  Sequential body{Linear(2, 2), ReLU()};
  body = Sequential{Linear(2, 4), Tanh(), Linear(4, 1)};
  CHECK(body(ones({3, 2})).shape() == Shape{3, 1});
  body[2] = Linear(4, 6);
  body[1] = ReLU();
  CHECK(body(ones({3, 2})).shape() == Shape{3, 6});
  CHECK(names(body.state_dict()) == Strings{"0.weight", "0.bias", "2.weight", "2.bias"});
}

TEST_CASE("a parameter and a buffer that are replaced, also of another size, are what the module has") {
  Parted net;
  net.scale->gain = full({1}, 2.0);
  CHECK(net.scale->gain.requires_grad());
  CHECK(net.state_dict()[2].tensor.to_vector<float>() == std::vector<float>{2});
  CHECK(net.scale->gain.label() == "scale.gain");
  net.scale->steps = full({}, 7, {.dtype = DType::i64});
  net(ones({1, 4}));
  CHECK(net.state_dict()[3].tensor.item() == 8);
  CHECK(names(net.state_dict()) == Strings{"fc1.weight", "fc1.bias", "scale.gain", "scale.steps", "fc2.weight"});
  CHECK(names(net.named_buffers()) == Strings{"scale.steps", "scale.scratch"});
  CHECK_THROWS_WITH_AS(net.scale->gain = ones({3}, {.requires_grad = true}) * 2.0,
                       doctest::Contains("[Parameter] \"scale.gain\" must be a leaf tensor"), ValueError);
  CHECK_THROWS_AS(net.scale->gain = arange(3), DTypeError);
  CHECK(net.scale->gain.numel() == 1);
  // Shared: one parameter, which stays frozen.
  net.fc1->weight.set_requires_grad(false);
  Linear head(4, 3, false);
  head.weight = net.fc1->weight;
  CHECK(head.weight.same(net.fc1->weight));
  CHECK(!head.weight.requires_grad());
  // A copy by itself is a tensor as any other.
  auto loose = net.fc2->weight;
  loose = loose * 2.0;
  CHECK(net.fc2->weight.is_leaf());
  CHECK(!loose.same(net.fc2->weight));
}

TEST_CASE("an optimizer refuses a parameter that its module no longer has") {
  Parted net;
  SGD optimizer(net.parameters(), {.lr = 0.1});
  const auto train = [&] {
    optimizer.zero_grad();
    net(ones({2, 4})).sum().backward();
    optimizer.step();
  };
  train();
  net.scale->gain = ones({3});
  CHECK_THROWS_WITH_AS(train(), doctest::Contains("\"scale.gain\" was replaced in its module"), ValueError);
  Parted other;
  SGD again(other.parameters(), {.lr = 0.1});
  other.fc2 = Linear(3, 2, false);
  CHECK_THROWS_WITH_AS(again.step(), doctest::Contains("\"fc2.weight\" was replaced in its module"), ValueError);
  // Not where another module still has it.
  Linear a(2, 2, false), b(2, 2, false);
  b.weight = a.weight;
  SGD both(a.parameters(), {.lr = 0.1});
  b.weight = ones({2, 2});
  both.step();
}

TEST_CASE("a copy of a module has parameters, buffers and parts of its own") {
  Parted net;
  net.fc1->weight.set_requires_grad(false);
  net.act->eval();
  net.to(DType::f64);
  Parted copy = net;
  CHECK(equal_states(copy, net));
  CHECK(!shares_memory(copy, net));
  CHECK(copy.fc1->weight.same(copy.parameters()[0]));
  CHECK(!copy.fc1->weight.requires_grad());
  CHECK(copy.scale->gain.requires_grad());
  CHECK(!copy.act->training());
  CHECK(copy.scale->steps.same(copy.named_buffers()[0].tensor));
  const Tensor x = ones({2, 4}, {.dtype = DType::f64});
  CHECK(copy(x).to_vector<double>() == net(x).to_vector<double>());
  copy.fc2 = Linear(3, 9);
  copy.fc2->to(DType::f64);
  copy.scale->gain = zeros({3}, {.dtype = DType::f64});
  CHECK(net(x).shape() == Shape{2, 2});
  CHECK(copy(x).shape() == Shape{2, 9});
  CHECK(net.scale->gain.to_vector<float>() == std::vector<float>{1, 1, 1});

  Parted best;
  best = Parted(net);
  CHECK(equal_states(best, net));
  CHECK(!shares_memory(best, net));
  const Parted moved = std::move(best);
  CHECK(equal_states(moved, net));
  static_assert(!std::is_copy_assignable_v<Parted> && std::is_nothrow_move_constructible_v<Parted>);

  std::vector<Parted> several;
  for (int i = 0; i < 3; ++i) several.push_back(net);  // which moves those that are there
  for (Parted& n : several) {
    CHECK(n.fc1->weight.same(n.parameters()[0]));
    CHECK(!shares_memory(n, net));
  }
}

TEST_CASE("clone works for a module by value, by make and by constructor") {
  Parted by_value;
  const auto by_make = make<Parted>();
  const auto by_constructor = std::make_shared<Parted>();
  const std::shared_ptr<Module> in_part = Residual(std::make_shared<Parted>()).children()[0].ptr();
  for (const Module* m : {static_cast<Module*>(&by_value), static_cast<Module*>(by_make.get()),
                          static_cast<Module*>(by_constructor.get()), in_part.get()}) {
    const auto copy = m->clone();
    CHECK(dynamic_cast<Parted*>(copy.get()) != nullptr);
    CHECK(equal_states(*copy, *m));
    CHECK(!shares_memory(*copy, *m));
  }
  struct Unknown : Module {};
  CHECK_THROWS_WITH_AS(Unknown().clone(),
                       "[clone] nothing is known of the class of Unknown\nhelp: Net copy = net, or make it by "
                       "make<Net>(arguments)",
                       ValueError);
  struct Single : Module {
    std::unique_ptr<int> alone;
  };
  CHECK_THROWS_WITH_AS(make<Single>()->clone(), doctest::Contains("cannot be copied"), ValueError);
}

TEST_CASE("what is shared within a module is shared within its copy") {
  struct Tied : Module {
    Part<Embedding> embedding{this, "embedding", 5, 3};
    Part<Linear> head{this, "head", 3, 5, false};
    Part<Module> again{this, "again", embedding.ptr()};
    Part<Embedding> alias = embedding;
    Tied() { head->weight = embedding->weight; }
    Tensor forward(const Tensor& x) override { return head(alias(x)); }
  } net;
  CHECK(net.parameter_count() == 15);
  Tied copy = net;
  CHECK(copy.parameter_count() == 15);
  CHECK(copy.head->weight.same(copy.embedding->weight));
  CHECK(copy.again.get() == copy.embedding.get());
  CHECK(copy.alias.get() == copy.embedding.get());
  CHECK(copy.embedding.get() != net.embedding.get());
  CHECK(!shares_memory(copy, net));
}

TEST_CASE("a copy is refused where it would still use the original's parts") {
  InVector net;
  const auto use = [&] {
    InVector copy = net;
    copy.parameters();
  };
  CHECK_THROWS_WITH_AS(use(), doctest::Contains("\"first\" of InVector is held outside of the object"), ValueError);
  struct Kept : Module {
    std::shared_ptr<Linear> fc = std::make_shared<Linear>(2, 2);
    Kept() { add("fc", fc); }
  } kept;
  CHECK_THROWS_WITH_AS((Kept{kept}), doctest::Contains("\"fc\" of Kept is not held by a Part"), ValueError);
}

TEST_CASE("handles of parts: children, lists, copies by themselves") {
  Parted net;
  std::ostringstream order;
  for (const auto& [name, child] : net.named_children()) order << name << ' ';
  CHECK(order.str() == "fc1 scale act fc2 ");
  net.children()[0] = Linear(4, 3, false);
  CHECK(!net.fc1->bias.defined());
  auto handle = net.fc1;
  handle = Linear(9, 9);
  CHECK(net.fc1->weight.size(1) == 4);
  CHECK(handle->weight.size(1) == 9);

  ModuleList list{Linear(2, 3), ReLU()};
  list.append(Linear(3, 4)).extend({Tanh(), Linear(4, 5)});
  Tensor x = ones({1, 2});
  for (const auto& layer : list) x = layer(x);
  CHECK(x.shape() == Shape{1, 5});
  CHECK(list.size() == 5);
  CHECK(list[-1]->describe() == "Linear(in_features=4, out_features=5, bias=True)");
  list[-1] = Linear(4, 6);
  CHECK(names(list.named_parameters()).back() == "4.bias");
  CHECK_THROWS_WITH_AS(list[5], "[ModuleList] index must be below 5, got 5", IndexError);
  Sequential net2{Linear(2, 2)};
  net2.extend(list);
  CHECK(net2.size() == 6);
  CHECK(net2[1].ptr() == list[0].ptr());

  const bool smooth = true;
  Sequential choice{Linear(2, 2), smooth ? AnyModule(GELU()) : AnyModule(ReLU())};
  CHECK(choice[1]->describe().rfind("GELU", 0) == 0);
}

#ifndef __clang__
TEST_CASE("a Sequential in braces in another is a level of names") {
  Sequential outer{Sequential{Linear(2, 2)}};
  CHECK(names(outer.named_parameters()) == Strings{"0.0.weight", "0.0.bias"});
  ModuleList lists{ModuleList{Linear(2, 2)}};
  CHECK(names(lists.named_parameters()) == Strings{"0.0.weight", "0.0.bias"});
}
#endif

// Clang warns of this class, as it does in a user's program.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverloaded-virtual"
TEST_CASE("a forward that takes a tensor by value is found where a module is called") {
  struct ByValue : Module {
    Part<Linear> fc{this, "fc", 2, 3};
    Tensor forward(Tensor x) { return fc(x); }
  } net;
  CHECK(static_cast<Module&>(net)(ones({1, 2})).shape() == Shape{1, 3});
  Sequential outer{std::make_shared<ByValue>(), ReLU()};
  CHECK(outer(ones({1, 2})).shape() == Shape{1, 3});
}
#pragma GCC diagnostic pop

TEST_CASE("a hook that holds something is refused after its module has moved") {
  struct Hooked : Module {
    Part<Linear> fc{this, "fc", 2, 2};
    int calls = 0;
    Hooked() {
      register_forward_hook([this](Module&, const Tensors&, const Tensors&) { ++calls; });
    }
    Tensor forward(const Tensor& x) override { return fc(x); }
  };
  Hooked stays;
  stays(ones({1, 2}));
  CHECK(stays.calls == 1);
  Hooked moved = std::move(stays);
  CHECK_THROWS_WITH_AS(moved(ones({1, 2})), doctest::Contains("[hook] Hooked was moved after a hook was registered"), ValueError);
  Linear free(2, 2);
  free.register_forward_hook([](Module&, const Tensors&, const Tensors& out) { return out[0] * 0.0; });
  Sequential takes(std::move(free));
  CHECK(takes(ones({1, 2})).sum().item() == 0);
}

TEST_CASE("a user's class prints its own name") {
  std::ostringstream out;
  out << Parted();
  CHECK(out.str().rfind("Parted(\n  (fc1): Linear(in_features=4, out_features=3, bias=True)\n", 0) == 0);
}

namespace {

struct MaskInputs {
  Tensor mask = {};
  double scale = 1;
};
struct Masked : ModuleOf<Masked> {
  Tensor forward(const Tensor& x, const Tensor& y, const MaskInputs& in = {}) {
    return (in.mask.defined() ? x * in.mask : x) * in.scale + y;
  }
};

}  // namespace

TEST_CASE("a part is called with arguments in braces") {
  struct Outer : Module {
    Part<Masked> masked{this, "masked"};
    Part<MultiheadAttention> attention{this, "attention", 4, 2};
    Part<LSTM> lstm{this, "lstm", LSTM(4, 4, {.batch_first = true})};
  } net;
  const Tensor x = ones({2, 3, 4});
  CHECK(net.masked(x, x).sum().item() == 48);
  CHECK(net.masked(x, x, {.scale = 2}).sum().item() == 72);
  CHECK(!net.attention(x, x, x, {.need_weights = false}).second.defined());
  CHECK(net.attention(x).shape() == x.shape());
  const auto [y, state] = net.lstm(x);
  CHECK(net.lstm(x, {state.h, state.c}).output.shape() == Shape{2, 3, 4});
}
