// SPDX-License-Identifier: Apache-2.0
// A trained model in use on the device: calls replay recorded work, and give the bits of calls that do not.

#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "apps/commands/program.h"
#include "apps/examine/bench_mlp.h"
#include "cuda/launches.h"
#include "framework/backend/reports.h"
#include "framework/tensor/memory.h"
#include "tests/apps/small_models.h"
#include "tests/cuda/support.h"

using namespace halfstep;
using namespace halfstep::testing;
using halfstep::app::ForwardRecorder;
using halfstep::app::Predictor;
using halfstep::app::testing::inputs_for;
using halfstep::app::testing::kSmallModels;
using halfstep::app::testing::SmallModel;
using halfstep::app::testing::TempDir;

namespace {

// Trains in this process, whose device may be emulated.
void train_small(const TempDir& dir, const SmallModel& small, bool amp) {
  app::testing::write(dir / "run.json", app::testing::config_of(small, amp));
  const std::string config = (dir / "run.json").string(), output = "output_dir=" + (dir / "out").string();
  const char* const arguments[] = {"halfstep", "train", config.c_str(), "--quiet", "--set", output.c_str()};
  REQUIRE(app::run_program(6, arguments) == 0);
}

// Work that the host gives to the device: launches of kernels and calls of libraries.
struct CountedLaunches final : cuda::LaunchWatcher {
  CountedLaunches() { cuda::launch_watcher = this; }
  ~CountedLaunches() { cuda::launch_watcher = nullptr; }
  void launched(const cuda::KernelLaunch&) override { ++count; }
  void uses_fixed(const void*) override { ++count; }
  int count = 0;
};

// Calls a model that is on the device already.
ForwardRecorder recorder_of(Module& net) {
  return ForwardRecorder([&net](const Tensor& x) { return net(x); }, net, Device::cuda);
}

}  // namespace

TEST_CASE("predictions on the device replay recorded work: the bits of eager calls, and nothing to launch") {
  for (const SmallModel& kind : kSmallModels) {
    for (const bool amp : {false, true}) {
      CAPTURE(std::string(kind.name));
      CAPTURE(amp);
      const TempDir dir;
      train_small(dir, kind, amp);
      const Predictor eager(dir / "out", {.device = "cuda", .record = false}), model(dir / "out", {.device = "cuda"});
      const uint64_t drawn = default_generator().state().offset;
      for (const int64_t count : {1, 4}) {
        for (uint64_t call = 0; call < 5; ++call) {
          const Tensor x = inputs_for(model, count, call);
          CHECK(bytes(model(x)) == bytes(eager(x)));
        }
      }
      CHECK(model.recordings() == 2);
      CHECK(eager.recordings() == 0);
      CHECK(default_generator().state().offset == drawn);
      const Tensor x = inputs_for(model, 4);
      const size_t allocations = allocator(Device::cuda).stats().allocations;
      {
        const CountedLaunches replayed;
        model(x);
        CHECK(replayed.count == 0);
      }
      CHECK(allocator(Device::cuda).stats().allocations == allocations);
      const CountedLaunches launches;
      eager(x);
      CHECK(launches.count > 2);
    }
  }
}

TEST_CASE("predictions on the device: of many shapes the last ones are kept, and their memory is given back") {
  const TempDir dir;
  train_small(dir, kSmallModels[0], true);
  mm(ones({2, 2}, {.device = Device::cuda}), ones({2, 2}, {.device = Device::cuda}));  // may take a workspace that stays
  const size_t before = allocator(Device::cuda).stats().live;
  {
    const Predictor model(dir / "out", {.device = "cuda"}), eager(dir / "out", {.device = "cuda", .record = false});
    const auto most = int64_t(ForwardRecorder::kMostShapes);
    for (int64_t count = 1; count <= most + 3; ++count) {
      for (int i = 0; i < 2; ++i) {
        const Tensor x = inputs_for(model, count);
        CHECK(bytes(model(x)) == bytes(eager(x)));
        CHECK(int64_t(model.recordings()) == std::min(count - 1 + i, most - (i == 0 && count > most)));
      }
    }
    for (int64_t count = most + 3; count > 3; --count) {  // those that are kept
      const Tensor x = inputs_for(model, count);
      const std::string want = bytes(eager(x));
      const CountedLaunches launches;
      CHECK(bytes(model(x)) == want);
      CHECK(launches.count == 0);
    }
    CHECK(bytes(model(inputs_for(model, 0))).empty());
  }
  CHECK(allocator(Device::cuda).stats().live == before);
}

