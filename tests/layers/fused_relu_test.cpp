// SPDX-License-Identifier: Apache-2.0
// A ReLU behind a batch normalisation, a sum or a convolution, in Sequential and Graph: one call, the bits of two, and two calls
// where something looks at the value between.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "framework/autograd/autograd.h"
#include "framework/backend/op_log.h"
#include "layers/layers.h"

using namespace halfstep;

namespace {

using Ops = std::vector<std::string>;

// The ops of a forward, with "+relu" where one ends with a ReLU.
template <class Net>
Ops ops_of(Net&& net, const Tensor& x) {
  const OpLogScope log(Device::cpu);
  net(x);
  Ops out;
  for (const LoggedCall& call : log.calls()) {
    const bool* const with = find_attribute<bool>(call.attributes, "relu");
    out.push_back(call.op + (with && *with ? "+relu" : ""));
  }
  return out;
}

std::string bits(const Tensor& t) {
  const Tensor dense = t.detach().contiguous();
  return {static_cast<const char*>(dense.const_data_ptr()), size_t(dense.numel()) * size_of(dense.dtype())};
}

// The result, the gradients of input and parameters, and the buffers after a step in training.
std::vector<std::string> step(Module& net, const Tensor& given, std::optional<DType> low) {
  const Tensor x = given.detach().set_requires_grad();
  net.zero_grad();
  Tensor y;
  if (low) {
    const Autocast region(Device::cpu, *low);
    y = net(x);
  } else {
    y = net(x);
  }
  square(y.to(DType::f32)).sum().backward();
  std::vector<std::string> out{bits(y), bits(x.grad())};
  for (const Tensor& p : net.parameters()) out.push_back(bits(p.grad()));
  for (const Tensor& b : net.buffers()) out.push_back(bits(b));
  return out;
}

std::shared_ptr<Module> conv_of_six() { return std::make_shared<Conv2d>(6, 6, 3, ConvLayerOptions{.padding = 1, .bias = false}); }
std::shared_ptr<Module> norm() { return std::make_shared<BatchNorm2d>(6); }
std::shared_ptr<Module> behind() { return std::make_shared<ReLU>(); }

Sequential residual_net() {
  const auto body = std::make_shared<Sequential>(conv_of_six(), norm(), behind(), conv_of_six(), norm());
  const auto shortcut = std::make_shared<Sequential>(conv_of_six(), norm());
  return Sequential(conv_of_six(), norm(), behind(), std::make_shared<Residual>(body), behind(),
                    std::make_shared<Residual>(conv_of_six(), shortcut), behind(), norm());
}
Graph graph_net() {
  return Graph({{.name = "conv", .layer = conv_of_six()},
                {.name = "norm", .layer = norm()},
                {.name = "act", .layer = behind()},
                {.name = "sum", .inputs = {"act", "input"}, .combine = Combine::add},
                {.name = "sum_act", .layer = behind()},
                {.name = "last", .inputs = {"sum_act", "act"}, .combine = Combine::add, .layer = behind()}});
}
const Ops kSequentialFused{"conv2d", "batch_norm+relu", "conv2d",     "batch_norm+relu", "conv2d",    "batch_norm_add_relu",
                           "conv2d", "conv2d",          "batch_norm", "add_relu",        "batch_norm"};
const Ops kSequentialPlain{"conv2d", "batch_norm", "relu",   "conv2d", "batch_norm", "relu", "conv2d", "batch_norm",
                           "add",    "relu",       "conv2d", "conv2d", "batch_norm", "add",  "relu",   "batch_norm"};
const Ops kGraphFused{"conv2d", "batch_norm+relu", "add_relu", "add_relu"};
const Ops kGraphPlain{"conv2d", "batch_norm", "relu", "add", "relu", "add", "relu"};

// Blocks that end with a normalisation: with its sum and ReLU in one node, or in two, and with one on both sides.
Graph block_graph() {
  return Graph({{.name = "conv", .layer = conv_of_six()},
                {.name = "norm", .layer = norm()},
                {.name = "sum", .inputs = {"norm", "input"}, .combine = Combine::add, .layer = behind()},
                {.name = "norm2", .layer = norm()},
                {.name = "sum2", .inputs = {"sum", "norm2"}, .combine = Combine::add},
                {.name = "act2", .layer = behind()},
                {.name = "conv3", .layer = conv_of_six()},
                {.name = "norm3", .layer = norm()},
                {.name = "across", .inputs = {"act2"}, .layer = conv_of_six()},
                {.name = "across_norm", .layer = norm()},
                {.name = "sum3", .inputs = {"norm3", "across_norm"}, .combine = Combine::add, .layer = behind()}});
}
Sequential block_with_shortcut() {
  const auto body = std::make_shared<Sequential>(conv_of_six(), norm());
  return Sequential(std::make_shared<Residual>(body, std::make_shared<Sequential>(conv_of_six(), norm())), behind(),
                    std::make_shared<Residual>(std::make_shared<Sequential>(norm())), behind());
}
const Ops kBlocksFused{"conv2d", "batch_norm_add_relu", "batch_norm_add_relu", "conv2d",
                       "conv2d", "batch_norm",          "batch_norm_add_relu"};
const Ops kBlocksPlain{"conv2d", "batch_norm", "add",    "relu",       "batch_norm", "add", "relu",
                       "conv2d", "batch_norm", "conv2d", "batch_norm", "add",        "relu"};
const Ops kShortcutFused{"conv2d", "conv2d", "batch_norm", "batch_norm_add_relu", "batch_norm_add_relu"};
const Ops kShortcutPlain{"conv2d", "batch_norm", "conv2d", "batch_norm", "add", "relu", "batch_norm", "add", "relu"};

template <class Net>
void check_same_step(const Net& made, const Ops& fused_ops, const Ops& plain_ops) {
  for (MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
    for (std::optional<DType> low : {std::optional<DType>(), std::optional(DType::bf16)}) {
      Net fused(made), plain(made);
      fused.to(format), plain.to(format);
      plain.apply([](Module& m) { m.register_forward_hook([](Module&, const Tensors&, const Tensors&) {}); });
      manual_seed(9);
      const Tensor x = randn({3, 6, 7, 5}).to(format);
      CHECK(step(fused, x, low) == step(plain, x, low));
      fused.eval(), plain.eval();
      CHECK(bits(fused(x)) == bits(plain(x)));
      CHECK(ops_of(fused, x) == fused_ops);
      CHECK(ops_of(plain, x) == plain_ops);
    }
  }
}

}  // namespace

