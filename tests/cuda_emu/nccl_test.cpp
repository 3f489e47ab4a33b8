// Ranks that exchange memory of the device: threads that share the emulator's, on the library that stands in for NCCL.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <string>

#include "amp/train_step.h"
#include "framework/base/log.h"
#include "framework/comm/device_group.h"
#include "halfstep.h"
#include "tests/comm/local_ranks.h"
#include "tests/cuda/support.h"
#include "tests/cuda_emu/behaviour.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

DeviceGroups& groups() { return dynamic_cast<DeviceGroups&>(backend_for(Device::cuda)); }

// f(group) on each of so many ranks.
void on_gpus(int ranks, const std::function<void(ProcessGroup&)>& f, const GroupOptions& options = {}) {
  with_ranks(
      ranks, [&](std::unique_ptr<ProcessGroup> host) { f(*groups().open_group(std::move(host), options)); }, options);
}

// Numbers of a rank on the host: small whole ones, with a fraction that 16 bits still hold.
Tensor of_rank(int rank, int64_t n, DType dtype = DType::f32) {
  const Tensor t = empty({n});
  for (int64_t i = 0; i < n; ++i)
    t.data<float>()[i] = float((i * 79 + rank * 31) % 61) + (is_floating(dtype) ? 0.25f * float(rank) : 0);
  return t.to(dtype);
}
Tensor here(const Tensor& t) { return t.to(Device::cuda); }

std::string said(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) { return e.what(); }
  return "";
}
bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Ranks of different devices, as the real ones have.
struct OwnDevice : DeviceGroups {
  explicit OwnDevice(int rank) : rank(rank) {}
  std::string why_no_group() override { return groups().why_no_group(); }
  std::string device_identity() override { return std::to_string(rank); }
  std::unique_ptr<ProcessGroup> open_group(std::unique_ptr<ProcessGroup> host, const GroupOptions& options) override {
    return groups().open_group(std::move(host), options);
  }
  int rank;
};

std::string logged;
void keep_log(logging::Level, std::string_view message) { logged += message; }

}  // namespace

TEST_CASE("nccl: what there is") {
  const std::string why = groups().why_no_group();
  MESSAGE((why.empty() ? "NCCL is there" : "no NCCL: " + why));
  if (why.empty()) return;
  std::atomic<int> wrong{0};
  logged.clear();
  const logging::Capture capture(keep_log);
  with_ranks(2, [&](std::unique_ptr<ProcessGroup> host) {
    host = for_device(std::move(host), Device::cuda, "auto");
    wrong += host->describe() != "threads of a test";
    const std::string text = said([&] { for_device(std::move(host), Device::cuda, "nccl"); });
    wrong += !contains(text, "[distributed.backend] NCCL cannot be used: rank 0: ") || !contains(text, "; rank 1: ") ||
             !contains(text, "help: ");
  });
  with_ranks(2, [&](std::unique_ptr<ProcessGroup> host) {
    wrong += !contains(said([&] { groups().open_group(std::move(host), {}); }), "[distributed] NCCL 2 cannot be loaded: ");
  });
  CHECK(wrong == 0);
  CHECK(contains(logged, "gradients go over the host, without NCCL: rank 0: "));
}

TEST_CASE("nccl: two ranks get the bits of the host's group, in every dtype") {
  std::atomic<int> wrong{0};
  on_gpus(2, [&](ProcessGroup& group) {
    const int me = group.rank();
    for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i32, DType::i64, DType::u8}) {
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min}) {
        const Tensor a = of_rank(me, 301, dtype), b = of_rank(me + 2, 17, dtype), da = here(a), db = here(b);
        group.wait(group.all_reduce({a, b}, op));
        group.wait(group.all_reduce({da, db}, op));
        wrong += bytes(da) != bytes(a) || bytes(db) != bytes(b);
      }
      const Tensor parts = of_rank(me, 64, dtype), part = empty({32}, {.dtype = dtype}), all = empty({64}, {.dtype = dtype});
      const Tensor dparts = here(parts), dpart = here(part), dall = here(all);
      group.wait(group.reduce_scatter(parts, part));
      group.wait(group.reduce_scatter(dparts, dpart));
      wrong += bytes(dpart) != bytes(part);
      group.wait(group.all_gather(part, all));
      group.wait(group.all_gather(dpart, dall));
      wrong += bytes(dall) != bytes(all);
      const Tensor told = here(of_rank(me, 5, dtype)), too = here(of_rank(me + 1, 9, dtype));
      group.wait(group.broadcast({told, too}, 1));
      wrong += bytes(told) != bytes(of_rank(1, 5, dtype)) || bytes(too) != bytes(of_rank(2, 9, dtype));
    }
    const Tensor wire = of_rank(me, 33).add(0x1p-12), dwire = here(wire),
                 flags = here(full({3}, me == 1, {.dtype = DType::boolean}));
    group.wait(group.all_reduce({wire}, ReduceOp::sum, Wire::bf16));
    group.wait(group.all_reduce({dwire}, ReduceOp::sum, Wire::bf16));
    group.wait(group.all_reduce({flags}, ReduceOp::max));
    wrong += bytes(dwire) != bytes(wire) || flags.to_vector<double>() != std::vector<double>(3, 1);
    const Tensor bad = here(tensor({me == 1 ? INFINITY : 1.0, me == 0 ? NAN : 1.0}));
    group.wait(group.all_reduce({bad}));
    wrong += !std::isinf(bad.to_vector<double>()[0]) || !std::isnan(bad.to_vector<double>()[1]);
    wrong += group.gather(std::string(size_t(me), 'x')) != std::vector<std::string>{"", "x"};
    wrong += !contains(group.describe(), "NCCL 2.") || !contains(group.describe(), "threads of a test");
    group.close();
  });
  CHECK(wrong == 0);
}

