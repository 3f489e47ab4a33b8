// SPDX-License-Identifier: Apache-2.0
// Optimizers, clipping, mixed precision, archives and data.
#include <doctest/doctest.h>

#include <atomic>
#include <filesystem>
#include <set>
#include <sstream>

#include "halfstep.h"
#include "tests/torch/support.h"

namespace hs = halfstep;
namespace data = torch::data;

namespace {

// Steps of an optimizer of the room and of halfstep's own, on one problem.
template <class Room, class Own, class RoomOptions, class OwnOptions>
void check_steps(const RoomOptions& room, const OwnOptions& own) {
  const torch::Tensor a = torch::tensor({1.0, -2.0, 3.0}, torch::requires_grad()), b = a.detach().clone().requires_grad_();
  Room first({a}, room);
  Own second({b.h()}, own);
  for (int i = 0; i < 4; ++i) {
    first.zero_grad();
    (a * a * a).sum().backward();
    first.step();
    second.zero_grad();
    hs::sum(b.h() * b.h() * b.h()).backward();
    second.step();
    CHECK(a.equal(b));
  }
}

struct Numbers : data::datasets::Dataset<Numbers> {
  explicit Numbers(size_t n) : n(n) {}
  data::Example<> get(size_t i) override {
    if (i == 1000) throw std::runtime_error("no such number");
    return {torch::full({1}, double(i)), torch::full({1}, int64_t(i))};
  }
  std::optional<size_t> size() const override { return n; }
  size_t n;
};
struct Countdown : data::datasets::StatefulDataset<Countdown, std::vector<int>> {
  std::optional<std::vector<int>> get_batch(size_t n) override {
    const std::lock_guard<std::mutex> lock(*mutex);
    if (left <= 0) return {};
    left -= int(n);
    return std::vector<int>(n, left);
  }
  std::optional<size_t> size() const override { return 10; }
  void reset() override { left = 10; }
  void save(torch::serialize::OutputArchive&) const override {}
  void load(torch::serialize::InputArchive&) override {}
  int left = 0;
  std::shared_ptr<std::mutex> mutex = std::make_shared<std::mutex>();
};

// Three pages of three numbers: 0, 1, 2, 10, 11, 12, 20, 21, 22.
struct Pages : data::datasets::ChunkDataReader<int> {
  std::vector<int> read_chunk(size_t page) override {
    const int first = 10 * int(page);
    return {first, first + 1, first + 2};
  }
  size_t chunk_count() override { return 3; }
  void reset() override {}
};

torch::nn::Sequential small_net() {
  return torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::BatchNorm1d(8), torch::nn::ReLU(), torch::nn::Linear(8, 2));
}

}  // namespace

TEST_CASE("torch: optimizers make halfstep's steps") {
  check_steps<torch::optim::SGD, hs::SGD>(torch::optim::SGDOptions(0.01).momentum(0.9).nesterov(true),
                                          hs::SGDOptions{.lr = 0.01, .momentum = 0.9, .nesterov = true});
  check_steps<torch::optim::Adam, hs::Adam>(torch::optim::AdamOptions(0.1).betas({0.5, 0.9}).amsgrad(true),
                                            hs::AdamOptions{.lr = 0.1, .betas = {0.5, 0.9}, .amsgrad = true});
  check_steps<torch::optim::AdamW, hs::AdamW>(torch::optim::AdamWOptions(), hs::AdamWOptions{});
  check_steps<torch::optim::Adagrad, hs::Adagrad>(torch::optim::AdagradOptions(0.1).lr_decay(0.1),
                                                  hs::AdagradOptions{.lr = 0.1, .lr_decay = 0.1});
  check_steps<torch::optim::RMSprop, hs::RMSprop>(torch::optim::RMSpropOptions(0.1).centered(true).momentum(0.5),
                                                  hs::RMSpropOptions{.lr = 0.1, .momentum = 0.5, .centered = true});
}

