#include "apps/run/bench_mlp.h"

#include <algorithm>
#include <chrono>

#include "amp/train_step.h"
#include "framework/backend/backend.h"
#include "framework/ops/ops.h"

namespace halfstep::app {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct ResidentData {
  std::vector<Tensor> inputs, targets;
};

ResidentData make_data(const BenchOptions& o) {
  const MemoryScope scope(MemoryTag::data);
  Generator generator(o.seed + 1);
  ResidentData d;
  for (auto* side : {&d.inputs, &d.targets}) {
    for (int64_t i = 0; i < o.batches; ++i) side->push_back(randn({o.batch, o.width}, {.device = o.device}, &generator));
  }
  return d;
}

// One run of an arm. Fills in everything but the median; appends the times of its steps.
void run_arm(const BenchOptions& o, const ResidentData& data, BenchArm& arm, std::vector<double>& step_ms) {
  Backend& backend = backend_for(o.device);
  manual_seed(o.seed);
  Sequential net;
  {
    const MemoryScope scope(MemoryTag::parameters);
    for (int64_t i = 0; i < o.layers; ++i) {
      net.push_back(std::make_shared<Linear>(o.width, o.width));
      if (i + 1 < o.layers) net.push_back(std::make_shared<ReLU>());
    }
    net.to(o.device);
  }
  const MSELoss loss;
  SGD optimizer(net.parameters(), {.lr = 1e-3});
  GradScaler scaler({.enabled = arm.dtype == DType::f16});
  TrainStep step(net, loss, optimizer, scaler, nullptr,
                 {.device = o.device, .amp = arm.dtype != DType::f32, .dtype = arm.dtype == DType::f32 ? DType::bf16 : arm.dtype});

  Allocator& memory = allocator(o.device);
  backend.synchronize();
  memory.reset_peak();
  Tensor last;
  std::vector<StepOutcome> outcomes;
  const Clock::time_point start = Clock::now();
  for (int64_t epoch = 0; epoch < o.epochs; ++epoch) {
    for (int64_t i = 0; i < o.batches; ++i) {
      const Clock::time_point begin = Clock::now();
      StepResult r = step(data.inputs[size_t(i)], data.targets[size_t(i)]);
      backend.synchronize();  // a step's time is its own
      if (epoch * o.batches + i >= o.warmup) step_ms.push_back(1e3 * seconds_since(begin));
      if (epoch + i == 0) arm.first_loss = r.loss.item<double>();
      last = r.loss;
      outcomes.push_back(r.outcome);
    }
  }
  const double seconds = seconds_since(start);
  arm.seconds = arm.steps == 0 ? seconds : std::min(arm.seconds, seconds);
  const MemoryStats stats = memory.stats();
  arm.peak_bytes = stats.peak;
  arm.peak_by_tag = stats.peak_by_tag;
  arm.final_loss = last.item<double>();
  arm.steps = o.epochs * o.batches;
  arm.skipped = std::count_if(outcomes.begin(), outcomes.end(), [](const StepOutcome& s) { return !s.applied(); });
}

}  // namespace

std::vector<BenchArm> bench_mlp(const BenchOptions& o, const std::function<void(const BenchArm&)>& done) {
  backend_for(o.device);
  const ResidentData data = make_data(o);
  std::vector<BenchArm> arms;
  for (const DType dtype : o.arms) {
    BenchArm arm;
    arm.dtype = dtype;
    std::vector<double> step_ms;
    for (int64_t r = 0; r < o.repeats; ++r) run_arm(o, data, arm, step_ms);
    if (!step_ms.empty()) {
      std::sort(step_ms.begin(), step_ms.end());
      arm.fastest_ms = step_ms.front();
      const size_t n = step_ms.size();
      arm.median_ms = (step_ms[(n - 1) / 2] + step_ms[n / 2]) / 2;
    }
    if (done) done(arm);
    arms.push_back(arm);
  }
  return arms;
}

}  // namespace halfstep::app
