// SPDX-License-Identifier: Apache-2.0
// What a call of a trained model costs: no graph, no cast of a weight, no random number, and no fresh memory. The same on a GPU:
// tests/cuda/predictor_test.cpp.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <new>
#include <thread>
#include <vector>

#include "amp/autocast/autocast.h"
#include "framework/backend/op_log.h"
#include "framework/base/sanitizers.h"
#include "framework/tensor/memory.h"
#include "tests/apps/small_models.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

// The largest block that this thread took by `new`; sanitizers bring operators of their own.
#if !defined(HALFSTEP_ADDRESS_SANITIZER) && !defined(HALFSTEP_THREAD_SANITIZER)
#define HALFSTEP_COUNTS_NEW 1
static thread_local size_t largest_new = 0;
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (bytes > largest_new) largest_new = bytes;
  if (void* const p = std::malloc(bytes > 0 ? bytes : 1)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }
#endif

namespace {

void train_small(const TempDir& dir, const SmallModel& small, bool amp, int seed = 3) {
  write(dir / "run.json", config_of(small, amp, seed));
  const Ran trained = run(dir, "train run.json --quiet");
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
}

std::vector<float> numbers_of(const Tensor& y) { return y.to_vector<float>(); }

// The 16-bit copies of the model's weights: where they lie.
std::vector<void*> copies_in(const Predictor& model) {
  std::vector<void*> out;
  for (const Tensor& p : model.parts().model->parameters()) {
    const Tensor low = autocast::shadow_of(p);
    out.push_back(low.defined() ? low.data_ptr() : nullptr);
  }
  return out;
}

size_t live_gradients() { return allocator(Device::cpu).stats().live_by_tag[size_t(MemoryTag::gradients)]; }

}  // namespace

TEST_CASE("a call takes no memory that the call before it has not given back") {
  for (const SmallModel& small : kSmallModels) {
    for (const bool amp : {false, true}) {
      const TempDir dir;
      train_small(dir, small, amp);
      const Predictor model(dir / "out");
      for (const int64_t count : {1, 128}) {
        CAPTURE(std::string(small.name));
        CAPTURE(amp);
        CAPTURE(count);
        const Tensor x = inputs_for(model, count);
        const std::vector<float> first = numbers_of(model(x));
        model(x);  // the first call keeps what it makes of the weights, perhaps in blocks that the second one needs
        Allocator& memory = allocator(Device::cpu);
        const MemoryStats before = memory.stats();
        const std::vector<void*> copies = copies_in(model);
        const size_t gradients = live_gradients();
        memory.reset_peak();
#ifdef HALFSTEP_COUNTS_NEW
        largest_new = 0;
#endif
        for (int call = 2; call <= 10; ++call) {
          const Tensor y = model(x);
          CHECK(!y.requires_grad());
#ifdef HALFSTEP_COUNTS_NEW
          CHECK(largest_new < 8192);  // rows that a kernel works on, but no tensor of 128 samples
#endif
          CHECK(numbers_of(y) == first);
#ifdef HALFSTEP_COUNTS_NEW
          largest_new = 0;
#endif
        }
        const MemoryStats after = memory.stats();
        CHECK(after.allocations > before.allocations);  // it does serve the calls
        CHECK(after.reserved == before.reserved);
        CHECK(after.live == before.live);
        CHECK(after.peak_by_tag[size_t(MemoryTag::gradients)] == gradients);
        CHECK(copies_in(model) == copies);
        CHECK((std::count(copies.begin(), copies.end(), nullptr) < int64_t(copies.size())) == amp);
      }
    }
  }
}

TEST_CASE("a call casts no weight, drops nothing, saves nothing for a backward, and draws no random number") {
  constexpr int64_t kCount = 7;  // divides the number of elements of what depends on the inputs, and of no weight
  for (const SmallModel& small : kSmallModels) {
    CAPTURE(std::string(small.name));
    const TempDir dir;
    train_small(dir, small, true);
    const Predictor model(dir / "out");
    for (const Tensor& p : model.parts().model->parameters()) CHECK(p.numel() % kCount != 0);
    const Tensor x = inputs_for(model, kCount);
    model(x);
    const Generator::State drawn = default_generator().state();
    const OpLogScope log(Device::cpu);
    model(x);
    int copies_used = 0;
    for (const LoggedCall& call : log.calls()) {
      CHECK(call.op.find("dropout") == std::string::npos);
      CHECK(call.saved.empty());
      for (const LoggedCast& cast : call.casts) {
        copies_used += cast.shadow;
        CHECK((cast.shadow || cast.elements % kCount == 0));
      }
    }
    CHECK(log.calls().size() > 2);
    CHECK(copies_used >= 2);
    CHECK(default_generator().state() == drawn);
  }
}

