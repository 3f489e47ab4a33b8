// SPDX-License-Identifier: Apache-2.0
// Modules with a precision of their own in an autocast region.
#include <doctest/doctest.h>

#include <algorithm>

#include "amp/autocast/autocast.h"
#include "framework/backend/op_log.h"
#include "framework/ops/ops.h"
#include "layers/layers.h"
#include "tests/support/errors.h"

using namespace halfstep;
using testing::error_of;

namespace {

// "0: linear float16", for each call of an op that computes.
std::vector<std::string> calls_of(const std::function<void()>& f) {
  const OpLogScope log(Device::cpu);
  f();
  std::vector<std::string> out;
  for (const LoggedCall& call : log.calls())
    if (call.op != "view" && call.op != "permute") out.push_back(joined(call.layer, ": ", call.op, ' ', call.compute));
  return out;
}

std::vector<std::string> calls_in(DType low, Module& net, const Tensor& x) {
  const Autocast region(Device::cpu, low);
  return calls_of([&] { net(x); });
}

bool equal_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.to(DType::f32).to_vector<float>() == b.to(DType::f32).to_vector<float>();
}

struct TwoInputs : ModuleOf<TwoInputs> {
  Part<Linear> fc{this, "fc", 4, 4};
  bool same = false;
  DType seen = DType::f64;
  Tensor forward(const Tensor& a, const std::optional<Tensor>& b, const Tensor& index) {
    CHECK(index.dtype() == DType::i64);
    same = a.same(*b);
    seen = a.dtype();
    return fc(a) + *b;
  }
};

}  // namespace

TEST_CASE("a module's precision is set, read, cleared and copied, and is no part of its state") {
  Linear layer(2, 3);
  CHECK(!layer.precision());
  layer.set_precision(DType::f32);
  CHECK(layer.precision() == DType::f32);
  CHECK(Linear(layer).precision() == DType::f32);
  CHECK(layer.clone()->precision() == DType::f32);
  const Linear moved(std::move(layer));
  CHECK(moved.precision() == DType::f32);
  Linear other(2, 3);
  other.load_state_dict(moved.state_dict());
  CHECK(!other.precision());
  other.set_precision(DType::bf16);
  CHECK(other.precision() == DType::bf16);
  other.clear_precision();
  CHECK(!other.precision());
  CHECK(error_of([&] { other.set_precision(DType::f64); }) ==
        "[set_precision] a module computes in float32, float16 or bfloat16, got float64");
}

TEST_CASE("a module in float32 inside a float16 region: its ops, its inputs and all gradients") {
  manual_seed(3);
  struct Net : Module {
    Part<Linear> a{this, "a", 8, 8};
    Part<Linear> b{this, "b", 8, 8};
    Part<Linear> c{this, "c", 8, 4};
    Tensor forward(const Tensor& x) override { return c(b(a(x))); }
  } net;
  net.b->set_precision(DType::f32);
  const Tensor x = randn({5, 8}, {.requires_grad = true});
  CHECK(calls_in(DType::f16, net, x) == std::vector<std::string>{"a: linear float16", "b: linear float32", "c: linear float16"});

  // The same by hand.
  const auto by_hand = [&](const Tensor& in) {
    const Tensor y = net.a(in);
    Tensor z;
    {
      const Autocast off(Device::cpu, DType::f16, false);
      z = linear(y.to(DType::f32), net.b->weight, net.b->bias);
    }
    return net.c(z);
  };
  std::vector<Tensors> grads;
  Tensors outputs;
  for (const bool hand : {false, true}) {
    net.zero_grad();
    x.zero_grad();
    const Autocast region(Device::cpu, DType::f16);
    outputs.push_back(hand ? by_hand(x) : net(x));
    outputs.back().to(DType::f32).square().sum().backward();
    grads.push_back({x.grad().clone()});
    for (const Tensor& p : net.parameters()) grads.back().push_back(p.grad().clone());
  }
  CHECK(equal_bits(outputs[0], outputs[1]));
  for (size_t i = 0; i < grads[0].size(); ++i) {
    CAPTURE(i);
    CHECK(grads[0][i].dtype() == DType::f32);
    CHECK(equal_bits(grads[0][i], grads[1][i]));
    CHECK(grads[0][i].abs().sum().item<double>() > 0);
  }
}

TEST_CASE("outside a region and in a disabled one a precision does nothing") {
  Linear layer(4, 4);
  const Tensor x = randn({2, 4});
  const Tensor plain = layer(x);
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    layer.set_precision(dtype);
    CHECK(equal_bits(layer(x), plain));
    const Autocast off(Device::cpu, DType::f16, false);
    CHECK(equal_bits(layer(x), plain));
  }
  layer.set_precision(DType::f32);
  CHECK_THROWS_AS(layer(x.to(DType::f16)), DTypeError);  // nothing is cast outside a region
}

