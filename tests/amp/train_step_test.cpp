// SPDX-License-Identifier: Apache-2.0
#include "amp/step/train_step.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "framework/backend/backend.h"
#include "framework/backend/cpu/team.h"
#include "framework/tensor/memory.h"
#include "tests/amp/scaling.h"

using namespace halfstep;
using scaling::bytes;
using scaling::kInf;

namespace {

// A model, everything around it, and the step over it.
struct Bench {
  std::shared_ptr<Sequential> net;
  MSELoss loss;
  SGD opt;
  GradScaler scaler;
  StepLR schedule;
  TrainStep step;

  explicit Bench(const TrainStepOptions& options, bool scaled = false, double lr = 0.5)
      : net((manual_seed(23), scaling::model())),
        opt(net->parameters(), {.lr = lr, .momentum = 0.9}),
        scaler({.init_scale = 256, .enabled = scaled}),
        schedule(opt, 1, 0.5),
        step(*net, loss, opt, scaler, &schedule, options) {}
};

double difference(const Bench& a, const Bench& b) {
  double d = 0;
  for (size_t i = 0; i < a.net->parameters().size(); ++i)
    d = std::max(d, max((a.net->parameters()[i] - b.net->parameters()[i]).abs()).item<double>());
  return d;
}

}  // namespace

TEST_CASE("a train step is forward, backward, step and schedule") {
  Bench a({}), b({});
  const Tensor x = randn({8, 8}), y = randn({8, 8});
  const StepResult r = a.step(x, y);
  CHECK(r.stepped);
  CHECK(r.outcome.applied());
  CHECK(r.loss.shape() == Shape{});
  CHECK(!r.loss.requires_grad());
  CHECK(!r.output.requires_grad());
  CHECK(a.opt.lr() == 0.25);

  const Tensor output = (*b.net)(x), loss = b.loss(output, y);
  loss.backward();
  b.opt.step();
  CHECK(r.loss.item<float>() == loss.item<float>());
  CHECK(bytes(r.output) == bytes(output.detach()));
  CHECK(bytes(*a.net) == bytes(*b.net));
}

TEST_CASE("accumulation: micro-batches equal one batch, also when sizes differ or the window ends early") {
  const Tensor x = (manual_seed(4), randn({8, 8})), y = randn({8, 8});
  struct Plan {
    int64_t k;
    std::vector<int64_t> sizes;
  };
  for (const Plan& plan :
       {Plan{8, {1, 1, 1, 1, 1, 1, 1, 1}}, Plan{2, {4, 4}}, Plan{3, {3, 3, 2}}, Plan{4, {1, 4, 3}}, Plan{5, {8}}}) {
    for (const bool scaled : {false, true}) {
      CAPTURE(plan.k);
      Bench whole({.clip_grad_norm = 0.5}, scaled), parts({.clip_grad_norm = 0.5, .accumulate_steps = plan.k}, scaled);
      for (int round = 0; round < 3; ++round) {
        whole.step(x, y);
        int64_t at = 0;
        StepResult last;
        for (int64_t n : plan.sizes) {
          CHECK(!last.stepped);
          last = parts.step(x.narrow(0, at, n), y.narrow(0, at, n));
          at += n;
        }
        if (!last.stepped) {
          CHECK(parts.step.pending() == int64_t(plan.sizes.size()));
          last = parts.step.flush();
        }
        CHECK(last.stepped);
        CHECK(parts.step.pending() == 0);
        CHECK(!parts.step.flush().stepped);
      }
      CHECK(difference(whole, parts) < 2e-6);
      CHECK(parts.schedule.count() == 3);
    }
  }
}

