// SPDX-License-Identifier: Apache-2.0
// Recorded steps of recurrent networks that the device's library computes.
#include <doctest/doctest.h>

#include "framework/backend/dnn.h"
#include "tests/cuda/recurrent_support.h"

using namespace halfstep;
using namespace halfstep::testing;

TEST_CASE("a recurrent network that is new cannot be recorded, and can once it has run so") {
  if (!has_recurrent_library()) return;
  Backend& backend = backend_for(Device::cuda);
  GRU gru(7, 9, GRUOptions{});
  gru.to(Device::cuda);
  const Tensor x = randn({2, 3, 7}, {.device = Device::cuda});
  const auto record = [&](const auto& f) {
    backend.begin_recording(default_generator());
    try {
      f();
    } catch (...) {
      backend.abandon_recording();
      throw;
    }
    return backend.end_recording();
  };
  const auto evaluate = [&] {
    const NoGrad off;
    (void)gru(x);
  };
  Tensor y;
  const auto train = [&] { y = gru(x).output.sum(); };
  const auto differentiate = [&] { (void)grad({y}, gru.parameters(), {}, {.retain_graph = true}); };
  CHECK_THROWS_AS(record([&] {
                    (void)recurrent_library().recurrent_spaces({.cell = Cell::gru,
                                                                .dtype = DType::f32,
                                                                .layers = 1,
                                                                .directions = 1,
                                                                .features = 7,
                                                                .units = 9,
                                                                .width = 9,
                                                                .biased = true,
                                                                .projected = false,
                                                                .layout = RecurrentArgs::Layout::steps_first,
                                                                .steps = 2,
                                                                .batch = 3});
                  }),
                  NotPrepared);
  CHECK_THROWS_AS(record(evaluate), NotPrepared);
  evaluate();
  CHECK_NOTHROW(record(evaluate)->replay());
  CHECK_THROWS_AS(record(train), NotPrepared);
  train();
  CHECK_THROWS_AS(record(differentiate), NotPrepared);
  train();
  differentiate();
  CHECK_NOTHROW(record([&] {
                  train();
                  differentiate();
                })->replay());
}

TEST_CASE("what is recorded reads the weights where they are, not a copy from before") {
  if (!has_recurrent_library()) return;
  Backend& backend = backend_for(Device::cuda);
  const NoGrad off;
  manual_seed(8);
  const auto layer = [] {
    auto made = std::make_shared<GRU>(5, 6, GRUOptions{.num_layers = 2});
    made->to(Device::cuda);
    return made;
  };
  const auto gru = layer(), other = layer();
  const Tensor x = randn({2, 3, 5}, {.device = Device::cuda});
  const auto record = [&](const auto& f) {
    backend.begin_recording(default_generator());
    const Tensor y = f();
    return std::make_pair(y, backend.end_recording());
  };
  {
    const auto run = [&] { return (*gru)(x).output; };
    (void)run();
    const auto [y, recording] = record(run);
    for (const Tensor& p : gru->parameters()) {
      p.mul_(0.5);
      recording->replay();
      CHECK(bytes(y) == bytes(run()));
    }
  }
  // 16-bit copies that lie elsewhere stay there while work is recorded: replays copy them from where they are.
  const auto low = [&](GRU& net) {
    const Autocast region(Device::cuda, DType::bf16);
    return net(x).output;
  };
  (void)low(*other);
  const DnnOptions before = dnn_options();
  set_dnn_options({.workspace = 0});
  (void)low(*gru);
  set_dnn_options(before);
  const auto places = [&] {
    std::vector<void*> out;
    for (const Tensor& p : gru->parameters()) out.push_back(autocast::shadow_of(p).data_ptr());
    return out;
  };
  const std::vector<void*> here = places();
  const auto [y, recording] = record([&] { return low(*gru); });
  CHECK(places() == here);
  for (const Tensor& p : gru->parameters()) {  // as an optimizer does
    backend.fill(p.view(), 0.125);
    backend.fill(autocast::shadow_of(p).view(), 0.125);
  }
  recording->replay();
  const std::string replayed = bytes(y);
  CHECK(replayed == bytes(low(*gru)));
  CHECK(places() != here);
}

namespace {

std::string training(const char* kind, std::optional<DType> amp, double dropout, GraphMode mode, bool* recorded, uint64_t* called) {
  manual_seed(5);
  const DefaultDevice on(Device::cuda);
  std::shared_ptr<Module> layer;
  if (kind == std::string("LSTM"))
    layer = std::make_shared<LSTM>(
        5, 8, LSTMOptions{.num_layers = 2, .batch_first = true, .dropout = dropout, .bidirectional = true, .output = "last"});
  else
    layer = std::make_shared<GRU>(5, 8, GRUOptions{.num_layers = 2, .batch_first = true, .dropout = dropout, .output = "last"});
  Sequential net(layer, std::make_shared<Linear>(kind == std::string("LSTM") ? 16 : 8, 3));
  const CrossEntropyLoss loss;
  AdamW opt(net.parameters(), {.lr = 0.01});
  GradScaler scaler({.init_scale = 64, .enabled = amp == DType::f16});
  TrainStep step(net, loss, opt, scaler, nullptr, {.device = Device::cuda, .amp = amp, .graph = mode});
  Tensors inputs, targets;
  for (int i = 0; i < 3; ++i) {
    inputs.push_back(randn({4, 3, 5}));
    targets.push_back(randint(0, 3, {4}));
  }
  std::string out;
  const uint64_t before = recurrent_calls();
  for (size_t i = 0; i < 24; ++i) {
    if (i == 14) {
      const NoGrad off;
      net.eval();
      out += bytes(net(inputs[0]));
      net.train();
    }
    out += bytes(step(inputs[i % 3], targets[i % 3]).loss);
  }
  *recorded = step.is_recorded();
  *called = recurrent_calls() - before;
  return out + bytes(net) + bytes(opt) + shadow_bytes(net);
}

}  // namespace

TEST_CASE("recorded steps of recurrent networks are the eager ones") {
  if (!has_recurrent_library()) return;
  for (const char* kind : {"LSTM", "GRU"}) {
    for (const double dropout : {0.0, 0.3}) {
      for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
        CAPTURE(kind);
        CAPTURE(dropout);
        CAPTURE(name(dtype));
        bool recorded = true;
        uint64_t eager_calls = 0, replayed_calls = 0;
        const std::string eager = training(kind, if_half(dtype), dropout, GraphMode::off, &recorded, &eager_calls);
        CHECK(!recorded);
        const std::string replayed = training(kind, if_half(dtype), dropout, GraphMode::on, &recorded, &replayed_calls);
        CHECK(recorded);
        CHECK(replayed == eager);
        CHECK(eager_calls >= 24 * 2 + 1);
        CHECK(replayed_calls < eager_calls / 2);
      }
    }
  }
}
