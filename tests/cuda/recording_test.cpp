// SPDX-License-Identifier: Apache-2.0
// Recorded training steps against eager ones: the same bits, whatever happens in between.
#include <doctest/doctest.h>

#include <functional>
#include <limits>

#include "framework/tensor/memory.h"
#include "tests/cuda/support.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Setup {
  DType low = DType::f16;  // f32: no autocast
  bool adam = true;
  double dropout = 0;
  bool norm = false;  // a BatchNorm1d at the end
  double clip = 0;
  int64_t accumulate = 1;
  bool schedule = true;
};

struct Trainer {
  std::shared_ptr<Sequential> net;
  CrossEntropyLoss loss;
  std::unique_ptr<Optimizer> opt;
  GradScaler scaler;
  CosineAnnealingLR schedule;
  TrainStep step;
  Tensors losses, outputs;

  static std::unique_ptr<Optimizer> optimizer(const Setup& s, const Module& net) {
    if (s.adam) return std::make_unique<AdamW>(net.parameters(), AdamWOptions{.lr = 0.01});
    return std::make_unique<SGD>(net.parameters(), SGDOptions{.lr = 0.1, .momentum = 0.9, .nesterov = true});
  }
  static std::shared_ptr<Sequential> model(const Setup& s) {
    const auto net = mlp_model(Device::cuda, s.dropout);
    const DefaultDevice on(Device::cuda);
    if (s.norm) net->push_back(std::make_shared<BatchNorm1d>(net->parameters().back().numel()));
    return net;
  }
  Trainer(const Setup& s, GraphMode mode)
      : net(model(s)),
        opt(optimizer(s, *net)),
        scaler({.init_scale = 65536, .growth_interval = 5, .enabled = s.low == DType::f16}),
        schedule(*opt, 40, 1e-4, 5),
        step(*net, loss, *opt, scaler, s.schedule ? &schedule : nullptr,
             {.device = Device::cuda,
              .amp = if_half(s.low),
              .clip_grad_norm = s.clip,
              .accumulate_steps = s.accumulate,
              .graph = mode}) {
    manual_seed(77);
  }
  void run(const Tensor& x, const Tensor& y) {
    const StepResult r = step(x, y);
    losses.push_back(r.loss);
    outputs.push_back(r.output.clone());
  }
  std::string state() {
    std::string out = bytes(*net) + bytes(*opt) + shadow_bytes(*net) + std::to_string(scaler.get_scale()) + " " +
                      std::to_string(scaler.get_growth_tracker()) + " " + std::to_string(schedule.count()) + " " +
                      std::to_string(opt->lr()) + " " + std::to_string(default_generator().state().offset);
    for (const Tensor& p : net->parameters()) out += p.grad().defined() ? bytes(p.grad()) : "none";
    for (const Tensor& t : losses) out += bytes(t);
    for (const Tensor& t : outputs) out += bytes(t);
    return out;
  }
};

using Script = std::function<void(Trainer&)>;

// Runs the script eagerly and recorded: the same state at the end. Returns whether steps were being replayed then.
bool same_as_eager(const Setup& setup, const Script& script) {
  Trainer eager(setup, GraphMode::off);
  script(eager);
  CHECK(!eager.step.is_recorded());
  const std::string want = eager.state();
  Trainer recorded(setup, GraphMode::on);
  script(recorded);
  const bool is_recorded = recorded.step.is_recorded();
  CHECK(recorded.state() == want);
  return is_recorded;
}

// Fifty steps over four batches, some with an input that is not finite.
void fifty_steps(Trainer& t) {
  const Batches batches(Device::cuda, 4);
  const Tensor bad = batches.inputs[2].clone();
  bad[3][1].fill_(kInfinity);
  for (size_t i = 0; i < 50; ++i) t.run(i % 13 == 7 ? bad : batches.inputs[i % 4], batches.targets[i % 4]);
}

}  // namespace

TEST_CASE("fifty recorded steps are the eager ones bit for bit, skipped ones included") {
  for (const bool adam : {true, false}) {
    for (const double clip : {0.0, 0.5}) {
      CAPTURE(adam);
      CAPTURE(clip);
      CHECK(same_as_eager({.adam = adam, .clip = clip}, fifty_steps));
    }
  }
}

TEST_CASE("recorded steps put the running statistics of skipped ones back") {
  CHECK(same_as_eager({.norm = true}, [](Trainer& t) {
    fifty_steps(t);
    const StateDict state = t.net->state_dict();
    CHECK(isfinite(state[state.size() - 3].tensor).all().item<bool>());
    CHECK(t.schedule.count() < 50);
    CHECK(state.back().tensor.item<int64_t>() == t.schedule.count());  // both count the applied steps
  }));
}

