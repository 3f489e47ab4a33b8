// SPDX-License-Identifier: Apache-2.0
// Recorded steps of ranks that exchange over NCCL: graphs with collectives in them.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "amp/step/train_step.h"
#include "framework/base/log.h"
#include "tests/cuda/support.h"
#include "tests/emulators/fake_nccl/rank_gpus.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

constexpr int64_t kRows = 8;  // of a rank

struct Setup {
  DType low = DType::f32;  // f32: no autocast
  double clip = 0;
  int ranks = 2;
  GraphMode graph = GraphMode::on;
  bool shards = false;  // ranks share the optimizer's states
};

// The model that a rank trains. Models are made one after the other, as they draw from the process's one generator.
std::mutex making;
template <class F>
auto alone(const F& f) {
  const std::lock_guard lock(making);
  return f();
}
struct Trainer {
  std::shared_ptr<Sequential> net = alone([] { return mlp_model(Device::cuda); });
  CrossEntropyLoss loss;
  AdamW opt{net->parameters(), {.lr = 0.01}};
  GradScaler scaler;
  CosineAnnealingLR schedule{opt, 40, 1e-4, 5};
  TrainStep step;
  std::vector<Tensor> losses;
  std::vector<bool> recorded;
  std::vector<uint32_t> notices;
  int ranks = 0;  // that share states

  Trainer(const Setup& s, ProcessGroup* group, const Loss* other = nullptr)
      : scaler({.init_scale = 0x1p20, .growth_interval = 5, .enabled = s.low == DType::f16}),
        step(*net, other ? *other : loss, opt, scaler, &schedule,
             {.device = Device::cuda,
              .amp = if_half(s.low),
              .clip_grad_norm = s.clip,
              .accumulate_steps = group ? 1 : s.ranks,
              .graph = s.graph,
              .group = group,
              .reducer = {.first_bucket_mb = 0.0005, .bucket_mb = 0.001}}) {
    if (group && s.shards) opt.shard(*group, {.stage_mb = 0.0005}), ranks = group->size();
  }

  // This rank's rows of a batch.
  void run(const Tensor& x, const Tensor& y, ProcessGroup& group, int64_t rows = kRows) {
    const int64_t first = rows * group.rank();
    const StepResult r = step(x.narrow(0, first, rows), y.narrow(0, first, rows), BatchRows{first, rows, rows * group.size()});
    losses.push_back(r.loss);
    recorded.push_back(step.is_recorded());
    notices.push_back(step.notices());
  }
  // All ranks call it together.
  std::string state() {
    std::string states = opt.is_sharded() ? "" : bytes(opt);
    for (int r = 0; r < ranks; ++r) {  // each gets them whole
      for (const auto& [name, t] : opt.gathered_state_dict(r)) states += name + ":" + bytes(t) + ";";
    }
    std::string out = bytes(*net) + states + std::to_string(scaler.get_scale()) + " " + std::to_string(schedule.count());
    for (const Tensor& p : net->parameters()) out += p.grad().defined() ? bytes(p.grad()) : "none";
    return out;
  }
};

struct Data {
  Batches batches;
  Tensor bad;
  explicit Data(int ranks)
      : batches(alone([&] { return Batches(Device::cuda, 4, kRows * ranks); })), bad(batches.inputs[2].clone()) {
    bad.narrow(0, kRows, kRows).fill_(std::numeric_limits<double>::infinity());  // of rank 1 alone
  }
};

struct Ended {
  std::string state;
  std::vector<float> losses;
  std::vector<bool> recorded;
  std::vector<uint32_t> notices;
};

using Script = std::function<void(Trainer&, Data&, ProcessGroup&)>;

// Of each rank.
std::vector<Ended> trained(const Setup& s, const Script& script, const GroupOptions& options = {.timeout_s = 20}) {
  const RankGpus gpus;
  std::vector<Ended> out(size_t(s.ranks));
  on_gpus(
      s.ranks,
      [&](ProcessGroup& group) {
        Data data(s.ranks);
        Trainer t(s, &group);
        group.wait(group.barrier());  // from here on nobody draws
        script(t, data, group);
        Ended& mine = out[size_t(group.rank())];
        mine = {t.state(), {}, t.recorded, t.notices};
        for (const Tensor& l : t.losses) mine.losses.push_back(l.item<float>());
        group.close();  // before the recording goes
      },
      options);
  return out;
}

// 14 steps, of which two have an infinite input on rank 1, and one has fewer rows.
void steps(Trainer& t, Data& d, ProcessGroup& group) {
  for (size_t i = 0; i < 14; ++i) {
    if (i == 9) t.step.notify(group.rank() == 1 ? 4 : 1);
    const bool bad = t.scaler.is_enabled() && (i == 1 || i == 7);
    t.run(bad ? d.bad : d.batches.inputs[i % 4], d.batches.targets[i % 4], group, i == 10 ? 3 : kRows);
  }
}