TEST_CASE("predictions on the device: several threads at once") {
  const TempDir dir;
  train_small(dir, kSmallModels[0], true);
  const Predictor model(dir / "out", {.device = "cuda"}), eager(dir / "out", {.device = "cuda", .record = false});
  std::vector<std::string> want, got(8);
  for (int64_t i = 0; i < 8; ++i) want.push_back(bytes(eager(inputs_for(model, i % 3 + 1, uint64_t(i)))));
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (int k = 0; k < 3; ++k) got[size_t(i)] = bytes(model(inputs_for(model, i % 3 + 1, uint64_t(i))));
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(got == want);
}

TEST_CASE("a recorded forward pass follows changes of its model") {
  const auto net = mlp_model(Device::cuda, 0.5);
  net->eval();
  const Batches batches(Device::cpu, 2);
  for (const bool low : {false, true}) {
    CAPTURE(low);
    const auto forward = [&](const Tensor& x) {
      const Autocast region(Device::cuda, DType::bf16, low);
      return (*net)(x);
    };
    ForwardRecorder recorder(forward, *net, Device::cuda);
    const auto same = [&] {  // for three calls, of which the last two are recorded and replayed
      for (size_t i = 0; i < 3; ++i) {
        const NoGrad off;
        const Tensor& x = batches.inputs[i % 2];
        const std::string want = bytes(forward(x.to(Device::cuda)));
        CHECK(bytes(recorder(x)) == want);
        CHECK(recorder.recordings() == (i > 0));
      }
    };
    same();
    {
      const NoGrad off;
      net->parameters()[0].mul_(0.5);
    }
    same();
    net->load_state_dict(mlp_model(Device::cuda, 0.5)->state_dict());
    same();
    dynamic_cast<Linear&>(*(*net)[0]).weight = ones({24, 12}, {.device = Device::cuda});
    same();
    for (const Tensor& p : net->parameters()) autocast::drop_shadow(p);
    if (low) same();
    CHECK(recorder.recordings() == 1);
    const uint64_t key = net->register_forward_hook([](Module&, const Tensors&, const Tensors& y) { return y[0] * 2; });
    const std::string want = bytes(forward(batches.inputs[0].to(Device::cuda)));
    CHECK(bytes(recorder(batches.inputs[0])) == want);
    net->remove_hook(key);
    net->train();  // draws, which replays do anew
    manual_seed(1);
    Tensors eager;
    for (size_t i = 0; i < 4; ++i) eager.push_back(no_grad([&] { return forward(batches.inputs[0].to(Device::cuda)); }));
    manual_seed(1);
    for (const Tensor& y : eager) CHECK(bytes(recorder(batches.inputs[0])) == bytes(y));
    CHECK(recorder.recordings() == 1);
    manual_seed(1);
    CHECK(bytes(recorder(batches.inputs[0])) == bytes(eager[0]));
    net->eval();
  }
}

TEST_CASE("a recorded forward pass follows changes of its layers") {
  const auto net = mlp_model(Device::cuda, 0.5);
  net->eval();
  const Batches batches(Device::cpu, 2);
  const auto forward = [&](const Tensor& x) {
    const Autocast region(Device::cuda, DType::bf16);
    return (*net)(x);
  };
  ForwardRecorder recorder(forward, *net, Device::cuda);
  const auto same = [&](bool recorded) {
    for (size_t i = 0; i < 3; ++i) {
      const Tensor& x = batches.inputs[i % 2];
      CHECK(bytes(recorder(x)) == bytes(no_grad([&] { return forward(x.to(Device::cuda)); })));
      CHECK(recorder.recordings() == (recorded && i > 0));
    }
  };
  same(true);
  (*net)[0]->set_precision(DType::f16);
  same(true);
  auto activation = (*net)[1];
  activation = Tanh();
  same(true);
  struct Unknown : Module {
    Tensor forward(const Tensor& x) override { return x * factor; }
    double factor = 2;
  };
  const auto unknown = std::make_shared<Unknown>();
  activation = unknown;
  same(false);
  unknown->factor = 3;
  same(false);
}

TEST_CASE("a forward pass that cannot be recorded runs eagerly") {
  struct ReadsValue : Module {
    explicit ReadsValue(std::shared_ptr<Module> m) : inner(this, "inner", std::move(m)) {}
    Tensor forward(const Tensor& x) override {
      ++calls;
      return inner(x) * (x.sum().item<float>() > 1e30f ? 0.0 : 1.0);
    }
    bool is_recordable() const override { return says; }
    Part<Module> inner;
    bool says = true;
    int calls = 0;
  };
  const Batches batches(Device::cpu, 1);
  for (const bool says : {true, false}) {
    ReadsValue net(mlp_model(Device::cuda));
    net.says = says;
    net.eval();
    const std::string want = bytes(no_grad([&] { return net(batches.inputs[0].to(Device::cuda)); }));
    net.calls = 0;
    const Listening log;
    ForwardRecorder recorder = recorder_of(net);
    for (int i = 0; i < 6; ++i) CHECK(bytes(recorder(batches.inputs[0])) == want);
    CHECK(recorder.recordings() == 0);
    CHECK(net.calls == 6 + says);  // one of them is the attempt
    CHECK(log.count("predictions run eagerly: [record] a value cannot be read by the host") == int(says));
  }
}

