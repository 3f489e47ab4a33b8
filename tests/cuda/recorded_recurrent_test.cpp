// Recorded steps of recurrent networks that the device's library computes.
#include <doctest/doctest.h>

#include "framework/backend/dnn.h"
#include "tests/cuda/recurrent_support.h"

using namespace halfstep;
using namespace halfstep::testing;

TEST_CASE("a recurrent network that is new cannot be recorded, and can once it has run") {
  if (!has_recurrent_library()) return;
  Backend& backend = backend_for(Device::cuda);
  const GRU layer(7, 9, GRUOptions{});
  GRU& gru = const_cast<GRU&>(layer);
  gru.to(Device::cuda);
  const Tensor x = randn({2, 3, 7}, {.device = Device::cuda});
  const NoGrad off;
  const auto record = [&] {
    backend.begin_recording(default_generator());
    try {
      (void)gru(x);
    } catch (...) {
      backend.abandon_recording();
      throw;
    }
    return backend.end_recording();
  };
  CHECK_THROWS_AS(record(), NotPrepared);
  (void)gru(x);
  CHECK_NOTHROW(record()->replay());
}

namespace {

std::string training(const char* kind, bool amp, DType dtype, double dropout, GraphMode mode, bool* recorded, uint64_t* called) {
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
  GradScaler scaler({.init_scale = 64, .enabled = amp && dtype == DType::f16});
  TrainStep step(net, loss, opt, scaler, nullptr, {.device = Device::cuda, .amp = amp, .dtype = dtype, .graph = mode});
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
      for (const auto& [amp, dtype] : {std::pair{false, DType::f16}, {true, DType::f16}, {true, DType::bf16}}) {
        CAPTURE(kind);
        CAPTURE(dropout);
        CAPTURE(amp);
        CAPTURE(name(dtype));
        bool recorded = true;
        uint64_t eager_calls = 0, replayed_calls = 0;
        const std::string eager = training(kind, amp, dtype, dropout, GraphMode::off, &recorded, &eager_calls);
        CHECK(!recorded);
        const std::string replayed = training(kind, amp, dtype, dropout, GraphMode::on, &recorded, &replayed_calls);
        CHECK(recorded);
        CHECK(replayed == eager);
        CHECK(eager_calls >= 24 * 2 + 1);
        CHECK(replayed_calls < eager_calls / 2);
      }
    }
  }
}