TEST_CASE("nccl: three ranks add up, and operations end in the order in which they began") {
  std::atomic<int> wrong{0};
  on_gpus(3, [&](ProcessGroup& group) {
    const double me = group.rank();
    const Tensor a = here(full({100}, me)), b = here(full({7}, 2 * me)), c = full({5}, me);
    const Ticket first = group.all_reduce({a});
    group.all_reduce({c});  // of the host
    const Ticket last = group.all_reduce({b});
    group.wait(last);
    group.wait(first);
    wrong += a.to_vector<double>() != std::vector<double>(100, 3) || b.to_vector<double>() != std::vector<double>(7, 6) ||
             c.to_vector<double>() != std::vector<double>(5, 3);
    group.wait(group.barrier());
    group.close();
  });
  CHECK(wrong == 0);
}

TEST_CASE("nccl: what is queued before an operation is sent, and what is queued after its wait sees the sum") {
  std::atomic<int> wrong{0};
  on_gpus(2, [&](ProcessGroup& group) {
    for (int turn = 0; turn < 20; ++turn) {
      const Tensor gradient = here(zeros({256})), other = here(ones({256}));
      gradient.add_(double(group.rank() + 1)).mul_(3);  // queued, not done
      const Ticket sum = group.all_reduce({gradient});
      other.mul_(double(turn));  // beside it
      group.wait(sum);
      const Tensor read = gradient * 2.0 + other;
      wrong += read.to_vector<double>() != std::vector<double>(256, 18 + turn);
      // Memory of a tensor that only the group still has is not given to the next one.
      Tensor gone = here(full({256}, group.rank() + 5));
      const Tensor all = here(zeros({512}));
      const Ticket gathered = group.all_gather(gone, all);
      gone = Tensor();
      const Tensor next = here(full({256}, -1));
      wrong += next.to_vector<double>()[0] != -1;  // it is written before the ranks have sent theirs
      group.wait(gathered);
      wrong += all.to_vector<double>()[0] != 5 || all.to_vector<double>()[511] != 6;
    }
    group.close();
  });
  CHECK(wrong == 0);
}

TEST_CASE("nccl: what cannot be exchanged is refused, and a recording is") {
  on_gpus(2, [](ProcessGroup& group) {
    if (group.rank() == 1) return;
    const Tensor t = here(zeros({4, 4}));
    CHECK_THROWS_WITH_AS(group.all_reduce({}), doctest::Contains("there must be a tensor"), ValueError);
    CHECK_THROWS_WITH_AS(group.all_reduce({t.t().detach()}), doctest::Contains("must be contiguous"), ValueError);
    CHECK_THROWS_WITH_AS(group.all_reduce({t, zeros({2})}), doctest::Contains("must be on one device"), ValueError);
    CHECK_THROWS_WITH_AS(group.all_reduce({t, t.to(DType::f64)}), doctest::Contains("one dtype"), DTypeError);
    CHECK_THROWS_WITH_AS(group.all_reduce({t.to(DType::i16)}), doctest::Contains("NCCL does not add int16"), DTypeError);
    CHECK_THROWS_WITH_AS(group.all_gather(t, t), doctest::Contains("`to` must be 2 times `from`"), ShapeError);
    CHECK_THROWS_WITH_AS(group.broadcast({t}, 2), doctest::Contains("root must be a rank below 2, got 2"), ValueError);
    Backend& backend = backend_for(Device::cuda);
    backend.begin_recording(default_generator(), {});
    CHECK_THROWS_WITH_AS(group.all_reduce({t}), doctest::Contains("exchanges between ranks cannot be recorded"), RecordingError);
    backend.abandon_recording();
  });
}

TEST_CASE("nccl: a rank that does not come is named when the time is over, and nothing goes on") {
  std::string first, again, later;
  const auto start = std::chrono::steady_clock::now();
  on_gpus(2,
          [&](ProcessGroup& group) {
            if (group.rank() == 1) return;
            const Tensor t = here(ones({8}));
            const Ticket sum = group.all_reduce({t});
            first = said([&] { group.wait(sum); });
            again = said([&] { group.wait(sum); });
            later = said([&] { group.barrier(); });
          },
          {.timeout_s = 0.3});
  CHECK_MESSAGE(contains(first, "[distributed] all_reduce over NCCL on rank 0 did not end within 0.3 s: rank 1 does not answer"),
                first);
  CHECK(contains(first, "--resume auto"));
  CHECK(again == first);
  CHECK(later == first);
  CHECK(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < 0.3 + 2);
}