TEST_CASE("recorded steps without a scaler, with and without autocast") {
  for (const DType low : {DType::bf16, DType::f32}) {
    CAPTURE(name(low));
    CHECK(same_as_eager({.low = low, .adam = low == DType::f32, .clip = 0.5}, [](Trainer& t) {
      const Batches batches(Device::cuda, 4);
      for (size_t i = 0; i < 12; ++i) t.run(batches.inputs[i % 4], batches.targets[i % 4]);
    }));
  }
}

TEST_CASE("recorded dropout draws the numbers that eager steps would") {
  CHECK(same_as_eager({.dropout = 0.3}, fifty_steps));
  CHECK(same_as_eager({.dropout = 0.3}, [](Trainer& t) {
    const Batches batches(Device::cuda, 1);
    for (int i = 0; i < 24; ++i) {
      if (i == 9) rand({5}, {.device = Device::cuda});  // other draws in between
      if (i == 15) manual_seed(3);
      t.run(batches.inputs[0], batches.targets[0]);
    }
  }));
}

TEST_CASE("what happens between recorded steps counts") {
  const Batches batches(Device::cuda, 2), small(Device::cuda, 1, 5);
  const auto during = [&](const std::function<void(Trainer&, int)>& event) {
    return same_as_eager({}, [&](Trainer& t) {
      for (int i = 0; i < 20; ++i) {
        event(t, i);
        t.run(batches.inputs[size_t(i) % 2], batches.targets[size_t(i) % 2]);
      }
    });
  };
  SUBCASE("a batch of another size") {
    CHECK(during([&](Trainer& t, int i) {
      if (i % 7 == 6) t.run(small.inputs[0], small.targets[0]);
    }));
  }
  SUBCASE("the learning rate is set") {
    CHECK(same_as_eager({.schedule = false}, [&](Trainer& t) {
      for (int i = 0; i < 24; ++i) {
        if (i == 10) t.opt->set_lr(0.05, 0);
        t.run(batches.inputs[0], batches.targets[0]);
      }
      CHECK(t.opt->lr() == 0.05);
    }));
  }
  SUBCASE("rates and options are written into the groups") {
    CHECK(during([&](Trainer& t, int i) {
      for (ParamGroup& group : t.opt->param_groups()) {
        if (i == 7) group.lr = 0.05;
        if (i == 9) group.as<AdamWOptions>().betas[0] = 0.5;
        if (i == 12) group.weight_decay = 0.3;
      }
    }));
  }
  SUBCASE("the schedule is set back") {
    CHECK(during([&](Trainer& t, int i) {
      if (i == 12) t.schedule.set_count(2);
    }));
  }
  SUBCASE("the learning rate is asked for") {
    CHECK(during([&](Trainer& t, int i) {
      if (i % 5 == 1) CHECK(t.opt->lr() > 0);
    }));
  }
  SUBCASE("weights are written") {
    CHECK(during([&](Trainer& t, int i) {
      if (i != 10) return;
      const NoGrad off;
      t.net->parameters()[0].mul_(0.5);
    }));
  }
  SUBCASE("a layer is frozen") {
    CHECK(during([&](Trainer& t, int i) {
      if (i == 10) t.net->parameters()[1].set_requires_grad(false);
    }));
  }
  SUBCASE("evaluation") {
    CHECK(during([&](Trainer& t, int i) {
      if (i % 6 != 5) return;
      const NoGrad off;
      t.net->eval();
      t.losses.push_back((*t.net)(small.inputs[0]).sum());
      t.net->train();
    }));
  }
  SUBCASE("gradients are cleared") {
    CHECK(during([&](Trainer& t, int i) {
      if (i == 11) t.opt->zero_grad();
    }));
  }
  SUBCASE("the scale is set") {
    CHECK(during([&](Trainer& t, int i) {
      if (i == 11) t.scaler.update(128.0);
    }));
  }
  SUBCASE("the scaler's interval is set") {
    CHECK(during([&](Trainer& t, int i) {
      if (i == 11) t.scaler.set_growth_interval(2);
    }));
  }
  SUBCASE("weights and state are loaded") {
    CHECK(during([&](Trainer& t, int i) {
      if (i != 13) return;
      t.net->load_state_dict(mlp_model(Device::cpu)->state_dict());
      t.opt->load_state_dict(t.opt->state_dict());
      manual_seed(5);
    }));
  }
}

