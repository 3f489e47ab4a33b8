// SPDX-License-Identifier: Apache-2.0
// The operations that a training step puts on the stream. Each costs a launch, so their numbers are checked.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <vector>

#include "cuda/blas/padding.h"
#include "cuda/gpu.cuh"
#include "tests/cuda/support.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

// The MLP of `halfstep bench`: three linear layers, ReLU between them, the mean squared error, plain SGD.
struct Bench {
  static constexpr int64_t kBatch = 16, kWidth = 64;
  Sequential net;
  MSELoss loss;
  std::unique_ptr<Optimizer> opt;
  GradScaler scaler;
  StepLR schedule;
  TrainStep step;
  Tensors x, y;

  static Sequential make() {
    manual_seed(1);
    Sequential net;
    for (int i = 0; i < 3; ++i) {
      if (i > 0) net.push_back(std::make_shared<ReLU>());
      net.push_back(std::make_shared<Linear>(kWidth, kWidth));
    }
    net.to(Device::cuda);
    return net;
  }
  Bench(DType low, GraphMode graph, bool adam = false, bool scheduled = false, double clip = 0)
      : net(make()),
        opt(adam ? std::unique_ptr<Optimizer>(std::make_unique<Adam>(net.parameters())) : std::make_unique<SGD>(net.parameters())),
        scaler({.enabled = low == DType::f16}),
        schedule(*opt, 4),
        step(net, loss, *opt, scaler, scheduled ? &schedule : nullptr,
             {.device = Device::cuda, .amp = if_half(low), .clip_grad_norm = clip, .graph = graph}) {
    for (int i = 0; i < 2; ++i) {
      x.push_back(randn({kBatch, kWidth}, {.device = Device::cuda}));
      y.push_back(randn({kBatch, kWidth}, {.device = Device::cuda}));
    }
  }
  // The operations of the next step, after as many steps as a recording needs.
  std::vector<emu::Operation> operations() {
    for (size_t i = 0; i < 6; ++i) step(x[i % 2], y[i % 2]);
    const emu::Operations all;
    const StepResult kept = step(x[0], y[0]);
    return all.list;
  }
};

std::string text(const std::vector<emu::Operation>& list) {
  std::ostringstream out;
  for (const emu::Operation& o : list) out << "\n  " << (o.in_graph ? "graph: " : "") << o.name;
  return out.str();
}

}  // namespace

// The whole lists, so that a failure shows the operations that returned.
TEST_CASE("an eager step of the benchmark is 13 operations, and a recorded one the same in a graph and nothing beside it") {
  const std::vector<std::string> forward{"cast_kernel<float, __half>", "product", "product", "product",
                                         "mse_packed<__half, float>"};
  std::vector<std::string> want = forward;
  want.push_back("product");  // of the last layer's weight, with the sum for its bias
  for (int layer = 0; layer < 2; ++layer)
    want.insert(want.end(), {"product", "derivative_sums_kernel<__half, functor::relu_backward>", "product"});
  want.push_back("step_list<math::SgdRule, float, true>");
  for (const GraphMode mode : {GraphMode::off, GraphMode::on}) {
    Bench bench(DType::f16, mode);
    const auto list = bench.operations();
    MESSAGE(list.size(), text(list));
    std::vector<std::string> names;
    for (const emu::Operation& o : list) {
      names.push_back(o.name);
      CHECK(o.in_graph == (mode == GraphMode::on));
    }
    CHECK(names == want);
  }
}

TEST_CASE("Adam takes no more operations than SGD, and a schedule none") {
  for (const bool scheduled : {false, true}) {
    Bench bench(DType::f16, GraphMode::on, /*adam=*/true, scheduled);
    const auto list = bench.operations();
    MESSAGE(list.size(), text(list));
    CHECK(list.size() == 13);
    CHECK(list.back().name == "step_list<math::AdamRule, float, true>");
  }
}

TEST_CASE(
    "bfloat16 takes its last sum for itself, too; float32's backward is fused, and the input copied, which a library's product "
    "reads") {
  Bench low(DType::bf16, GraphMode::on);
  CHECK(low.operations().size() == 14);
  Bench full(DType::f32, GraphMode::on);
  const auto list = full.operations();
  MESSAGE(list.size(), text(list));
  CHECK(list.size() == 11);
  CHECK(list.front().name == "copy");
  CHECK(!list.front().in_graph);
  CHECK(std::count_if(list.begin(), list.end(), [](const auto& o) { return o.in_graph; }) == 10);
}