std::string logged;
void keep_log(logging::Level, std::string_view message) { logged += message; }

}  // namespace

TEST_CASE("nccl: recorded steps of ranks are eager ones, and those of one that accumulates, to the bit") {
  for (const Setup& s : {Setup{}, Setup{.low = DType::bf16, .clip = 0.1, .ranks = 3}, Setup{.low = DType::f16},
                         Setup{.low = DType::bf16, .ranks = 3, .shards = true}, Setup{.low = DType::f16, .shards = true}}) {
    CAPTURE(name(s.low));
    CAPTURE(s.shards);
    Setup eager = s;
    eager.graph = GraphMode::off;
    const std::vector<Ended> want = trained(eager, steps), got = trained(s, steps);
    // One process, whose micro-batches are the parts of the ranks.
    Data d(s.ranks);
    Trainer one(eager, nullptr);
    for (size_t i = 0; i < 14; ++i) {
      const bool bad = s.low == DType::f16 && (i == 1 || i == 7);
      const int64_t rows = i == 10 ? 3 : kRows;
      for (int64_t r = 0; r < s.ranks; ++r)
        one.step((bad ? d.bad : d.batches.inputs[i % 4]).narrow(0, rows * r, rows),
                 d.batches.targets[i % 4].narrow(0, rows * r, rows));
    }
    for (size_t r = 0; r < got.size(); ++r) {
      CAPTURE(r);
      const auto plain = [&](const Ended& e) { return e.state == one.state(); };
      CHECK(plain(want[r]));
      CHECK(plain(got[r]));
      CHECK(std::equal(got[r].losses.begin(), got[r].losses.end(), want[r].losses.begin(),
                       [](float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }));
      std::vector<bool> recorded(14, true);
      for (int i = 0; i < StepRecorder::kWarmup; ++i) recorded[size_t(i)] = false;
      CHECK(got[r].recorded == recorded);
      CHECK(got[r].notices == want[r].notices);
      CHECK(got[r].notices[9] == 5);
      CHECK(got[r].notices[10] == 0);
    }
    if (s.low == DType::f16) CHECK(one.scaler.get_scale() < 0x1p20);
  }
}

TEST_CASE("nccl: ranks forget, record anew and run eagerly together, whichever of them has to") {
  const Script script = [](Trainer& t, Data& d, ProcessGroup& group) {
    const auto second = [&](const auto& does) {
      if (group.rank() == 1) does();
    };
    uint64_t hook = 0;
    for (size_t i = 0; i < 22; ++i) {
      const NoGrad off;
      if (i == 6) second([&] { t.net->parameters()[0].mul_(1.0); });  // its recording is no longer valid
      if (i == 12) second([&] { hook = t.net->register_forward_hook([](Module&, const Tensors&, const Tensors&) {}); });
      if (i == 13) second([&] { t.net->remove_hook(hook); });
      const EnableGrad on;
      const Tensor &x = d.batches.inputs[i % 4], &y = d.batches.targets[i % 4];
      if (i == 18) {                              // rows of another number on each rank, of as large a batch
        backend_for(Device::cuda).synchronize();  // products of a new size copy masks, which the emulator wants at once
        const int64_t first = group.rank() == 0 ? 0 : 9, rows = group.rank() == 0 ? 9 : 7;
        t.losses.push_back(t.step(x.narrow(0, first, rows), y.narrow(0, first, rows), BatchRows{first, rows, 16}).loss);
      } else {
        t.run(x, y, group);
      }
      t.recorded.push_back(t.losses.back().device().is_cuda());
    }
  };
  const auto recorded = [](Trainer& t) {
    std::string out;
    for (const Tensor& l : t.losses) out += l.device().is_cuda() ? 'R' : 'e';
    return out;
  };
  std::string ways[2];
  const std::vector<Ended> got = trained({}, [&](Trainer& t, Data& d, ProcessGroup& group) {
    script(t, d, group);
    ways[group.rank()] = recorded(t);
  });
  const std::vector<Ended> want = trained({.graph = GraphMode::off}, script);
  for (size_t r = 0; r < 2; ++r) {
    CHECK(ways[r] == "eeeRRReeeRRReeeeRReRRR");
    CHECK(got[r].state == want[r].state);
    CHECK(got[r].losses == want[r].losses);
  }
}