TEST_CASE("a batch normalisation is computed with the convolution before it") {
  const TempDir dir;
  train_small(dir, kSmallModels[1], false);
  const Predictor model(dir / "out");
  const Tensor x = inputs_for(model, 5);
  const auto normalisations = [](const auto& forward) {
    const OpLogScope log(Device::cpu);
    forward();
    const auto calls = log.calls();
    return std::count_if(calls.begin(), calls.end(), [](const LoggedCall& call) { return call.op == "batch_norm"; });
  };
  Tensor folded, layers;
  CHECK(normalisations([&] { folded = model(x); }) == 0);
  CHECK(normalisations([&] {
          const NoGrad off;
          layers = (*model.parts().model)(x);
        }) == 1);
  CHECK((abs(folded - layers) / (abs(layers) + 1)).max().item<float>() < 1e-5f);
}

TEST_CASE("weights that were frozen have 16-bit copies, too") {
  const TempDir dir;
  train_small(dir, {"frozen", "[6]", R"({"type": "Linear", "out_features": 8, "freeze": true}, "ReLU")"}, true);
  const Predictor model(dir / "out");
  const Tensor x = inputs_for(model, 3);
  model(x);
  const Tensor frozen = model.parts().model->parameters()[0];
  REQUIRE(frozen.shape() == Shape{8, 6});
  CHECK(autocast::shadow_of(frozen).defined());
}

TEST_CASE("a run is opened while its training replaces the checkpoint that was found") {
  const TempDir dir;
  train_small(dir, kSmallModels[0], false);
  const std::filesystem::path folder = dir / "out";
  const StoredModel stored = load_model(folder);
  std::filesystem::remove(folder / "best");
  std::atomic<bool> stop = false;
  std::thread training([&] {
    for (int64_t step = stored_step(stored.contents) + 1; !stop; ++step) {
      save_checkpoint(folder, step, stored.contents, 1);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // of training
    }
  });
  for (int k = 0; k < 100; ++k) CHECK_NOTHROW((void)load_model(folder));
  stop = true;
  training.join();
}

TEST_CASE("other weights are seen by the next call") {
  for (const SmallModel& small : kSmallModels) {
    for (const bool amp : {false, true}) {
      CAPTURE(std::string(small.name));
      CAPTURE(amp);
      const TempDir one, other;
      train_small(one, small, amp);
      train_small(other, small, amp, 4);
      const Predictor model(one / "out"), wanted(other / "out");
      const Tensor x = inputs_for(model, 5);
      CHECK(numbers_of(model(x)) != numbers_of(wanted(x)));
      model.parts().model->load_state_dict(wanted.parts().model->state_dict());
      CHECK(numbers_of(model(x)) == numbers_of(wanted(x)));
    }
  }
}

TEST_CASE("threads that share a model get what one alone gets") {
  for (const SmallModel& small : kSmallModels) {
    CAPTURE(std::string(small.name));
    const TempDir dir;
    train_small(dir, small, true);
    const Predictor model(dir / "out"), alone(dir / "out");
    constexpr int64_t kThreads = 4;
    std::vector<std::vector<float>> want, got(kThreads);
    for (int64_t i = 0; i < kThreads; ++i) want.push_back(numbers_of(alone(inputs_for(alone, i + 1))));
    const auto round = [&] {
      std::vector<std::thread> threads;
      for (int64_t i = 0; i < kThreads; ++i) {
        threads.emplace_back([&, i] {
          const Tensor x = inputs_for(model, i + 1);
          for (int k = 0; k < 5; ++k) got[size_t(i)] = numbers_of(model(x));
        });
      }
      for (std::thread& t : threads) t.join();
      CHECK(got == want);
    };
    for (int k = 0; k < 3; ++k) round();
  }
}