TEST_CASE("Sequential and Graph compute a ReLU with the normalisation or the sum before it, with the bits of two calls") {
  manual_seed(8);
  check_same_step(residual_net(), kSequentialFused, kSequentialPlain);
  check_same_step(graph_net(), kGraphFused, kGraphPlain);
}

TEST_CASE(
    "Residual and Graph compute a sum and its ReLU with the normalisation before it, with the bits of the layers by themselves") {
  manual_seed(8);
  check_same_step(block_graph(), kBlocksFused, kBlocksPlain);
  check_same_step(block_with_shortcut(), kShortcutFused, kShortcutPlain);
}

TEST_CASE("a normalisation before a sum is a call of its own where something looks at it, reads it or has a rule for it") {
  manual_seed(8);
  const Tensor x = randn({3, 6, 7, 5});
  Sequential net(std::make_shared<Residual>(std::make_shared<Sequential>(norm())), behind());
  Graph graph({{.name = "norm", .layer = norm()},
               {.name = "sum", .inputs = {"norm", "input"}, .combine = Combine::add, .layer = behind()}});
  const auto two = [](const Ops& ops) { return ops == Ops{"batch_norm", "add_relu"} || ops == Ops{"batch_norm", "add", "relu"}; };
  for (auto& [m, layer] : {std::pair<Module*, Module*>{&net, &*net.children()[0]->children()[0]->children()[0]},
                           std::pair<Module*, Module*>{&graph, &*graph.children()[0]}}) {
    CHECK(ops_of(*m, x) == Ops{"batch_norm_add_relu"});
    layer->set_precision(DType::f32);
    CHECK(two(ops_of(*m, x)));
    layer->clear_precision();
    for (const char* op : {"batch_norm", "add", "relu"}) {
      const Autocast region(Device::cpu, AutocastOptions{.dtype = DType::bf16, .policies = OpPolicies{{op, CastPolicy::f32}}});
      CHECK(two(ops_of(*m, x)));
    }
    const uint64_t hook = layer->register_forward_hook([](Module&, const Tensors&, const Tensors&) {});
    CHECK(two(ops_of(*m, x)));
    layer->remove_hook(hook);
    layer->recompute_in_backward(true);
    CHECK(two(ops_of(*m, x)));
    layer->recompute_in_backward(false);
    CHECK(ops_of(*m, x) == Ops{"batch_norm_add_relu"});
  }
  Graph read_twice({{.name = "norm", .layer = norm()},
                    {.name = "sum", .inputs = {"norm", "input"}, .combine = Combine::add, .layer = behind()},
                    {.name = "last", .inputs = {"sum", "norm"}, .combine = Combine::mul}});
  CHECK(ops_of(read_twice, x) == Ops{"batch_norm", "add_relu", "mul"});
  const std::shared_ptr<Module> shared = norm();
  Graph both({{.name = "first", .layer = shared},
              {.name = "second", .layer = shared},
              {.name = "sum", .inputs = {"second", "input"}, .combine = Combine::add, .layer = behind()}});
  CHECK(ops_of(both, x) == Ops{"batch_norm", "batch_norm", "add_relu"});
}