TEST_CASE("torch: groups, rates that change, and closures") {
  torch::Tensor a = torch::ones({1}, torch::requires_grad()), b = torch::ones({1}, torch::requires_grad());
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<torch::Tensor>{a});
  groups.emplace_back(std::vector<torch::Tensor>{b}, std::make_unique<torch::optim::SGDOptions>(0.5));
  torch::optim::SGD sgd(groups, torch::optim::SGDOptions(0.1));
  (a + b).backward();
  sgd.step();
  CHECK(a.item<float>() == doctest::Approx(0.9));
  CHECK(b.item<float>() == doctest::Approx(0.5));
  static_cast<torch::optim::SGDOptions&>(sgd.param_groups()[0].options()).lr(1);
  torch::optim::StepLR schedule(sgd, 1, 0.1);
  schedule.step();
  CHECK(sgd.param_groups()[0].options().get_lr() == 1);
  schedule.step();
  CHECK(sgd.param_groups()[1].options().get_lr() == doctest::Approx(0.05));
  CHECK(has(message_of([&] { sgd.add_param_group(torch::optim::OptimizerParamGroup({a})); }), "more than one parameter group"));
  CHECK(has(message_of([&] { torch::optim::SGD bad({a * 2}, 0.1); }), "can't optimize a non-leaf Tensor"));

  torch::Tensor x = torch::tensor({3.0}, torch::requires_grad());
  torch::optim::LBFGS lbfgs({x}, torch::optim::LBFGSOptions(1).line_search_fn("strong_wolfe"));
  const torch::Tensor before = lbfgs.step([&] {
    lbfgs.zero_grad();
    const torch::Tensor loss = (x - 1).pow(2).sum();
    loss.backward();
    return loss;
  });
  CHECK(before.item<float>() == 4);
  CHECK(x.item<float>() == doctest::Approx(1));
  CHECK(has(message_of([&] { torch::optim::LBFGS bad({x}, torch::optim::LBFGSOptions(1).line_search_fn("armijo")); }),
            "strong_wolfe"));
}

TEST_CASE("torch: clipping, and parameters as one vector") {
  torch::Tensor a = torch::zeros({2}, torch::requires_grad()), b = torch::zeros({1}, torch::requires_grad());
  a.mutable_grad() = torch::tensor({3.0, 0.0});
  CHECK(torch::nn::utils::clip_grad_norm_({a, b}, 1.5) == 3);  // b has no gradient
  CHECK(a.grad()[0].item<float>() == doctest::Approx(1.5));
  torch::nn::utils::clip_grad_value_(a, 0.5);
  CHECK(a.grad()[0].item<float>() == 0.5);
  torch::nn::utils::vector_to_parameters(torch::tensor({1.0, 2.0, 3.0}), {a, b});
  CHECK(b.item<float>() == 3);
  CHECK(torch::nn::utils::parameters_to_vector({a, b}).equal(torch::tensor({1.0, 2.0, 3.0})));
}

TEST_CASE("torch: mixed precision computes in 16 bits, and skips steps that overflow") {
  torch::nn::Linear net(4, 2);
  const torch::Tensor x = torch::ones({3, 4});
  {
    torch::amp::Autocast region;
    CHECK(net(x).dtype() == torch::kHalf);
    torch::amp::Autocast off(torch::kCPU, torch::kHalf, false);
    CHECK(net(x).dtype() == torch::kFloat);
  }
  {
    torch::amp::Autocast region(torch::kCPU, torch::kBFloat16);
    CHECK(net(x).dtype() == torch::kBFloat16);
  }
  torch::optim::SGD sgd(net->parameters(), 0.1);
  torch::amp::GradScaler scaler(torch::amp::GradScalerOptions().init_scale(1024));
  const torch::Tensor before = net->weight.detach().clone();
  scaler.scale(net(x).sum()).backward();
  scaler.unscale_(sgd);
  CHECK(net->weight.grad()[0][0].item<float>() == 3);
  scaler.step(sgd);
  scaler.update();
  CHECK(!net->weight.equal(before));
  const torch::Tensor kept = net->weight.detach().clone();
  sgd.zero_grad();
  scaler.scale((net(x) * std::numeric_limits<double>::infinity()).sum()).backward();
  scaler.step(sgd);
  scaler.update();
  CHECK(net->weight.equal(kept));
  CHECK(scaler.get_scale() == 512);
}

