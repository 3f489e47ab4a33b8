// SPDX-License-Identifier: Apache-2.0
// Ranks that exchange memory of the device: threads that share the emulator's, on the fake NCCL.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <string>

#include "amp/step/train_step.h"
#include "framework/base/log.h"
#include "framework/comm/device_group.h"
#include "halfstep.h"
#include "tests/cuda/support.h"
#include "tests/emulators/fake_nccl/rank_gpus.h"
#include "tests/emulators/source/behaviour.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

DeviceGroups& groups() { return dynamic_cast<DeviceGroups&>(backend_for(Device::cuda)); }

// Numbers of a rank on the host: small whole ones, with a fraction that 16 bits still hold.
Tensor of_rank(int rank, int64_t n, DType dtype = DType::f32) {
  const Tensor t = empty({n});
  for (int64_t i = 0; i < n; ++i)
    t.data_ptr<float>()[i] = float((i * 79 + rank * 31) % 61) + (is_floating(dtype) ? 0.25f * float(rank) : 0);
  return t.to(dtype);
}
// Whose sums are rounded, and depend on their order.
Tensor rough(int rank, int64_t n, DType dtype) {
  const Tensor t = empty({n}, {.dtype = DType::f64});
  for (int64_t i = 0; i < n; ++i)
    t.data_ptr<double>()[i] = std::sin(double(i) * 12.9898 + rank * 78.233) * std::exp2(double((i * 7 + rank * 5) % 9));
  return t.to(dtype);
}
Tensor here(const Tensor& t) { return t.to(Device::cuda); }

// Ranks of different devices, as the real ones have.
struct OwnDevice : DeviceGroups {
  explicit OwnDevice(int rank) : rank(rank) {}
  std::string why_no_group() override { return groups().why_no_group(); }
  std::string describe_library() override { return groups().describe_library(); }
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
      const Tensor theirs = here(of_rank(me, 5, dtype)), too = here(of_rank(me + 1, 9, dtype));
      group.wait(group.broadcast({theirs, too}, 1));
      wrong += bytes(theirs) != bytes(of_rank(1, 5, dtype)) || bytes(too) != bytes(of_rank(2, 9, dtype));
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

TEST_CASE("nccl: sums of three and four ranks are the host group's to the bit, whatever the library's are") {
  for (const int ranks : {3, 4}) {
    for (const bool library : {false, true}) {
      CAPTURE(ranks);
      CAPTURE(library);
      std::atomic<int> wrong{0}, others{0};
      // The stage takes 64 numbers of float32 of a rank, so that what is longer is summed piece by piece.
      const GroupOptions options{.library_sums = library, .stage_mb = 256.0 * ranks / (1 << 20)};
      on_gpus(
          ranks,
          [&](ProcessGroup& group) {
            const int me = group.rank();
            std::atomic<int>& differing = library ? others : wrong;
            for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
              // Parts that are equal and others, a last one that is empty, a list that is summed at once, and more than the stage
              // takes.
              for (const int64_t n : {int64_t(24 * ranks), int64_t(301), int64_t(5), int64_t(1)}) {
                const Tensor a = rough(me, n, dtype), b = rough(me + 7, 16, dtype), da = here(a), db = here(b);
                group.wait(group.all_reduce({a, b}));
                group.wait(group.all_reduce({da, db}));
                differing += bytes(da) != bytes(a) || bytes(db) != bytes(b);
              }
              for (const int64_t each : {int64_t(40), int64_t(99)}) {
                const Tensor parts = rough(me, each * ranks, dtype), part = empty({each}, {.dtype = dtype});
                const Tensor dparts = here(parts), dpart = here(part);
                group.wait(group.reduce_scatter(parts, part));
                group.wait(group.reduce_scatter(dparts, dpart));
                differing += bytes(dpart) != bytes(part);
              }
              const Tensor most = rough(me, 77, dtype), dmost = here(most), bits = of_rank(me, 9, DType::i32), dbits = here(bits);
              group.wait(group.all_reduce({most}, ReduceOp::max));
              group.wait(group.all_reduce({dmost}, ReduceOp::max));
              group.wait(group.all_reduce({bits}));
              group.wait(group.all_reduce({dbits}));
              wrong += bytes(dmost) != bytes(most) || bytes(dbits) != bytes(bits);
            }
            const Tensor wire = rough(me, 333, DType::f32), dwire = here(wire);
            group.wait(group.all_reduce({wire}, ReduceOp::sum, Wire::bf16));
            group.wait(group.all_reduce({dwire}, ReduceOp::sum, Wire::bf16));
            differing += bytes(dwire) != bytes(wire);
            group.close();
          },
          options);
      CHECK(wrong == 0);
      CHECK((others > 0) == library);  // so the numbers above distinguish the orders
    }
  }
}

TEST_CASE("nccl: three ranks add up, and operations end in the order in which they began") {
  std::atomic<int> wrong{0};
  on_gpus(3, [&](ProcessGroup& group) {
    const double me = group.rank();
    const Tensor a = here(full({100}, double(me))), b = here(full({7}, 2.0 * me)), c = full({5}, double(me));
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
      Tensor gone = here(full({256}, group.rank() + 5.0));
      const Tensor all = here(zeros({512}));
      const Ticket gathered = group.all_gather(gone, all);
      gone = Tensor();
      const Tensor next = here(full({256}, -1.0));
      wrong += next.to_vector<double>()[0] != -1;  // it is written before the ranks have sent theirs
      group.wait(gathered);
      wrong += all.to_vector<double>()[0] != 5 || all.to_vector<double>()[511] != 6;
    }
    group.close();
  });
  CHECK(wrong == 0);
}

TEST_CASE("nccl: what cannot be exchanged is refused") {
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
  });
}

