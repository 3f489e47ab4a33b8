// SPDX-License-Identifier: Apache-2.0
// A program for libtorch that prints what it computes; compare_libtorch.py compiles it with libtorch as well and compares lines.
#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace nn = torch::nn;
namespace F = torch::nn::functional;
namespace data = torch::data;
namespace optim = torch::optim;
using torch::Tensor;

namespace {

void show(const std::string& name, const Tensor& t) {
  std::cout << name << " " << t.dtype() << " " << t.sizes() << ":";
  const Tensor flat = t.detach().to(torch::kDouble).reshape({-1});
  for (int64_t i = 0; i < std::min<int64_t>(flat.size(0), 12); ++i) std::cout << " " << flat[i].item<double>();
  if (flat.size(0) > 12) std::cout << " ... sum " << flat.sum().item<double>();
  std::cout << "\n";
}

void tensors() {
  using namespace torch::indexing;
  torch::manual_seed(3);
  const Tensor x = torch::randn({4, 5}), y = torch::rand({5, 3}), k = torch::randint(0, 9, {3, 4});
  show("randn", x);
  show("rand", y);
  show("randint", k);
  show("randperm", torch::randperm(10));
  show("normal", torch::empty({20}).normal_(1, 2));
  show("bernoulli", torch::bernoulli(torch::full({3, 3}, 0.5)));
  show("multinomial", torch::multinomial(torch::tensor({0.1, 0.2, 0.3, 0.4}), 6, true));
  show("mm", x.mm(y));
  show("index", x.index({Slice(1, None, 2), "...", torch::tensor({0, 3})}));
  show("masked", x.masked_fill(x > 0, -1).cumsum(1));
  const auto [values, indices] = x.topk(2, 1);
  show("topk", values);
  show("at", indices);
  show("where", torch::where(x > y[0][0], x, torch::zeros_like(x)).std(0));
  show("einsum", torch::einsum("ij,jk->ki", {x, y}));
  show("sort", std::get<1>(x.flatten().sort(-1, true)));
  show("integers", k.div(2, "floor").remainder(3) * 2 - k.max());
  show("gather", k.gather(1, k.argmax(1, true)).to(torch::kHalf) / 3);
  std::cout << x << "\n" << k << "\n" << (x > 0).index({0}) << "\n" << torch::ones({2, 2}, torch::kDouble) / 3 << "\n";
}

void gradients() {
  torch::manual_seed(4);
  const Tensor x = torch::randn({3, 3}, torch::requires_grad()), w = torch::randn({3}, torch::requires_grad());
  const Tensor loss = (x.matmul(w).tanh() * x.softmax(1).select(1, 0)).logsumexp(0);
  const auto first = torch::autograd::grad({loss}, {x, w}, {}, true, true);
  show("grad x", first[0]);
  show("grad w", first[1]);
  (first[0].pow(2).sum() + first[1].pow(2).sum()).backward();
  show("second x", x.grad());
  show("second w", w.grad());
}

struct NetImpl : nn::Module {
  NetImpl()
      : features(nn::Conv2d(nn::Conv2dOptions(1, 4, 3).padding(1).bias(false)), nn::BatchNorm2d(4), nn::ReLU(), nn::MaxPool2d(2)),
        drop(nn::DropoutOptions(0.2)),
        fc(nn::LinearOptions(4 * 4 * 4, 5)) {
    register_module("features", features);
    register_module("drop", drop);
    register_module("fc", fc);
  }
  Tensor forward(const Tensor& x) { return F::log_softmax(fc(drop(features->forward(x).flatten(1))), 1); }
  nn::Sequential features;
  nn::Dropout drop;
  nn::Linear fc;
};
TORCH_MODULE(Net);

void layers() {
  torch::manual_seed(5);
  const Tensor x = torch::randn({2, 6, 8});
  nn::LSTM lstm(nn::LSTMOptions(8, 7).num_layers(2).batch_first(true).bidirectional(true));
  const auto [out, state] = lstm(x);
  show("lstm", out);
  show("cell", std::get<1>(state));
  nn::GRU gru(nn::GRUOptions(8, 5));
  show("gru", std::get<0>(gru(x)));
  nn::MultiheadAttention attention(nn::MultiheadAttentionOptions(8, 2));
  show("attention", std::get<0>(attention(x, x, x)));
  nn::TransformerEncoder encoder(nn::TransformerEncoderOptions(nn::TransformerEncoderLayerOptions(8, 2).dropout(0.1), 2));
  show("encoder", encoder(x));
  nn::Embedding embedding(10, 4);
  show("embedding", embedding(torch::arange(4)));
  show("group norm", nn::GroupNorm(nn::GroupNormOptions(2, 6))(x));
  show("gelu", F::gelu(x.select(0, 0)));
  show("interpolate", F::interpolate(x, F::InterpolateFuncOptions().size(std::vector<int64_t>{5}).mode(torch::kLinear)));
  nn::Linear linear(3, 3);
  nn::init::orthogonal_(linear->weight);
  nn::init::kaiming_normal_(linear->weight, 0, torch::kFanOut);
  show("kaiming", linear->weight);
  std::cout << Net() << "\n" << lstm << "\n" << encoder << "\n";
}

// Trains a network by one optimizer, and prints its losses and one parameter.
template <class Optimizer, class Options>
std::shared_ptr<Optimizer> train(const std::string& name, const Options& options, Net& net) {
  torch::manual_seed(6);
  net = Net();
  auto optimizer = std::make_shared<Optimizer>(net->parameters(), options);
  const Tensor x = torch::randn({24, 1, 8, 8}), target = torch::randint(0, 5, {24});
  auto loader = data::make_data_loader<data::samplers::RandomSampler>(
      data::datasets::TensorDataset(std::vector<Tensor>(x.unbind(0))).map(data::transforms::Stack<data::TensorExample>()), 8);
  optim::StepLR schedule(*optimizer, 2, 0.5);
  std::cout << name << ":";
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (auto& batch : *loader) {
      const auto closure = [&] {
        optimizer->zero_grad();
        const Tensor loss = F::nll_loss(net(batch.data), target.slice(0, 0, batch.data.size(0)));
        loss.backward();
        nn::utils::clip_grad_norm_(net->parameters(), 1);
        return loss;
      };
      std::cout << " " << optimizer->step(closure).template item<float>();
    }
    schedule.step();
  }
  std::cout << " rate " << optimizer->param_groups()[0].options().get_lr() << "\n";
  show("  weight", net->fc->weight);
  return optimizer;
}