TEST_CASE("nccl: a step that one rank cannot record is recorded by none") {
  struct Reads : CrossEntropyLoss {
    Tensor operator()(const Tensor& x, const Tensor& y) const override {
      const Tensor loss = CrossEntropyLoss::operator()(x, y);
      if (reads) loss.item<float>();
      return loss;
    }
    bool reads = false;
  };
  logged.clear();
  const logging::Capture capture(keep_log);
  const RankGpus gpus;
  std::atomic<int> recorded{0};
  std::string states[2];
  on_gpus(2, [&](ProcessGroup& group) {
    Data d(2);
    Reads loss;
    loss.reads = group.rank() == 1;
    Trainer t({}, &group, &loss);
    group.wait(group.barrier());
    for (size_t i = 0; i < 6; ++i) {
      t.run(d.batches.inputs[i % 4], d.batches.targets[i % 4], group);
      recorded += t.step.is_recorded();
    }
    states[group.rank()] = t.state();
    group.close();
  });
  CHECK(recorded == 0);
  CHECK(states[0] == states[1]);
  CHECK_MESSAGE(contains(logged, "training steps run eagerly: rank 1: [record] a value cannot be read by the host"), logged);
  CHECK(logged.find("eagerly") == logged.rfind("eagerly"));
}

TEST_CASE("nccl: automatic: the times of the slowest rank decide for all") {
  for (const bool slow : {false, true}) {
    CAPTURE(slow);
    bool recorded[2] = {};
    trained({.graph = GraphMode::automatic}, [&](Trainer& t, Data& d, ProcessGroup& group) {
      const auto sleep = std::chrono::milliseconds(80);  // far more than a step, also on a busy machine
      for (int i = 0; i < StepRecorder::kDecided + 2; ++i) {
        // Eager steps take longer on both, or replays on rank 1 alone.
        const bool late = slow ? t.step.is_recorded() && group.rank() == 1 : !t.step.is_recorded();
        RankGpus::synchronizing() = late ? sleep : std::chrono::milliseconds(0);
        t.run(d.batches.inputs[size_t(i) % 4], d.batches.targets[size_t(i) % 4], group);
      }
      recorded[group.rank()] = t.step.is_recorded();
    });
    CHECK(recorded[0] == !slow);
    CHECK(recorded[1] == !slow);
  }
}

TEST_CASE("nccl: waiting for a replay whose other rank is gone throws, and nothing hangs") {
  for (const bool between : {true, false}) {
    CAPTURE(between);
    const RankGpus gpus;
    std::string text;
    const auto start = std::chrono::steady_clock::now();
    on_gpus(2,
            [&](ProcessGroup& group) {
              Data d(2);
              Trainer t({}, &group);
              group.wait(group.barrier());
              for (size_t i = 0; i < 5; ++i) t.run(d.batches.inputs[i % 4], d.batches.targets[i % 4], group);
              for (const Tensor& l : t.losses) l.item<float>();
              if (group.rank() == 1) {
                // It goes before the next step, or in it: what all agree on before it is all that it does.
                if (!between)
                  group.gather(std::vector<double>{3, double(kRows), 2 * kRows, 0, double(default_generator().state().offset)});
                return;
              }
              text = said([&] {
                t.run(d.batches.inputs[0], d.batches.targets[0], group);
                t.losses.back().item<float>();
              });
            },
            {.timeout_s = 0.3});
    const std::string what =
        between ? "[distributed] all_gather on rank 0 did not end within 0.3 s: rank 1 does not answer"
                : "[distributed] a recorded step over NCCL on rank 0 did not end within 0.3 s: rank 1 does not answer";
    CHECK_MESSAGE(contains(text, what), text);
    CHECK(contains(text, "--resume auto"));
    CHECK(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < 0.3 + 2);
  }
}

TEST_CASE("nccl: what was not waited for in a recording is refused, and the group continues") {
  const RankGpus gpus;
  std::atomic<int> wrong{0};
  on_gpus(2, [&](ProcessGroup& group) {
    Backend& backend = backend_for(Device::cuda);
    const Tensor t = ones({8}, {.device = Device::cuda});
    const Ticket before = group.all_reduce({t});
    backend.begin_recording(default_generator(), {});
    wrong += !contains(said([&] { group.wait(before); }), "an exchange that began before a recording cannot be waited for in it");
    backend.abandon_recording();
    group.wait(before);
    backend.begin_recording(default_generator(), {});
    const Ticket within = group.all_reduce({t});
    wrong += !contains(said([&] { backend.end_recording(); }), "cudaErrorStreamCaptureUnjoined");
    group.wait(within);  // there is nothing any more that could be waited for
    group.wait(group.all_reduce({t}));
    wrong += t.to_vector<double>() != std::vector<double>(8, 4);
    group.close();
  });
  CHECK(wrong == 0);
}

TEST_CASE("nccl: steps of ranks that exchange over the host are not recorded") {
  on_ranks(2, [](ProcessGroup& group) {
    if (group.rank() == 0)
      CHECK_THROWS_WITH_AS(Trainer({}, &group), doctest::Contains("ranks that exchange over the host are not recorded"),
                           ValueError);
  });
}