TEST_CASE("16-bit precisions take the place of the region's dtype, and the innermost setting wins") {
  Sequential net{Sequential{Linear(4, 4), Sequential{Linear(4, 4)}}, Linear(4, 4)};
  const Tensor x = randn({2, 4});
  const auto& outer = net[0];
  auto& inner = net.at<Sequential>(0);
  outer->set_precision(DType::bf16);
  CHECK(calls_in(DType::f16, net, x) ==
        std::vector<std::string>{"0.0: linear bfloat16", "0.1.0: linear bfloat16", "1: linear float16"});
  inner.at<Sequential>(1).set_precision(DType::f32);
  CHECK(calls_in(DType::f16, net, x) ==
        std::vector<std::string>{"0.0: linear bfloat16", "0.1.0: linear float32", "1: linear float16"});
  // A module in 16 bits turns on again what one around it in float32 has turned off.
  outer->set_precision(DType::f32);
  inner.at<Sequential>(1).set_precision(DType::bf16);
  CHECK(calls_in(DType::f16, net, x) ==
        std::vector<std::string>{"0.0: linear float32", "0.1.0: linear bfloat16", "1: linear float16"});
  {
    const Autocast region(Device::cpu, DType::f16);
    CHECK(outer(x).dtype() == DType::f32);  // what follows in the outer one finds float32
    CHECK(Sequential{outer->clone(), Linear(4, 4)}(x).dtype() == DType::f16);
  }
  Sequential more{inner[1]->clone(), Linear(4, 4)};
  more.set_precision(DType::f32);
  CHECK(calls_in(DType::f16, more, x) == std::vector<std::string>{"0.0: linear bfloat16", "1: linear float32"});
  // But not what the caller has turned off.
  const Autocast off(Device::cpu, DType::f16, false);
  CHECK(calls_of([&] { net(x); })[1] == "0.1.0: linear float32");
}

TEST_CASE("a region that a module opens by itself overrides its precision") {
  struct Own : Module {
    Part<Linear> fc{this, "fc", 4, 4};
    Tensor forward(const Tensor& x) override {
      const Autocast region(Device::cpu, DType::bf16);
      return fc(x);
    }
  } net;
  net.set_precision(DType::f32);
  CHECK(calls_in(DType::f16, net, randn({2, 4})) == std::vector<std::string>{"fc: linear bfloat16"});
  CHECK(!autocast::is_enabled(Device::Type::cpu));
}

TEST_CASE("a region is what it was after a module that throws") {
  Linear layer(4, 4);
  layer.set_precision(DType::f32);
  const Autocast region(Device::cpu, DType::f16);
  CHECK_THROWS_AS(layer(randn({2, 5})), ShapeError);
  CHECK(autocast::is_enabled(Device::Type::cpu));
  CHECK(autocast::dtype(Device::Type::cpu) == DType::f16);
}

TEST_CASE("a Sequential that fuses layers runs those with a precision by themselves, and fuses the others") {
  Sequential net{Linear(6, 6), ReLU(), Linear(6, 6), ReLU(), Linear(6, 6), ReLU(), Linear(6, 3)};
  const Tensor x = randn({4, 6});
  CHECK(calls_in(DType::f16, net, x) == std::vector<std::string>{"0 to 6: mlp float16"});
  net[2]->set_precision(DType::f32);
  CHECK(calls_in(DType::f16, net, x) ==
        std::vector<std::string>{"0: linear float16", "2: linear float32", "3: relu float32", "4 to 6: mlp float16"});
  net[2]->clear_precision();
  net[1]->set_precision(DType::f32);
  CHECK(calls_in(DType::f16, net, x) == std::vector<std::string>{"0: linear float16", "1: relu float32", "2 to 6: mlp float16"});
  net[1]->clear_precision();
  CHECK(calls_in(DType::f16, net, x) == std::vector<std::string>{"0 to 6: mlp float16"});

  Sequential conv{Conv2d(1, 2, 3), ReLU(), Linear(4, 4)};
  conv[0]->set_precision(DType::f32);
  const Tensor picture = randn({2, 1, 6, 6});
  CHECK(calls_in(DType::f16, conv, picture) ==
        std::vector<std::string>{"0: conv2d float32", "1: relu float32", "2: linear float16"});
  conv[0]->clear_precision();
  conv[1]->set_precision(DType::f32);
  CHECK(calls_in(DType::f16, conv, picture) ==
        std::vector<std::string>{"0: conv2d float16", "1: relu float32", "2: linear float16"});
}

