// What a training step gives the stream, one by one. Each costs a launch, so the numbers are held.
#include <doctest/doctest.h>

#include <sstream>

#include "tests/cuda/support.h"
#include "cuda/gpu.cuh"

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
  Bench(DType low, GraphMode graph, bool adam = false)
      : net(make()),
        opt(adam ? std::unique_ptr<Optimizer>(std::make_unique<Adam>(net.parameters())) : std::make_unique<SGD>(net.parameters())),
        scaler({.enabled = low == DType::f16}),
        step(net, loss, *opt, scaler, nullptr, {.device = Device::cuda, .amp = low != DType::f32, .dtype = low == DType::f32 ? DType::bf16 : low, .graph = graph}) {
    for (int i = 0; i < 2; ++i) {
      x.push_back(randn({kBatch, kWidth}, {.device = Device::cuda}));
      y.push_back(randn({kBatch, kWidth}, {.device = Device::cuda}));
    }
  }
  // What the next step does, after as many as a recording needs.
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

TEST_CASE("the operations of one step") {
  for (const GraphMode mode : {GraphMode::off, GraphMode::on}) {
    Bench bench(DType::f16, mode);
    const auto list = bench.operations();
    MESSAGE(list.size(), text(list));
  }
}
