// SPDX-License-Identifier: Apache-2.0
// Infinities and NaN put into the outputs of the kernels of real models, one at a time: is the very kernel found, and is the state
// of a skipped step untouched?
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>

#include "amp/diagnosis/replay.h"
#include "apps/session/session.h"
#include "framework/autograd/grad_mode.h"
#include "framework/ops/ops.h"
#include "layers/sequences/recurrent.h"
#include "tests/support/source_dir.h"

using namespace halfstep;
using namespace halfstep::app;

namespace {

const char* const kRecipes[] = {"optdigits_mlp", "wine_regression", "mnist_lenet",      "mnist_resnet_small", "cifar10_conv",
                                "airline_lstm",  "char_lstm",       "char_transformer", "ctc_digits"};

const char* const kInFloat16 = R"(amp={"dtype":"float16","scaler":{"init_scale":256}})";

// HALFSTEP_INJECTIONS: how many for each recipe and value; every kernel has one if it is large.
int injections() {
  const char* const text = std::getenv("HALFSTEP_INJECTIONS");
  return text ? std::atoi(text) : 12;
}

struct Recipe {
  Session session;
  TrainStepOptions options;
  Batch batch;
  StepUnderTest step;

  explicit Recipe(const std::string& name)
      : Recipe(load_config(halfstep_source_dir() + "/configs/recipes/" + name + ".json",
                           {.sets = {kInFloat16, "data.loader.batch_size=4", "device=cpu"}})) {}

 private:
  explicit Recipe(const Config& config)
      : session(make_session(config)),
        options(step_options(config)),
        batch(*session.train->next()),
        step{.module = *session.model} {
    session.model->train();
    const auto loss = [this] { return (*session.loss)((*session.model)(batch.input), batch.target); };
    step.batches = {{loss, {batch.input}, {batch.target}}};
    step.low = DType::f16;
    step.scale = 256;
    step.random = default_generator().state();
    step.low_gradients = options.accumulate_steps == 1 && options.clip_grad_norm == 0;
  }
};

void put(const TensorView& v, double value) {
  dispatch(v.dtype, [&](auto tag) {
    using T = decltype(tag);
    if constexpr (std::is_class_v<T> || std::is_floating_point_v<T>) *v.as<T>() = T(float(value));
  });
}

uint64_t hash_of(Session& s) {
  uint64_t h = 1469598103934665603u;
  const auto mix = [&](const Tensor& t) {
    const Tensor dense = t.contiguous();
    const auto* p = static_cast<const uint8_t*>(dense.const_data_ptr());
    for (size_t i = 0; i < dense.nbytes(); ++i) h = (h ^ p[i]) * 1099511628211u;
  };
  for (const NamedTensor& t : s.model->state_dict()) mix(t.tensor);
  for (const auto& [name, t] : s.optimizer->state_dict()) mix(t);
  for (const NamedTensor& t : kept_states(*s.model))
    if (count_values(t.tensor).any_not_finite()) h = 0;  // a state that is not finite must not stay
  return h;
}

// A kernel whose output is a constant, or a value for the host, has nothing that could go wrong in it.
bool is_constant(const KernelEvent& e) {
  const bool for_host = e.op == "copy" && !e.layer && e.reads.size() == 1 && e.reads[0].shape == Shape{};
  return e.kernel == "fill" || e.kernel == "arange" || e.any_not_finite() || for_host;
}

}  // namespace

TEST_SUITE("data") {
  TEST_CASE("what is put into a kernel of a recipe is traced to that kernel") {
    if (!std::getenv("HALFSTEP_DATA")) {
      MESSAGE("SKIPPED: HALFSTEP_DATA is not set");
      return;
    }
    int found = 0, all = 0;
    for (const std::string name : kRecipes) {
      Recipe r(name);
      replay_step(r.step, {.name = "first", .low = DType::f16, .scale = 256});  // makes the weights' 16-bit copies
      const StepReplayResult plain = replay_step(r.step, {.name = "plain", .low = DType::f16, .scale = 256}, true);
      REQUIRE(plain.finite());
      const int events = int(plain.events.size()), stride = std::max(1, events / std::max(1, injections()));
      int right = 0, wrong = 0;
      for (const double value : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
        for (int k = value > 0 ? 0 : stride / 2; k < events; k += stride) {
          if (is_constant(plain.events[size_t(k)])) continue;
          bool done = false;
          const auto inject = [&](int event, const TensorView& out) {
            if (event != k) return;
            put(out, value);
            done = true;
          };
          const StepReplayResult replay =
              replay_step(r.step, {.name = "injected", .low = DType::f16, .scale = 256, .change = inject});
          if (!done || replay.finite()) continue;
          if (replay.origin.event == k) {
            ++right;
            continue;
          }
          ++wrong;
          MESSAGE(name, ": put into event ", k, ", ", describe(plain.events[size_t(k)]), "; found ", replay.origin.root, " event ",
                  replay.origin.event, replay.event ? ", " + describe(*replay.event) : "");
        }
      }
      MESSAGE(name, ": ", events, " kernels, right ", right, ", wrong ", wrong);
      found += right, all += right + wrong;
    }
    CHECK(all > 50);
    CHECK(100 * found >= 99 * all);
  }

  TEST_CASE("a step that is skipped for what a kernel wrote leaves each byte of the run as it was, and a kernel log changes none") {
    if (!std::getenv("HALFSTEP_DATA")) {
      MESSAGE("SKIPPED: HALFSTEP_DATA is not set");
      return;
    }
    for (const std::string name : kRecipes) {
      CAPTURE(name);
      Recipe r(name), same(name);
      Session& s = r.session;
      TrainStep step(*s.model, *s.loss, *s.optimizer, s.scaler, nullptr, r.options);
      TrainStep twin(*same.session.model, *same.session.loss, *same.session.optimizer, same.session.scaler, nullptr, same.options);
      const auto whole = [&](TrainStep& t, Recipe& of) {
        StepResult result;
        do result = t(of.batch.input, of.batch.target);
        while (!result.stepped);
        return result;
      };
      const Generator::State random = default_generator().state();
      int events = 0;
      for (int i = 0; i < 2; ++i) {
        default_generator().set_state(random);
        {
          const KernelLog log(s.device);
          whole(step, r);
          events = int(log.events().size());
        }
        default_generator().set_state(random);
        whole(twin, same);
        CHECK(hash_of(s) == hash_of(same.session));
      }
      int skipped = 0;
      const int stride = std::max(1, events / std::max(1, injections()));
      for (int k = 0; k < events; k += stride) {
        const uint64_t before = hash_of(s);
        bool applied = true;
        int update = -1;
        {
          const KernelLog log(s.device, [&](int event, const TensorView& out) {
            if (event == k && Observing::pass() != StepPass::update)
              put(out, std::numeric_limits<double>::infinity());
            else if (event == k)
              update = event;
          });
          applied = whole(step, r).outcome.applied();
        }
        s.scaler.update(256.0);
        if (applied || update >= 0) continue;
        ++skipped;
        CHECK(hash_of(s) == before);
      }
      CHECK(skipped > 0);
    }
  }
}