// The kernels that write a gradient sum its columns for the bias before: of the projection, of the net's first layer and of its
// second one. Only the gradient that attention's library writes has a pass of its own.
TEST_CASE("a transformer's layers in bfloat16 sum the gradients of their biases in the kernels before, but for one in each") {
  manual_seed(1);
  constexpr int kLayers = 2;
  const auto layer = std::make_shared<TransformerEncoderLayer>(
      32, 2, TransformerLayerOptions{.dim_feedforward = 64, .dropout = 0, .activation = "gelu", .norm_first = true});
  TransformerEncoder net(layer, kLayers, std::make_shared<LayerNorm>(Sizes(32)));
  net.to(Device::cuda);
  const Tensor x = randn({2, 24, 32}, {.device = Device::cuda});
  const Autocast region(Device::cuda, DType::bf16);
  const Tensor loss = mse_loss(net(x), x);
  const emu::Operations all;
  loss.backward();
  const auto count = [&](const char* name) {
    return std::count_if(all.list.begin(), all.list.end(), [&](const auto& o) { return o.name.starts_with(name); });
  };
  MESSAGE(text(all.list));
  CHECK(count("derivative_sums_kernel<__nv_bfloat16, functor::gelu_backward>") == kLayers);
  CHECK(count("add_backward_once_kernel<1, 3>") == 2 * kLayers);
  CHECK(count("add_backward_once_kernel<1, 2>") == 0);
  CHECK(count("reduce_packed_columns") == kLayers);
}

TEST_CASE("clipping reads the gradients for their norm, which also checks them, and the update does the rest") {
  for (const DType low : {DType::f16, DType::bf16}) {
    for (const GraphMode mode : {GraphMode::off, GraphMode::on}) {
      const auto free = Bench(low, mode, /*adam=*/true, /*scheduled=*/true).operations();
      const auto list = Bench(low, mode, /*adam=*/true, /*scheduled=*/true, /*clip=*/1).operations();
      MESSAGE(list.size(), text(list));
      REQUIRE(list.size() == free.size() + 2);
      CHECK(list[list.size() - 3].name.starts_with("norm_packed<Square"));
      CHECK(list[list.size() - 2].name == "finish_norm");
      CHECK(list.back().name == "step_list<math::AdamRule, float, true>");
    }
  }
}

// Logits whose rows are no whole packs lie in longer rows from the product to its gradients.
TEST_CASE("the result of a large Linear in training has aligned rows, and the step with it copies nothing") {
  cuda::set_least_padded_product(1);
  const int64_t rows = 264, width = 256, words = 257;
  manual_seed(3);
  const Tensor x = randn({2, rows / 2, width}), w = randn({words, width}) * 0.1, b = randn({words});
  const Tensor target = randint(0, words, {rows});
  const auto run = [&](Device device, bool bias, bool chain) {
    Tensors in{x.to(device).clone(), w.to(device).clone(), b.to(device).clone()};
    for (const Tensor& t : in) t.set_requires_grad();
    const Autocast region(device, DType::f16);
    const Tensor bias_or_none = bias ? in[2] : Tensor();
    const Tensor y = chain ? mlp(in[0], {{in[1], bias_or_none, Activation::none}}) : linear(in[0], in[1], bias_or_none);
    const Tensor loss = cross_entropy(y.flatten(0, 1), target.to(device));
    loss.backward();
    return Tensors{loss, y, in[0].grad(), in[1].grad(), bias ? in[2].grad() : loss};
  };
  for (const bool bias : {false, true}) {
    for (const bool chain : {false, true}) {
      const emu::Operations all;
      const Tensors got = run(Device::cuda, bias, chain), want = run(Device::cpu, bias, chain);
      CHECK(std::count_if(all.list.begin(), all.list.end(), [](const auto& o) {
              return o.name.starts_with("rows_kernel") || o.name.starts_with("any_kernel");
            }) == 0);
      CHECK(got[1].strides() == Strides{rows / 2 * 264, 264, 1});
      CHECK(want[1].is_contiguous());
      for (size_t i = 0; i < got.size(); ++i) {
        const std::vector<float> a = got[i].cpu().to_vector<float>(), c = want[i].to_vector<float>();
        REQUIRE(a.size() == c.size());
        float most = 0, off = 0;
        for (size_t k = 0; k < a.size(); ++k) most = std::max(most, std::abs(c[k])), off = std::max(off, std::abs(a[k] - c[k]));
        CHECK_MESSAGE(off <= 2e-3f * most, i, " ", off, " of ", most);
      }
    }
  }
  // What wants contiguous memory gets it.
  const Autocast region(Device::cuda, DType::f16);
  const Tensor device_w = w.cuda(), y = linear(x.cuda(), device_w.set_requires_grad());
  CHECK(y.contiguous().is_contiguous());
  CHECK(y.reshape({-1}).to_vector<float>() == y.contiguous().to_vector<float>());
  CHECK(y.view({rows, words}).size(1) == words);
  CHECK_THROWS_AS(y.view({-1}), ShapeError);
  CHECK(relu(y).is_contiguous());
  {
    const NoGrad quiet;
    CHECK(linear(x.cuda(), device_w).is_contiguous());
  }
  cuda::set_least_padded_product(0x1p30);
}