TEST_CASE("a ReLU is a call of its own where a precision, a policy or recomputing is for one of the two") {
  manual_seed(8);
  const Tensor x = randn({3, 6, 7, 5});
  Sequential net(norm(), behind());
  Graph graph({{.name = "norm", .layer = norm()}, {.name = "act", .layer = behind()}});
  const Ops fused{"batch_norm+relu"}, plain{"batch_norm", "relu"};
  for (Module* const m : {static_cast<Module*>(&net), static_cast<Module*>(&graph)}) {
    Module& first = *m->children()[0];
    CHECK(ops_of(*m, x) == fused);
    first.set_precision(DType::f32);
    CHECK(ops_of(*m, x) == plain);
    first.clear_precision();
    {
      const Autocast region(Device::cpu,
                            AutocastOptions{.dtype = DType::bf16, .policies = OpPolicies{{"batch_norm", CastPolicy::f32}}});
      CHECK(ops_of(*m, x) == plain);
    }
    {
      const Autocast region(Device::cpu, AutocastOptions{.dtype = DType::bf16, .policies = OpPolicies{{"add", CastPolicy::f32}}});
      CHECK(ops_of(*m, x) == plain);
    }
    const uint64_t hook = first.register_forward_hook([](Module&, const Tensors&, const Tensors&) {});
    CHECK(ops_of(*m, x) == plain);
    first.remove_hook(hook);
    first.recompute_in_backward(true);
    CHECK(ops_of(*m, x) == plain);
    first.recompute_in_backward(false);
    CHECK(ops_of(*m, x) == fused);
  }
}

TEST_CASE("a Graph keeps a value that another node reads, and follows a child that is replaced") {
  manual_seed(8);
  const Tensor x = randn({2, 6, 4, 4});
  Graph read_twice({{.name = "norm", .layer = norm()},
                    {.name = "act", .layer = behind()},
                    {.name = "sum", .inputs = {"act", "norm"}, .combine = Combine::add}});
  CHECK(ops_of(read_twice, x) == Ops{"batch_norm", "relu", "add"});
  Graph three(
      {{.name = "sum", .inputs = {"input", "input", "input"}, .combine = Combine::add}, {.name = "act", .layer = behind()}});
  CHECK(ops_of(three, x) == Ops{"add", "add", "relu"});
  Graph graph({{.name = "norm", .layer = norm()}, {.name = "act", .layer = behind()}});
  Graph copy(graph);
  CHECK(ops_of(copy, x) == Ops{"batch_norm+relu"});
  auto parts = graph.children();
  parts[1] = std::make_shared<Tanh>();
  CHECK(ops_of(graph, x) == Ops{"batch_norm", "tanh"});
  CHECK(ops_of(copy, x) == Ops{"batch_norm+relu"});
}

TEST_CASE("layer.relu(x) is relu(layer(x)), and a hook of the layer sees the value between") {
  manual_seed(8);
  BatchNorm2d layer(6);
  Residual sum(conv_of_six());
  const Tensor x = randn({2, 6, 4, 4});
  CHECK(bits(layer.relu(x)) == bits(relu(layer(x))));
  CHECK(bits(sum.relu(x)) == bits(relu(sum(x))));
  const Tensor residual = randn(x.shape());
  CHECK(bits(layer.add_relu(x, residual)) == bits(add_relu(layer(x), residual)));
  CHECK(ops_of([&](const Tensor& in) { return layer.add_relu(in, residual); }, x) == Ops{"batch_norm_add_relu"});
  CHECK_THROWS_AS(layer.add_relu(x, Tensor()), ValueError);
  bool negative = false;
  const auto look = [&](Module&, const Tensors&, const Tensors& out) { negative = any(out[0] < 0.0).item<bool>(); };
  layer.register_forward_hook(look);
  layer.relu(x);
  CHECK(negative);
  negative = false;
  layer.add_relu(x, residual);
  CHECK(negative);
  negative = false;
  sum.register_forward_hook(look);
  sum.relu(x);
  CHECK(negative);
}