TEST_CASE("a recorded forward pass keeps the table of rotary positions that it reads") {
  struct Turns : Module {
    Tensor forward(const Tensor& x) override { return rotary(x); }
    bool is_recordable() const override { return true; }
    Part<RotaryEmbedding> rotary{this, "rotary", 4};
  };
  Turns net;
  net.to(Device::cuda);
  ForwardRecorder recorder = recorder_of(net);
  const NoGrad off;
  const Tensor brief = ones({3, 4}), lengthy = ones({50, 4});
  const std::string want = bytes(recorder(brief));
  for (int i = 0; i < 2; ++i) CHECK(bytes(recorder(brief)) == want);
  recorder(lengthy);
  Tensors filler;  // takes memory that was freed
  for (int i = 0; i < 8; ++i) filler.push_back(full({3, 2}, 9, {.device = Device::cuda}));
  CHECK(bytes(recorder(brief)) == want);
  CHECK(recorder.recordings() == 1);
}

TEST_CASE("recordings make room for a call that needs their memory") {
  struct Products : Module {
    Tensor forward(const Tensor& x) override { return x * 2 * 3; }
    bool is_recordable() const override { return true; }
  };
  auto* const reporter = dynamic_cast<MemoryReporter*>(&backend_for(Device::cuda));
  REQUIRE(reporter);
  if (reporter->available_memory() > size_t(2) << 30) return;  // a real device takes long to fill, and others may be using it
  constexpr int64_t kCount = 2700000;                          // blocks of this size have segments of their own
  Products net;
  const NoGrad off;
  ForwardRecorder recorder = recorder_of(net);
  const Tensor x = ones({kCount});
  for (int i = 0; i < 2; ++i) recorder(x);
  REQUIRE(recorder.recordings() == 1);
  Tensors filler;
  for (const int64_t size : {int64_t(8) << 20, int64_t(1) << 18}) {
    try {
      for (;;) filler.push_back(Tensor::empty({size}, {.device = Device::cuda}));
    } catch (const MemoryError&) {}
  }
  CHECK(recorder(ones({kCount + 1}))[kCount].item<float>() == 6);
  CHECK(recorder.recordings() == 0);
}

// Neither waits for the other for ever.
TEST_CASE("a weight may be cast by one thread while another records its use") {
  const NoGrad off;
  const TensorOptions half{.dtype = DType::bf16, .device = Device::cuda};
  const Tensor x = ones({4, 4}, half), other = ones({4, 4}, {.device = Device::cuda}).set_requires_grad();
  const Tensor weight = full({4, 4}, 3.0, {.device = Device::cuda}).set_requires_grad();
  const auto product = [&](const Tensor& w) {
    const Autocast region(Device::cuda, DType::bf16);
    return mm(x, w);
  };
  product(other);  // makes a library's preparations
  Backend& backend = backend_for(Device::cuda);
  backend.begin_recording(default_generator());
  std::thread thread([&] {
    const NoGrad quiet;
    product(weight);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // until it waits for the device
  const Tensor here = product(weight);
  const std::unique_ptr<Recording> recording = backend.end_recording();
  thread.join();
  recording->replay();
  CHECK(here.sum().item<float>() == 16 * 12);
}

TEST_CASE("the planned peak of recorded steps counts the recording's copy of the batch") {
  const auto beyond_plan = [](GraphMode mode) {
    app::BenchOptions options;
    options.device = Device::cuda;
    options.batch = 512, options.width = 64, options.batches = 3, options.epochs = 4;
    options.arms = {app::Precision::float32};
    options.graph = mode;
    const std::vector<app::BenchArm> arms = app::bench_mlp(options, {});
    REQUIRE(arms.size() == 1);
    CHECK(arms[0].recorded == (mode == GraphMode::on));
    return int64_t(arms[0].peak_bytes) - int64_t(arms[0].planned_peak_bytes);
  };
  const int64_t batch = 2 * 512 * 64 * 4;
  CHECK(std::abs(beyond_plan(GraphMode::on) - beyond_plan(GraphMode::off)) < batch / 4);
}