void full_batches() {
  torch::manual_seed(7);
  nn::Linear line(3, 1);
  const Tensor x = torch::randn({20, 3}), y = x.sum(1, true).tanh();
  optim::LBFGS optimizer(line->parameters(), optim::LBFGSOptions(1).max_iter(4).line_search_fn("strong_wolfe"));
  std::cout << "lbfgs:";
  for (int i = 0; i < 3; ++i) {
    const Tensor loss = optimizer.step([&] {
      optimizer.zero_grad();
      const Tensor out = F::mse_loss(line(x), y);
      out.backward();
      return out;
    });
    std::cout << " " << loss.item<float>();
  }
  std::cout << "\n";
  show("line", line->weight);
}

void training() {
  Net net{nullptr};
  train<optim::SGD>("sgd", optim::SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(1e-3), net);
  train<optim::RMSprop>("rmsprop", optim::RMSpropOptions(0.01).centered(true).momentum(0.5), net);
  train<optim::Adagrad>("adagrad", optim::AdagradOptions(0.05).lr_decay(0.1), net);
  train<optim::AdamW>("adamw", optim::AdamWOptions(0.01), net);
  const auto adam = train<optim::Adam>("adam", optim::AdamOptions(0.01).amsgrad(true), net);
  const Tensor& bias = net->fc->bias;
  const auto& state = static_cast<optim::AdamParamState&>(*adam->state().at(bias.unsafeGetTensorImpl()));
  std::cout << "states " << adam->state().size() << " step " << state.step() << "\n";
  show("exp_avg", state.exp_avg());
  show("max_exp_avg_sq", state.max_exp_avg_sq());

  std::stringstream stream;
  torch::save(net, stream);
  Net other;
  torch::load(other, stream);
  net->eval();
  other->eval();
  const Tensor x = torch::randn({2, 1, 8, 8});
  std::cout << "loaded " << torch::equal(net(x), other(x)) << "\n";
  for (const auto& buffer : other->named_buffers()) show(buffer.key(), buffer.value());
}

}  // namespace

int main() {
  std::cout << std::boolalpha;
  tensors();
  gradients();
  layers();
  full_batches();
  training();
}