TEST_CASE("nccl: an error that the library reports ends the wait") {
  const Behaviour failing("HALFSTEP_FAKE_NCCL_ERROR", "0");
  std::string text;
  on_gpus(2,
          [&](ProcessGroup& group) {
            const Tensor t = here(ones({8}));
            const std::string mine = said([&] { group.wait(group.all_reduce({t})); });
            if (group.rank() == 0) text = mine;
          },
          {.timeout_s = 0.3});
  CHECK_MESSAGE(
      contains(text, "[distributed] all_reduce over NCCL on rank 0 failed (remote process exited or there was a network error): "),
      text);
}

TEST_CASE("nccl: the group of a config is the device's where every rank has one") {
  std::atomic<int> wrong{0};
  logged.clear();
  const logging::Capture capture(keep_log);
  for (const char* backend : {"auto", "nccl", "mpi"}) {
    with_ranks(2, [&](std::unique_ptr<ProcessGroup> host) {
      OwnDevice mine(host->rank());
      const auto group = for_device(std::move(host), &mine, backend);
      wrong += contains(group->describe(), "NCCL") != (std::string(backend) != "mpi");
      const Tensor t = here(full({9}, group->rank() + 1));
      group->wait(group->all_reduce({t}));
      wrong += t.to_vector<double>() != std::vector<double>(9, 3);
      group->close();
    });
  }
  CHECK(wrong == 0);
  CHECK(logged.empty());
  // These two have one device between them.
  with_ranks(2, [&](std::unique_ptr<ProcessGroup> host) {
    host = for_device(std::move(host), Device::cuda, "auto");
    wrong += host->describe() != "threads of a test";
    wrong += !contains(said([&] { for_device(std::move(host), Device::cuda, "nccl"); }),
                       "[distributed.backend] NCCL cannot be used: ranks 0 and 1 share a GPU");
  });
  with_ranks(2, [&](std::unique_ptr<ProcessGroup> host) {
    host = for_device(std::move(host), Device::cpu, "auto");
    wrong += !contains(said([&] { for_device(std::move(host), Device::cpu, "nccl"); }), "but the ranks compute on the cpu");
  });
  CHECK(wrong == 0);
  CHECK(contains(logged, "[distributed] gradients go over the host, without NCCL: ranks 0 and 1 share a GPU"));
}

TEST_CASE("nccl: training on two ranks has the bits of one that accumulates two micro-batches") {
  struct Arm {
    DType dtype;
    bool amp, scales;
    double clip;
  };
  for (const Arm arm : {Arm{DType::f32, false, false, 0}, Arm{DType::bf16, true, false, 0.1}, Arm{DType::f16, true, true, 0}}) {
    CAPTURE(name(arm.dtype));
    const Batches batches(Device::cuda, 6);
    const auto options = [&](int64_t accumulate, ProcessGroup* group) {
      return TrainStepOptions{.device = Device::cuda,
                              .amp = arm.amp,
                              .dtype = arm.dtype,
                              .clip_grad_norm = arm.clip,
                              .accumulate_steps = accumulate,
                              .group = group,
                              .reducer = {.first_bucket_mb = 0.0005, .bucket_mb = 0.001}};
    };
    struct Run {
      std::shared_ptr<Sequential> net = mlp_model(Device::cuda);
      CrossEntropyLoss loss;
      AdamW optimizer{net->parameters(), {.lr = 1e-2}};
      GradScaler scaler;
      explicit Run(bool scales) : scaler({.init_scale = 0x1p24, .enabled = scales}) {}
    };
    Run one(arm.scales);
    {
      TrainStep step(*one.net, one.loss, one.optimizer, one.scaler, nullptr, options(2, nullptr));
      for (size_t i = 0; i < batches.inputs.size(); ++i) {
        for (int r = 0; r < 2; ++r) step(batches.inputs[i].narrow(0, 8 * r, 8), batches.targets[i].narrow(0, 8 * r, 8));
      }
    }
    Run a(arm.scales), b(arm.scales);
    on_gpus(2, [&](ProcessGroup& group) {
      const int64_t r = group.rank();
      Run& mine = r == 0 ? a : b;
      TrainStep step(*mine.net, mine.loss, mine.optimizer, mine.scaler, nullptr, options(1, &group));
      for (size_t i = 0; i < batches.inputs.size(); ++i)
        step(batches.inputs[i].narrow(0, 8 * r, 8), batches.targets[i].narrow(0, 8 * r, 8), BatchRows{8 * r, 8, 16});
      group.close();
    });
    for (Run* run : {&a, &b}) {
      CHECK(bytes(*run->net) == bytes(*one.net));
      CHECK(bytes(run->optimizer) == bytes(one.optimizer));
      CHECK(run->scaler.get_scale() == one.scaler.get_scale());
    }
    CHECK(bytes(*one.net) != bytes(*Run(false).net));
    if (arm.scales) CHECK(one.scaler.get_scale() < 0x1p24);  // steps were skipped, on both alike
  }
}