TEST_CASE("nccl: a rank that does not come is named when the time is over, and nothing continues") {
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

TEST_CASE("nccl: only a remote error means that a rank is lost; others are faults of this machine, with the library's words") {
  struct Fault {
    int code;
    const char *words, *advice;
  };
  for (const Fault f : {Fault{1, "unhandled cuda error", "NCCL_P2P_DISABLE=1"}, Fault{2, "unhandled system error", "--shm-size"},
                        Fault{3, "internal error", "NCCL_DEBUG=WARN"}, Fault{4, "invalid argument", "NCCL_DEBUG=WARN"},
                        Fault{5, "invalid usage", "NCCL_DEBUG=WARN"}}) {
    CAPTURE(f.code);
    const Behaviour failing("HALFSTEP_FAKE_NCCL_ERROR", "0:" + std::to_string(f.code));
    std::string text, again;
    bool typed = false;
    on_gpus(2,
            [&](ProcessGroup& group) {
              const Tensor t = here(ones({8}));
              if (group.rank() == 1) return;
              try {
                group.wait(group.all_reduce({t}));
              } catch (const DeviceError& e) {
                typed = true;
                text = e.what();
              } catch (const Error& e) { text = e.what(); }
              again = said([&] { group.barrier(); });
            },
            {.timeout_s = 0.3});
    CHECK_MESSAGE(typed, text);
    CHECK_MESSAGE(contains(text, "[distributed] all_reduce over NCCL on rank 0 failed on this machine: " + std::string(f.words) +
                                     ": Call to posix_fallocate failed: No space left on device\nhelp: "),
                  text);
    CHECK_MESSAGE(contains(text, f.advice), text);
    CHECK(!contains(text, "late"));
    CHECK(again == text);
  }
}

TEST_CASE("nccl: a rank that cannot open its communicator says why") {
  const Behaviour failing("HALFSTEP_FAKE_NCCL_ERROR", "1:2:open");
  std::string text;
  with_ranks(
      2,
      [&](std::unique_ptr<ProcessGroup> host) {
        const int me = host->rank();
        const std::string mine = said([&] { groups().open_group(std::move(host), {.timeout_s = 0.3}); });
        if (me == 1) text = mine;
      },
      {.timeout_s = 0.3});
  CHECK_MESSAGE(contains(text, "[distributed] ncclCommInitRankConfig over NCCL on rank 1 failed on this machine: unhandled system"),
                text);
  CHECK(contains(text, "--shm-size"));
}

TEST_CASE("nccl: the group of a config is the device's where every rank has one") {
  std::atomic<int> wrong{0};
  logged.clear();
  const logging::Capture capture(keep_log);
  for (const char* backend : {"auto", "nccl", "host"}) {
    with_ranks(2, [&](std::unique_ptr<ProcessGroup> host) {
      OwnDevice mine(host->rank());
      const auto group = for_device(std::move(host), &mine, backend);
      wrong += contains(group->describe(), "NCCL") != (std::string(backend) != "host");
      const Tensor t = here(full({9}, group->rank() + 1.0));
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
    wrong += describe_library(*host, Device::cuda) != "no NCCL: ranks 0 and 1 share a GPU";
    wrong += groups().describe_library() != "NCCL 2.99.1";
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

TEST_CASE("nccl: training on ranks has the bits of one that accumulates as many micro-batches") {
  struct Arm {
    DType dtype;
    bool scales;
    double clip;
    int ranks;
  };
  for (const Arm arm :
       {Arm{DType::f32, false, 0, 2}, Arm{DType::f32, false, 0, 3}, Arm{DType::bf16, false, 0.1, 4}, Arm{DType::f16, true, 0, 3}}) {
    CAPTURE(name(arm.dtype));
    CAPTURE(arm.ranks);
    const Batches batches(Device::cuda, 6, 8 * arm.ranks);
    const auto options = [&](int64_t accumulate, ProcessGroup* group) {
      return TrainStepOptions{.device = Device::cuda,
                              .amp = if_half(arm.dtype),
                              .clip_grad_norm = arm.clip,
                              .accumulate_steps = accumulate,
                              .graph = GraphMode::off,
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
      TrainStep step(*one.net, one.loss, one.optimizer, one.scaler, nullptr, options(arm.ranks, nullptr));
      for (size_t i = 0; i < batches.inputs.size(); ++i) {
        for (int r = 0; r < arm.ranks; ++r) step(batches.inputs[i].narrow(0, 8 * r, 8), batches.targets[i].narrow(0, 8 * r, 8));
      }
    }
    std::vector<std::unique_ptr<Run>> runs;
    for (int r = 0; r < arm.ranks; ++r) runs.push_back(std::make_unique<Run>(arm.scales));
    on_gpus(arm.ranks, [&](ProcessGroup& group) {
      const int64_t r = group.rank();
      Run& mine = *runs[size_t(r)];
      TrainStep step(*mine.net, mine.loss, mine.optimizer, mine.scaler, nullptr, options(1, &group));
      for (size_t i = 0; i < batches.inputs.size(); ++i)
        step(batches.inputs[i].narrow(0, 8 * r, 8), batches.targets[i].narrow(0, 8 * r, 8), BatchRows{8 * r, 8, 8 * arm.ranks});
      group.close();
    });
    for (const auto& run : runs) {
      CHECK(bytes(*run->net) == bytes(*one.net));
      CHECK(bytes(run->optimizer) == bytes(one.optimizer));
      CHECK(run->scaler.get_scale() == one.scaler.get_scale());
    }
    CHECK(bytes(*one.net) != bytes(*Run(false).net));
    if (arm.scales) CHECK(one.scaler.get_scale() < 0x1p24);  // steps were skipped, on all alike
  }
}