TEST_CASE("a scaled step equals the unscaled one; an overflow skips parameters, state and schedule") {
  Bench plain({.clip_grad_norm = 0.3}), scaled({.clip_grad_norm = 0.3}, true);
  const Tensor x = (manual_seed(6), randn({8, 8})), y = randn({8, 8});
  for (int i = 0; i < 3; ++i) {
    plain.step(x, y);
    scaled.step(x, y);
  }
  CHECK(difference(plain, scaled) < 1e-7);

  const std::string before = bytes(*scaled.net) + bytes(scaled.opt);
  const double lr = scaled.opt.lr();
  const Tensor bad = x.clone();
  bad[0][0].fill_(kInf);
  const StepResult r = scaled.step(bad, y);
  CHECK(r.stepped);
  CHECK(r.outcome.overflow());
  CHECK(bytes(*scaled.net) + bytes(scaled.opt) == before);
  CHECK(scaled.opt.lr() == lr);
  CHECK(scaled.schedule.count() == 3);
  CHECK(scaled.scaler.get_scale() == 256);  // the loss was infinite too, which no scale mends
  CHECK(scaled.step(x, y).outcome.applied());
}

TEST_CASE("autocast covers forward and loss; outputs are low, the loss and gradients float32") {
  for (DType low : {DType::bf16, DType::f16}) {
    Bench a({.amp = low}, low == DType::f16, 0.05), plain({}, false, 0.05);
    const Tensor x = (manual_seed(8), randn({8, 8})), y = randn({8, 8});
    double first = 0, last = 0;
    for (int i = 0; i < 20; ++i) {
      a.schedule.set_count(0);
      const StepResult r = a.step(x, y);
      CHECK(r.output.dtype() == low);
      CHECK(r.loss.dtype() == DType::f32);
      last = r.loss.item<double>();
      if (i == 0) first = last;
    }
    for (const Tensor& p : a.net->parameters()) {
      CHECK(p.dtype() == DType::f32);
      CHECK(p.grad().dtype() == DType::f32);
    }
    CHECK(last < 0.9 * first);
    CHECK(std::abs(plain.step(x, y).loss.item<double>() - first) < 0.02 * first);
    const uint64_t casts = autocast::cast_count();
    a.step(x, y);
    CHECK(autocast::cast_count() - casts <= 6);  // activations and inputs; no weight
  }
}

TEST_CASE("a step that clips the norm gives it, of true gradients and before clipping; others give none") {
  Bench free({}), bound({.clip_grad_norm = 1e-3}), scaled({.clip_grad_norm = 1e-3, .accumulate_steps = 2}, true);
  const Tensor x = (manual_seed(6), randn({8, 8})), y = randn({8, 8});
  CHECK(!free.step(x, y).grad_norm.defined());
  double squares = 0;
  for (const Tensor& p : free.net->parameters()) squares += (p.grad() * p.grad()).sum().item<double>();
  CHECK(bound.step(x, y).grad_norm.item<double>() == doctest::Approx(std::sqrt(squares)).epsilon(1e-6));
  CHECK(!scaled.step(x, y).grad_norm.defined());  // its window is not complete
  CHECK(scaled.step(x, y).grad_norm.item<double>() == doctest::Approx(std::sqrt(squares)).epsilon(1e-6));
}

TEST_CASE("the norm that is only reported changes no bit, in 16 bits and under a scale, and is that of the true gradients") {
  const Tensor x = (manual_seed(6), randn({8, 8})), y = randn({8, 8});
  for (const std::optional<DType> amp : {std::optional<DType>(), std::optional(DType::bf16), std::optional(DType::f16)}) {
    for (const int64_t k : {1, 2}) {
      const auto run = [&](bool report) {
        Bench b({.amp = amp, .grad_norm = report, .accumulate_steps = k}, amp == DType::f16, 0.05);
        double norm = 0;
        for (int i = 0; i < 4; ++i) {
          const StepResult r = b.step(x, y);
          CHECK(r.grad_norm.defined() == (report && r.stepped));
          if (i != 1 || !report) continue;
          double squares = 0;
          for (const Tensor& p : b.net->parameters()) squares += (p.grad() * p.grad()).sum().item<double>();
          norm = std::sqrt(squares) / (amp == DType::f16 ? 256 : 1);
          CHECK(r.grad_norm.item<double>() == doctest::Approx(norm).epsilon(1e-5));
        }
        return bytes(*b.net) + bytes(b.opt);
      };
      CHECK(run(true) == run(false));
    }
  }
}