TEST_CASE("changes of layers between recorded steps count") {
  const Batches batches(Device::cuda, 2);
  const auto during = [&](const Setup& setup, const std::function<void(Trainer&, int)>& event) {
    return same_as_eager(setup, [&](Trainer& t) {
      for (int i = 0; i < 24; ++i) {
        event(t, i);
        t.run(batches.inputs[size_t(i) % 2], batches.targets[size_t(i) % 2]);
      }
    });
  };
  SUBCASE("a precision is given back") {
    CHECK(during({}, [](Trainer& t, int i) {
      if (i == 0) (*t.net)[0]->set_precision(DType::f32);
      if (i == 11) (*t.net)[0]->clear_precision();
    }));
  }
  SUBCASE("the share of new statistics") {
    CHECK(during({.low = DType::f32}, [](Trainer& t, int i) {
      const DefaultDevice on(Device::cuda);
      if (i == 0) t.net->push_back(std::make_shared<InstanceNorm1d>(16, InstanceNormOptions{.track_running_stats = true}));
      if (i == 11) dynamic_cast<InstanceNorm1d&>(*t.net->children().back()).set_momentum(0.7);
    }));
  }
  SUBCASE("a layer gives way to one with its place in memory") {
    CHECK(during({.dropout = 0.2}, [](Trainer& t, int i) {
      auto drop = (*t.net)[2];
      if (i == 0) drop = std::shared_ptr<Dropout>(new Dropout(0.2));  // whose memory is free as soon as it is gone
      if (i == 11) drop = nullptr, drop = std::shared_ptr<Dropout>(new Dropout(0.8));
    }));
  }
  SUBCASE("a layer gives way to another, and lives on") {
    std::shared_ptr<Module> former;
    CHECK(during({.dropout = 0.2}, [&](Trainer& t, int i) {
      auto drop = (*t.net)[2];
      if (i == 11) former = drop.ptr(), drop = Dropout(0.8);
    }));
  }
  SUBCASE("a layer is moved into another") {
    CHECK(during({.dropout = 0.2}, [](Trainer& t, int i) {
      if (i == 11) dynamic_cast<Dropout&>(*(*t.net)[2]) = Dropout(0.7);
    }));
  }
  SUBCASE("a buffer is replaced") {
    CHECK(during({.norm = true}, [](Trainer& t, int i) {
      if (i == 11) dynamic_cast<BatchNorm1d&>(*t.net->children().back()).running_mean = full({5}, 2.0, {.device = Device::cuda});
    }));
  }
  SUBCASE("a parameter gets a hook, and loses it") {
    for (const int last : {17, 24}) {
      uint64_t key = 0;
      int calls = 0;
      CHECK(during({.schedule = false}, [&](Trainer& t, int i) {
        const Tensor bias = t.net->parameters()[1];
        if (i == 11) key = bias.register_hook([&](const Tensor& g) { return ++calls, g * 0.5; });
        if (i == last) bias.remove_hook(key);
      }));
      CHECK(calls == 2 * (last - 11));
    }
  }
  SUBCASE("a parameter has a hook from the beginning") {
    int calls = 0;
    CHECK(!during({}, [&](Trainer& t, int i) {
      if (i == 0) t.net->parameters()[0].register_hook([&](const Tensor& g) { return ++calls, g; });
    }));
    CHECK(calls == 2 * 24);
  }
  SUBCASE("assignments of other modules leave the recording in place") {
    int recorded = 0;
    CHECK(during({}, [&](Trainer& t, int) {
      recorded += t.step.is_recorded();
      Linear other(2, 3);
      other = Linear(4, 5);
      other.weight = ones({5, 4});
    }));
    CHECK(recorded == 24 - StepRecorder::kWarmup - 1);
  }
}

// With GraphMode::automatic only layers are recorded that say that they can be.
TEST_CASE("a layer that may not be recorded takes the place of one that may") {
  struct Counted : Module {
    Tensor forward(const Tensor& x) override { return ++calls, relu(x); }
    int calls = 0;
  };
  const Batches batches(Device::cuda, 1);
  Trainer t({}, GraphMode::automatic);
  t.run(batches.inputs[0], batches.targets[0]);
  const auto counted = std::make_shared<Counted>();
  auto second = (*t.net)[1];
  second = counted;
  constexpr int kSteps = StepRecorder::kDecided + 3;
  for (int i = 0; i < kSteps; ++i) t.run(batches.inputs[0], batches.targets[0]);
  CHECK(counted->calls == kSteps);
}

TEST_CASE("accumulation runs eagerly") { CHECK(!same_as_eager({.accumulate = 2}, fifty_steps)); }