TEST_CASE("torch: modules, tensors and optimizers are saved as safetensors and loaded") {
  const auto folder = std::filesystem::temp_directory_path();
  const torch::TempFile file = torch::make_tempfile(), state = torch::make_tempfile();
  auto net = small_net(), other = small_net();
  torch::save(net, file.name);
  CHECK(hs::load_safetensors(file.name).tensors.count("1.running_mean") == 1);
  torch::load(other, file.name);
  net->eval();
  other->eval();
  const torch::Tensor x = torch::randn({2, 4});
  CHECK(net->forward(x).equal(other->forward(x)));

  std::stringstream stream;
  torch::save(torch::arange(3), stream);
  torch::Tensor back;
  torch::load(back, stream);
  CHECK(back.equal(torch::arange(3)));
  torch::save(std::vector<torch::Tensor>{torch::ones({1}), torch::zeros({2})}, file.name);
  std::vector<torch::Tensor> list;
  torch::load(list, file.name);
  CHECK(list.size() == 2);

  net->train();
  torch::optim::Adam adam(net->parameters(), torch::optim::AdamOptions(0.01)),
      resumed(other->parameters(), torch::optim::AdamOptions());
  net->forward(x).sum().backward();
  adam.step();
  torch::save(adam, state.name);
  torch::load(resumed, state.name);
  CHECK(resumed.param_groups()[0].options().get_lr() == doctest::Approx(0.01));
  CHECK(has(message_of([&] { torch::load(net, state.name); }), "No such serialized tensor '0.weight'"));
  torch::save(torch::nn::Linear(2, 2), file.name);
  torch::nn::Linear wide(3, 2);
  CHECK(has(message_of([&] { torch::load(wide, file.name); }), "'weight' has the sizes [2, 3] here, and [2, 2] in the file"));
  CHECK(message_of([&] { torch::load(net, (folder / "no_such_file").string()); }) != "nothing was thrown");
}

TEST_CASE("torch: archives nest, and keep plain values") {
  torch::serialize::OutputArchive out, inner;
  inner.write("t", torch::ones({2}));
  inner.write("gone", torch::Tensor());
  out.write("inner", inner);
  out.write("n", torch::IValue(7));
  out.write("x", torch::IValue(0.1));
  out.write("on", torch::IValue(true));
  out.write("s", torch::IValue("two words"));
  std::stringstream stream;
  out.save_to(stream);
  torch::serialize::InputArchive in, part;
  in.load_from(stream);
  torch::IValue v;
  in.read("n", v);
  CHECK(v.toInt() == 7);
  in.read("x", v);
  CHECK(v.toDouble() == 0.1);
  in.read("on", v);
  CHECK(v.toBool());
  in.read("s", v);
  CHECK(v.toStringRef() == "two words");
  in.read("inner", part);
  torch::Tensor t, gone;
  part.read("t", t);
  part.read("gone", gone);
  CHECK(t.sum().item<float>() == 2);
  CHECK(!gone.defined());
  CHECK(has(message_of([&] { part.read("u", t); }), "No such serialized tensor 'inner.u'"));
}

TEST_CASE("torch: a loader gives all samples once, in order, with workers or without") {
  for (size_t workers : {0, 2}) {
    auto set = Numbers(10).map(data::transforms::Stack<>());
    auto loader = data::make_data_loader<data::samplers::SequentialSampler>(
        std::move(set), data::DataLoaderOptions().batch_size(4).workers(workers));
    std::vector<int64_t> seen;
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (auto& batch : *loader) {
        CHECK(batch.data.size(0) == batch.target.size(0));
        for (int64_t i = 0; i < batch.target.size(0); ++i) seen.push_back(batch.target[i].item<int64_t>());
      }
    }
    std::vector<int64_t> expected;
    for (int64_t i = 0; i < 20; ++i) expected.push_back(i % 10);
    CHECK(seen == expected);
  }
  std::set<int64_t> shuffled;
  auto random = data::make_data_loader(Numbers(10), data::DataLoaderOptions().batch_size(3).drop_last(true));
  for (auto& batch : *random) {
    for (auto& example : batch) shuffled.insert(example.target.item<int64_t>());
  }
  CHECK(shuffled.size() == 9);
}