TEST_CASE("a module with several inputs: all of 16 bits are cast, one tensor stays one tensor") {
  TwoInputs net;
  net.set_precision(DType::f32);
  const Tensor x = randn({2, 4}).to(DType::f16), index = zeros({1}, {.dtype = DType::i64});
  {
    const Autocast region(Device::cpu, DType::f16);
    CHECK(net(x, std::optional(x), index).dtype() == DType::f32);
    CHECK(net.seen == DType::f32);
    CHECK(net.same);
    net(x, std::optional(x.clone()), index);
    CHECK(!net.same);
  }
  struct Outer : Module {
    Part<TwoInputs> part{this, "part"};
    Tensor forward(const Tensor& x) override { return part(x, std::optional(x), zeros({1}, {.dtype = DType::i64})); }
  } outer;
  outer.part->set_precision(DType::f32);
  const Autocast region(Device::cpu, DType::f16);
  CHECK(outer(x).dtype() == DType::f32);
  CHECK(outer.part->same);
}

TEST_CASE("attention in float32: one packed product as before, masks cast too, gradients as of float32 inputs") {
  manual_seed(5);
  MultiheadAttention attention(8, 2, {.batch_first = true});
  attention.set_precision(DType::f32);
  const Tensor x = randn({2, 3, 8}).to(DType::f16).detach().set_requires_grad();
  const Tensor mask = zeros({3, 3}, {.dtype = DType::f16});
  const AttentionInputs how{.attn_mask = mask, .need_weights = false};
  Tensor y;
  {
    const Autocast region(Device::cpu, DType::f16);
    const std::vector<std::string> calls = calls_of([&] { y = attention(x, x, x, how).first; });
    CHECK(std::count(calls.begin(), calls.end(), ": linear float32") == 1);
    CHECK(std::count(calls.begin(), calls.end(), ": scaled_dot_product_attention float32") == 1);
    CHECK(calls.back() == "out_proj: linear float32");
  }
  CHECK(y.dtype() == DType::f32);
  y.square().sum().backward();
  CHECK(x.grad().dtype() == DType::f16);
  const Tensor wide = x.detach().to(DType::f32).set_requires_grad();
  const Tensor weight = attention.in_proj_weight.grad().clone();
  attention.zero_grad();
  const Tensor expected = attention(wide, wide, wide, {.need_weights = false}).first;
  expected.square().sum().backward();
  CHECK(equal_bits(y, expected));
  CHECK(equal_bits(attention.in_proj_weight.grad(), weight));
  CHECK(equal_bits(wide.grad().to(DType::f16), x.grad()));

  attention.clear_precision();
  attention.out_proj->set_precision(DType::f32);
  const Autocast region(Device::cpu, DType::f16);
  const std::vector<std::string> calls = calls_of([&] { y = attention(x, x, x, how).first; });
  CHECK(std::count(calls.begin(), calls.end(), ": scaled_dot_product_attention float16") == 1);
  CHECK(calls.back() == "out_proj: linear float32");
}

TEST_CASE("a block of a transformer with its attention in float32") {
  TransformerEncoderLayer block(8, 2, {.dim_feedforward = 16, .dropout = 0, .batch_first = true});
  block.self_attn->set_precision(DType::f32);
  block.linear1->set_precision(DType::f32);
  const std::vector<std::string> calls = calls_in(DType::f16, block, randn({2, 3, 8}));
  const auto has = [&](const char* call) { return std::count(calls.begin(), calls.end(), call); };
  CHECK(has("self_attn: scaled_dot_product_attention float32") == 1);
  CHECK(has("self_attn.out_proj: linear float32") == 1);
  CHECK(has("linear1: linear float32") == 1);
  CHECK(has("linear2: linear float16") == 1);
}

TEST_CASE("an LSTM in float32: outputs, states, packed inputs and kept states") {
  manual_seed(8);
  LSTM layer(4, 3, LSTMOptions{.batch_first = true});
  layer.set_precision(DType::f32);
  const Tensor x = randn({2, 5, 4}).to(DType::f16).detach().set_requires_grad();
  const LSTM::State state{zeros({1, 2, 3}, {.dtype = DType::f16}), zeros({1, 2, 3}, {.dtype = DType::f16})};
  {
    const Autocast region(Device::cpu, DType::f16);
    const auto [y, last] = layer(x, state);
    CHECK(y.dtype() == DType::f32);
    CHECK(last.h.dtype() == DType::f32);
    CHECK(last.c.dtype() == DType::f32);
    y.sum().backward();
    CHECK(equal_bits(y, LSTM(layer)(x.detach().to(DType::f32)).output));
    CHECK(layer(pack_padded_sequence(x, {5, 3}, true)).output.data.dtype() == DType::f32);
  }
  CHECK(x.grad().dtype() == DType::f16);
  CHECK(x.grad().abs().sum().item<double>() > 0);

  LSTM stateful(4, 3, LSTMOptions{.batch_first = true, .stateful = true});
  stateful.set_precision(DType::f32);
  const Autocast region(Device::cpu, DType::f16);
  for (int i = 0; i < 2; ++i) CHECK(stateful(x).output.dtype() == DType::f32);
  CHECK(stateful.kept_state().h.dtype() == DType::f32);
}