TEST_CASE("a replay reads nothing back, keeps earlier losses, and gives its memory back in the end") {
  const Batches batches(Device::cuda, 2);
  mm(batches.inputs[0], batches.inputs[0].t());  // the first product may take a workspace that stays
  const size_t before = allocator(Device::cuda).stats().live;
  {
    Trainer t({}, GraphMode::on);
    for (int i = 0; i < 6; ++i) t.run(batches.inputs[0], batches.targets[0]);
    REQUIRE(t.step.is_recorded());
    const uint64_t reads = host_reads();
    const Tensor first = t.step(batches.inputs[0], batches.targets[0]).loss;
    const StepResult last = t.step(batches.inputs[1], batches.targets[1]);
    CHECK(host_reads() == reads);
    CHECK(first.item<float>() != last.loss.item<float>());
    CHECK(last.outcome.applied());
    CHECK(last.output.shape() == Shape{16, 5});
    CHECK(t.losses[0].item<float>() > last.loss.item<float>());
  }
  CHECK(allocator(Device::cuda).stats().live == before);
}

TEST_CASE("an error in a step is thrown, recording or not, and later steps work") {
  const Batches batches(Device::cuda, 1);
  Trainer t({}, GraphMode::on);
  const auto run = [&](const Tensor& target) { t.step(batches.inputs[0], target); };
  const Tensor wrong = batches.targets[0].narrow(0, 0, 7);
  CHECK_THROWS_AS(run(wrong), ShapeError);
  for (int i = 0; i < StepRecorder::kWarmup; ++i) run(batches.targets[0]);
  CHECK_THROWS_AS(run(wrong), ShapeError);
  for (int i = 0; i < 6; ++i) run(batches.targets[0]);
  CHECK(t.step.is_recorded());
  CHECK_THROWS_AS(run(wrong), ShapeError);
  run(batches.targets[0]);
}

TEST_CASE("a bad target in a replay is reported by the next read") {
  const Batches batches(Device::cuda, 1);
  Trainer t({}, GraphMode::on);
  for (int i = 0; i < 6; ++i) t.run(batches.inputs[0], batches.targets[0]);
  REQUIRE(t.step.is_recorded());
  const Tensor bad = batches.targets[0].clone();
  bad[5].fill_(99);
  t.run(batches.inputs[0], bad);
  CHECK_THROWS_WITH_AS(t.losses.back().item<float>(), doctest::Contains("target 99 at position 5"), IndexError);
  t.run(batches.inputs[0], batches.targets[0]);
  CHECK(t.losses.back().item<float>() > 0);
}

// What a recording leaves behind or writes to may be replaced between steps: its memory must not be written any more.
TEST_CASE("copies and optimizer states that were replaced between recorded steps") {
  const Batches batches(Device::cuda, 1);
  const auto during = [&](const std::function<void(Trainer&, int, Tensors&)>& event) {
    return same_as_eager({.schedule = false}, [&](Trainer& t) {
      Tensors filler;  // takes memory that was freed
      for (int i = 0; i < 14; ++i) {
        event(t, i, filler);
        t.run(batches.inputs[0], batches.targets[0]);
      }
      t.outputs.insert(t.outputs.end(), filler.begin(), filler.end());
    });
  };
  SUBCASE("evaluation in another autocast dtype") {
    during([&](Trainer& t, int i, Tensors& filler) {
      if (i != 8 && i != 9) return;
      const NoGrad off;
      const Autocast region(Device::cuda, DType::bf16);
      filler.push_back((*t.net)(batches.inputs[0]).clone());
      for (int k = 0; i == 8 && k < 8; ++k) filler.push_back(full({24, 24}, 1, {.dtype = DType::f16, .device = Device::cuda}));
    });
  }
  SUBCASE("an optimizer state that is dropped") {
    during([&](Trainer& t, int i, Tensors& filler) {
      if (i != 8) return;
      t.opt->load_state_dict({});
      for (int k = 0; k < 40; ++k) filler.push_back(full({24, 24}, 1.0, {.device = Device::cuda}));
    });
  }
}

TEST_CASE("a batch of another size leaves the recording in place") {
  const Batches batches(Device::cuda, 1), small(Device::cuda, 1, 5);
  Trainer t({}, GraphMode::on);
  for (int i = 0; i < 8; ++i) {
    t.run(i == 5 ? small.inputs[0] : batches.inputs[0], i == 5 ? small.targets[0] : batches.targets[0]);
    CHECK(t.step.is_recorded() == (i >= StepRecorder::kWarmup));
  }
}