TEST_CASE("torch: errors of workers reach the program, and workers share a stateful set") {
  auto loader = data::make_data_loader<data::samplers::SequentialSampler>(Numbers(1001),
                                                                          data::DataLoaderOptions().batch_size(1001).workers(1));
  CHECK(has(message_of([&] { (void)loader->begin()->size(); }), "Original message: no such number"));
  for (const size_t workers : {0, 2}) {
    auto stateful = data::make_data_loader(Countdown(), data::DataLoaderOptions().batch_size(2).workers(workers));
    for (int pass = 0; pass < 2; ++pass) {
      std::multiset<int> left;
      for (auto& batch : *stateful) left.insert(batch[0]);
      CHECK(left == std::multiset<int>{8, 6, 4, 2, 0});
    }
  }
}

TEST_CASE("torch: chunks are read by threads of their own") {
  using Chunks = data::datasets::ChunkDataset<Pages, data::samplers::SequentialSampler, data::samplers::SequentialSampler>;
  const data::samplers::SequentialSampler in_order(3);
  const auto make = [&](Chunks::Policy policy = {}) {
    return data::datasets::make_shared_dataset<Chunks>(Pages(), in_order, in_order, data::datasets::ChunkDatasetOptions(1, 4, 8),
                                                       std::move(policy));
  };
  for (size_t workers : {0, 2}) {
    auto loader = data::make_data_loader(make(), data::DataLoaderOptions(4).workers(workers));
    for (int epoch = 0; epoch < 2; ++epoch) {
      std::multiset<int> seen;
      size_t batches = 0;
      for (auto& batch : *loader) {
        seen.insert(batch.begin(), batch.end());
        if (workers == 0 && ++batches == 1) CHECK(batch == std::vector<int>{0, 1, 2, 10});
      }
      CHECK(seen == std::multiset<int>{0, 1, 2, 10, 11, 12, 20, 21, 22});
    }
  }
  auto doubled = make([](std::vector<int>& page) {
    for (int& number : page) number *= 2;
  });
  CHECK(has(message_of([&] { doubled->get_batch(4); }), "call reset() before"));
  doubled->reset();
  CHECK(has(message_of([&] { doubled->get_batch(5); }), "The requested batch size is 5"));
  CHECK(*doubled->get_batch() == std::vector<int>{0, 2, 4, 20});
  // The place is saved, and the next epoch begins there once.
  std::stringstream stream;
  data::samplers::SequentialSampler at_second(3);
  at_second.next(1);
  torch::save(at_second, stream);
  auto resumed = make();
  torch::load(*resumed, stream);
  resumed->reset();
  CHECK(*resumed->get_batch() == std::vector<int>{10, 11, 12, 20});
  resumed->reset();
  CHECK(resumed->get_batch()->front() == 0);
  auto torn = make([](std::vector<int>&) { throw std::runtime_error("torn page"); });
  torn->reset();
  CHECK(has(message_of([&] { torn->get_batch(); }), "torn page"));
  CHECK(has(message_of([] { data::datasets::ChunkDatasetOptions(1, 4, 3); }), "Cache size is less than batch size"));
}

TEST_CASE("torch: the names of libtorch's old optimizers warn") {
  struct Still : torch::optim::Optimizer {
    using Optimizer::Optimizer;
    torch::Tensor step(LossClosure = nullptr) override { return {}; }
  };
  Still still(std::vector<torch::Tensor>{torch::ones({1})}, std::make_unique<torch::optim::SGDOptions>(0.1));
  still.add_parameters({torch::ones({2})});
  CHECK(still.size() == 2);
  CHECK(still.parameters().at(1).numel() == 2);
}