TEST_CASE("recomputing in backward keeps precisions, of the module itself and below it") {
  const Tensor data = randn({5, 6});
  const auto run = [&](bool recompute, DType outer, DType inner) {
    manual_seed(4);
    Sequential net{Sequential{Linear(6, 6), ReLU(), Linear(6, 6)}, Linear(6, 2)};
    net[0]->set_precision(outer);
    net.at<Sequential>(0)[2]->set_precision(inner);
    net[0]->recompute_in_backward(recompute);
    std::vector<DType> seen;
    net.at<Sequential>(0)[2]->register_forward_hook(
        [&](Module&, const Tensors&, const Tensors& out) { seen.push_back(out[0].dtype()); });
    const Tensor x = data.detach().set_requires_grad();
    Tensor y;
    {
      const Autocast region(Device::cpu, DType::f16);
      y = net(x);
    }
    y.to(DType::f32).square().sum().backward();
    Tensors out{y, x.grad()};
    for (const Tensor& p : net.parameters()) out.push_back(p.grad());
    CHECK(seen == std::vector<DType>(recompute ? 2 : 1, inner));
    return out;
  };
  for (const auto& [outer, inner] : {std::pair(DType::f32, DType::bf16), std::pair(DType::bf16, DType::f32)}) {
    const Tensors plain = run(false, outer, inner), again = run(true, outer, inner);
    REQUIRE(plain.size() == again.size());
    for (size_t i = 0; i < plain.size(); ++i) CHECK(equal_bits(plain[i], again[i]));
  }
}

TEST_CASE("hooks of a module with a precision see what it computes with") {
  Linear layer(4, 4);
  layer.set_precision(DType::f32);
  std::vector<DType> seen;
  layer.register_forward_pre_hook([&](Module&, const Tensors& in) { seen.push_back(in[0].dtype()); });
  layer.register_forward_hook([&](Module&, const Tensors& in, const Tensors& out) {
    seen.push_back(in[0].dtype());
    seen.push_back(out[0].dtype());
  });
  const Autocast region(Device::cpu, DType::f16);
  layer(randn({2, 4}).to(DType::f16));
  CHECK(seen == std::vector<DType>(3, DType::f32));
}

TEST_CASE("a weight that two modules share in two precisions has the gradients of both") {
  manual_seed(6);
  const auto first = make<Linear>(4, 4);
  const auto second = make<Linear>(4, 4);
  second->weight = first->weight;
  second->set_precision(DType::f32);
  const Tensor x = randn({3, 4});
  const auto gradient = [&](bool a, bool b) {
    first->weight.zero_grad();
    const Autocast region(Device::cpu, DType::bf16);
    Tensor loss = zeros({});
    if (a) loss = loss + (*first)(x).to(DType::f32).square().sum();
    if (b) loss = loss + (*second)(x).square().sum();
    loss.backward();
    return first->weight.grad().clone();
  };
  const Tensor both = gradient(true, true), sum = gradient(true, false) + gradient(false, true);
  CHECK((both - sum).abs().max().item<double>() <= 1e-5 * sum.abs().max().item<double>());
}

TEST_CASE("the log of calls says which module has set the dtype") {
  Sequential net{Linear(4, 4), Linear(4, 4), Linear(4, 4), Softmax(-1)};
  net[0]->set_precision(DType::f32);
  net[1]->set_precision(DType::bf16);
  net[3]->set_precision(DType::f32);
  const OpLogScope log(Device::cpu);
  {
    const Autocast region(Device::cpu, DType::f16);
    net(randn({2, 4}));
  }
  REQUIRE(log.calls().size() == 4);
  CHECK(log.calls()[0].reason == "computes in float32, set for 0");
  CHECK(log.calls()[1].reason == "computes in bfloat16, set for 1");
  CHECK(log.calls()[2].reason == "computes in float16 in a region");
  CHECK(log.calls()[3].reason == "computes in float32, set for 3");
  CHECK(log.calls()[3].casts.size() == 1);
  CHECK(log.calls()[3].casts[0].to == DType::f32);
}