TEST_CASE("a small step runs on one thread, a large one on several") {
  set_num_threads(2);
  for (const int64_t width : {64, 512}) {
    for (const bool amp : {false, true}) {
      CAPTURE(width);
      CAPTURE(amp);
      const auto linear = [&] { return std::make_shared<Linear>(width, width); };
      Sequential net(linear(), std::make_shared<ReLU>(), linear(), std::make_shared<ReLU>(), linear());
      MSELoss loss;
      SGD opt(net.parameters(), {.lr = 0.1});
      GradScaler scaler({.enabled = false});
      TrainStep step(net, loss, opt, scaler, nullptr, {.amp = amp ? std::optional(DType::bf16) : std::nullopt});
      const Tensor x = randn({width, width}), y = randn({width, width});
      step(x, y);
      const int64_t before = cpu::teams_called();
      step(x, y);
      CHECK((cpu::teams_called() > before) == (width == 512));
    }
  }
  set_num_threads(0);
}

TEST_CASE("clip_grad_value bounds true gradients") {
  Bench a({.clip_grad_value = 1e-3}, true);
  a.step(randn({8, 8}), randn({8, 8}));
  for (const Tensor& p : a.net->parameters()) CHECK(p.grad().abs().max().item<double>() <= double(1e-3f));
}

TEST_CASE("train step options and losses are checked") {
  CHECK_THROWS_WITH_AS(Bench({.accumulate_steps = 0}), "[TrainStep] accumulate_steps must be >= 1, got 0", ValueError);
  CHECK_THROWS_WITH_AS(Bench({.clip_grad_norm = -1}), "[TrainStep] clip_grad_norm must be >= 0, got -1", ValueError);
  CHECK_THROWS_WITH_AS(Bench({.amp = DType::f32}),
                       "[TrainStep] amp must be float16 or bfloat16, got float32\nhelp: leave it out to compute in float32",
                       ValueError);
  Bench a({});
  const MSELoss none({.reduction = Reduction::none});
  TrainStep step(*a.net, none, a.opt, a.scaler, nullptr);
  CHECK_THROWS_WITH_AS(step(ones({2, 8}), ones({2, 8})),
                       "[TrainStep] the loss must be one number, got shape [2, 8]\nhelp: use the loss with reduction mean",
                       ShapeError);
}

TEST_CASE("a step in mixed precision needs no more memory than one in float32, and frees tensors that backward no longer needs") {
  const struct Threads {
    int saved = num_threads();
    Threads() { set_num_threads(2); }  // workspace is a thread's
    ~Threads() { set_num_threads(saved); }
  } two;
  const int64_t batch = 512, width = 2048;  // below that, the workspace of float16's products weighs more than its gradients save
  const Tensor x = randn({batch, width}), y = randn({batch, width});
  std::vector<size_t> peaks;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    Sequential net;
    for (int i = 0; i < 3; ++i) {
      net.push_back(std::make_shared<Linear>(width, width));
      if (i < 2) net.push_back(std::make_shared<ReLU>());
    }
    SGD opt(net.parameters(), {.lr = 1e-3});
    const MSELoss loss;
    GradScaler scaler({.enabled = dtype == DType::f16});
    TrainStep step(net, loss, opt, scaler, nullptr, {.amp = if_half(dtype)});
    step(x, y);
    Allocator& memory = allocator(Device::cpu);
    opt.zero_grad();
    memory.reset_peak();
    const size_t idle = memory.stats().live;
    step(x, y);
    peaks.push_back(memory.stats().peak);
    CAPTURE(name(dtype));
    const size_t weights = 3 * width * width * size_of(dtype), activation = batch * width * size_of(dtype);
    // All weight gradients at once, and at that moment: the output, one activation gradient, the lowered input, workspace.
    CHECK(peaks.back() - idle < weights + (dtype == DType::f32 ? 2 : 3) * activation + (size_t(10) << 18));
    for (const Tensor& p : net.parameters()) {
      CHECK(p.raw_grad().dtype() == dtype);
      CHECK(p.grad().dtype() == DType::f32);
    }
  }
  CHECK(peaks[1] <= peaks[0]);
  CHECK(peaks[2] <= peaks[0]);
}