TEST_CASE("torch: samplers save their place") {
  data::samplers::RandomSampler sampler(10);
  sampler.next(4);
  std::stringstream stream;
  torch::serialize::OutputArchive out;
  sampler.save(out);
  out.save_to(stream);
  torch::serialize::InputArchive in;
  in.load_from(stream);
  data::samplers::RandomSampler resumed(10);
  resumed.load(in);
  CHECK(*resumed.next(6) == *sampler.next(6));
  data::samplers::DistributedSequentialSampler part(10, 3, 1);
  CHECK(*part.next(9) == std::vector<size_t>{4, 5, 6, 7});
}

TEST_CASE("torch: a file that mentions only modules with tensors is loaded, as state_dicts of Python do") {
  torch::nn::Sequential from(torch::nn::Linear(2, 3), torch::nn::ReLU(), torch::nn::Linear(3, 1)),
      to(torch::nn::Linear(2, 3), torch::nn::ReLU(), torch::nn::Linear(3, 1)),
      other(torch::nn::Linear(2, 3), torch::nn::Linear(3, 3));
  torch::serialize::OutputArchive out;
  for (const auto& p : from->named_parameters()) out.write(p.key(), p.value());
  const torch::TempFile file = torch::make_tempfile();
  out.save_to(file.name);
  torch::load(to, file.name);
  const torch::Tensor x = torch::ones({1, 2});
  CHECK(to->forward(x).equal(from->forward(x)));
  CHECK(has(message_of([&] { torch::load(other, file.name); }), "No such serialized submodule: '1'"));
}

TEST_CASE("torch: rates fall on a plateau, by each mode, with a cooldown and a lower bound for each group") {
  using Plateau = torch::optim::ReduceLROnPlateauScheduler;
  const auto rates = [](Plateau::SchedulerMode mode, Plateau::ThresholdMode threshold_mode, const std::vector<float>& metrics) {
    const torch::Tensor a = torch::zeros({1}, torch::requires_grad()), b = torch::zeros({1}, torch::requires_grad());
    torch::optim::SGD optimizer({torch::optim::OptimizerParamGroup({a}), torch::optim::OptimizerParamGroup({b})},
                                torch::optim::SGDOptions(0.5));
    optimizer.param_groups()[1].set_options(std::make_unique<torch::optim::SGDOptions>(0.25));
    Plateau schedule(optimizer, mode, 0.5, 1, 0.1, threshold_mode, 1, {0.2f, 0.01f});
    std::string out;
    for (const float metric : metrics) {
      schedule.step(metric);
      for (auto& group : optimizer.param_groups()) out += torch::str(group.options().get_lr(), " ");
    }
    return out;
  };
  // 1 is the best; 0.95 and 0.93 are no better by a tenth, and reduce; one metric of cooldown; then two more reduce, to the bound.
  const std::string want = "0.5 0.25 0.5 0.25 0.25 0.125 0.25 0.125 0.25 0.125 0.2 0.0625 ";
  CHECK(rates(Plateau::min, Plateau::rel, {1, 0.95f, 0.93f, 0.95f, 1, 1}) == want);
  CHECK(rates(Plateau::min, Plateau::abs, {1, 0.95f, 0.93f, 0.95f, 1, 1}) == want);
  CHECK(rates(Plateau::max, Plateau::rel, {1, 1.05f, 1.07f, 1.05f, 1, 1}) == want);
  CHECK(rates(Plateau::max, Plateau::abs, {1, 1.05f, 1.07f, 1.05f, 1, 1}) == want);
  CHECK(rates(Plateau::min, Plateau::rel, {1, 0.89f, 0.8f}) == "0.5 0.25 0.5 0.25 0.5 0.25 ");
  const torch::Tensor p = torch::zeros({1}, torch::requires_grad());
  torch::optim::SGD optimizer({p}, 0.1);
  CHECK(has(message_of([&] { Plateau(optimizer, Plateau::min, 1); }), "Factor should be < 1.0, got 1"));
  CHECK(has(message_of([&] { Plateau(optimizer, Plateau::min, 0.5, 1, 0, Plateau::rel, 0, {0, 0}); }), "got 2 in min_lr"));
}
