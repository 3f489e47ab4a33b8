// SPDX-License-Identifier: Apache-2.0
// A program for libtorch, which compiles against libtorch and against halfstep: a small network learns which of two spirals a
// point is of. mixed.cpp is the same in mixed precision.
#include <torch/torch.h>

#include <cmath>
#include <cstdint>
#include <cstdio>

struct Spirals : torch::data::datasets::Dataset<Spirals> {
  explicit Spirals(int64_t n) {
    const torch::Tensor t = torch::linspace(0.25, 1, n / 2) * 3 * M_PI;
    const torch::Tensor one = torch::stack({t * t.cos(), t * t.sin()}, 1) / 10;
    points = torch::cat({one, -one});
    classes = torch::cat({torch::zeros({n / 2}, torch::kLong), torch::ones({n / 2}, torch::kLong)});
  }
  torch::data::Example<> get(size_t i) override { return {points[int64_t(i)], classes[int64_t(i)]}; }
  torch::optional<size_t> size() const override { return size_t(points.size(0)); }
  torch::Tensor points, classes;
};

struct NetImpl : torch::nn::Module {
  NetImpl() : fc1(2, 64), fc2(64, 64), fc3(64, 2) {
    register_module("fc1", fc1);
    register_module("fc2", fc2);
    register_module("fc3", fc3);
  }
  torch::Tensor forward(torch::Tensor x) { return fc3(torch::relu(fc2(torch::relu(fc1(x))))); }
  torch::nn::Linear fc1, fc2, fc3;
};
TORCH_MODULE(Net);

int main() {
  torch::manual_seed(1);
  const Spirals spirals(1000);
  auto loader = torch::data::make_data_loader(Spirals(spirals).map(torch::data::transforms::Stack<>()),
                                              torch::data::DataLoaderOptions().batch_size(50).workers(1));
  Net net;
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(0.01));
  for (int epoch = 1; epoch <= 30; ++epoch) {
    double sum = 0;
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      torch::Tensor loss = torch::nn::functional::cross_entropy(net(batch.data), batch.target);
      loss.backward();
      optimizer.step();
      sum += loss.item<double>();
    }
    if (epoch % 10 == 0) std::printf("epoch %d  loss %.3f\n", epoch, sum / 20);
  }
  torch::NoGradGuard no_grad;
  const double right = net(spirals.points).argmax(1).eq(spirals.classes).sum().item<double>() / 1000;
  std::printf("accuracy %.1f %%\n", right * 100);
  return right >= 0.95 ? 0 : 1;
}