TEST_CASE("gradients that are clipped or accumulated stay float32") {
  for (const TrainStepOptions& options :
       {TrainStepOptions{.amp = DType::bf16, .clip_grad_norm = 1}, TrainStepOptions{.amp = DType::bf16, .accumulate_steps = 2}}) {
    Bench a(options);
    for (int i = 0; i < 2; ++i) a.step(randn({8, 8}), randn({8, 8}));
    for (const Tensor& p : a.net->parameters()) CHECK(p.raw_grad().dtype() == DType::f32);
  }
}

TEST_CASE("running statistics move with applied steps only") {
  struct Nets {
    Sequential net{std::make_shared<Linear>(4, 3), std::make_shared<BatchNorm1d>(3), std::make_shared<Linear>(3, 2)};
    MSELoss loss;
    SGD opt{net.parameters(), {.lr = 0.01}};
    GradScaler scaler;
    TrainStep step;
    Nets(bool scaled, int64_t accumulate)
        : scaler({.init_scale = 256, .enabled = scaled}),
          step(net, loss, opt, scaler, nullptr, {.amp = DType::f16, .accumulate_steps = accumulate}) {}
    std::vector<std::string> statistics() const {
      std::vector<std::string> out;
      for (const NamedTensor& b : net.named_buffers()) out.push_back(bytes(b.tensor));
      return out;
    }
    int64_t batches() const { return net.named_buffers()[2].tensor.item<int64_t>(); }
  };
  manual_seed(31);
  const Tensor x = randn({8, 4}), y = randn({8, 2}), huge = x * 1e6;  // inf in float16
  for (const int64_t accumulate : {1, 2}) {
    CAPTURE(accumulate);
    Nets a(true, accumulate);
    const auto window = [&](const Tensor& last) {
      for (int64_t i = 1; i < accumulate; ++i) a.step(x, y);
      return a.step(last, y);
    };
    CHECK(window(x).outcome.applied());
    CHECK(a.batches() == accumulate);
    const auto before = a.statistics();
    CHECK(!window(huge).outcome.applied());
    CHECK(a.statistics() == before);
    CHECK(window(x).outcome.applied());
    CHECK(a.batches() == 2 * accumulate);
    CHECK(a.statistics() != before);
    CHECK(isfinite(a.net.named_buffers()[0].tensor).all().item<bool>());

    // A frozen layer's stay, and one that thaws moves again.
    a.net.children()[1]->eval();
    const auto frozen = a.statistics();
    window(x);
    CHECK(a.statistics() == frozen);
    a.net.train();
    window(x);
    CHECK(a.batches() == 3 * accumulate);
    const auto thawed = a.statistics();
    CHECK(!window(huge).outcome.applied());
    CHECK(a.statistics() == thawed);
  }
  Nets plain(false, 1);  // without a scaler every step is applied
  plain.step(x, y);
  CHECK(plain.batches() == 1);
}

TEST_CASE("micro-batches drop what the whole batch would, and nothing is drawn twice") {
  const auto run = [](int64_t parts, std::vector<float>* own) {
    manual_seed(3);
    Sequential net(std::make_shared<Linear>(6, 9), std::make_shared<Dropout>(0.5), std::make_shared<Tanh>(),
                   std::make_shared<Dropout>(0.2), std::make_shared<Linear>(9, 2));
    SGD opt(net.parameters(), {.lr = 0.1});
    GradScaler scaler({.enabled = false});
    const MSELoss loss;
    TrainStep step(net, loss, opt, scaler, nullptr, {.accumulate_steps = parts});
    Generator data(7);
    for (int i = 0; i < 5; ++i) {
      const Tensor x = randn({8, 6}, {}, &data), y = randn({8, 2}, {}, &data);
      for (int64_t p = 0; p < parts; ++p) {
        step(x.narrow(0, p * 8 / parts, 8 / parts), y.narrow(0, p * 8 / parts, 8 / parts));
        if (own) own->push_back(rand({1}).item<float>());  // the caller's own numbers, within windows
      }
    }
    return net.parameters()[0].detach().clone();
  };
  const Tensor whole = run(1, nullptr);
  for (const int64_t parts : {2, 4}) CHECK(max((run(parts, nullptr) - whole).abs()).item<double>() < 1e-6);
  std::vector<float> own;
  run(4, &own);
  std::sort(own.begin(), own.end());
  CHECK(std::adjacent_find(own.begin(), own.end()) == own.end());
}
