#include "apps/run/bench_mlp.h"

#include <algorithm>
#include <chrono>

#include "amp/train_step.h"
#include "framework/backend/backend.h"
#include "framework/io/safetensors.h"
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

Sequential make_net(const BenchOptions& o) {
  manual_seed(o.seed);
  const MemoryScope scope(MemoryTag::parameters);
  Sequential net;
  for (int64_t i = 0; i < o.layers; ++i) {
    net.push_back(std::make_shared<Linear>(o.width, o.width));
    if (i + 1 < o.layers) net.push_back(std::make_shared<ReLU>());
  }
  net.to(o.device);
  return net;
}

void export_start(const BenchOptions& o, const ResidentData& data) {
  TensorMap tensors;
  for (const NamedTensor& p : make_net(o).state_dict()) tensors[p.name] = p.tensor.to(Device::cpu);
  for (size_t i = 0; i < data.inputs.size(); ++i) {
    tensors["input." + std::to_string(i)] = data.inputs[i].to(Device::cpu);
    tensors["target." + std::to_string(i)] = data.targets[i].to(Device::cpu);
  }
  save_safetensors(*o.export_to, tensors);
}

// One run of an arm. Fills in everything but the median; appends the times of its steps.
void run_arm(const BenchOptions& o, const ResidentData& data, BenchArm& arm, std::vector<double>& step_ms) {
  Backend& backend = backend_for(o.device);
  Sequential net = make_net(o);
  const MSELoss loss;
  SGD optimizer(net.parameters(), {.lr = 1e-3});
  GradScaler scaler({.enabled = arm.dtype == DType::f16});
  TrainStep step(net, loss, optimizer, scaler, nullptr,
                 {.device = o.device,
                  .amp = arm.dtype != DType::f32,
                  .dtype = arm.dtype == DType::f32 ? DType::bf16 : arm.dtype,
                  .graph = o.graph});

  Allocator& memory = allocator(o.device);
  backend.synchronize();
  memory.reset_peak();
  std::vector<Tensor> losses;
  std::vector<StepOutcome> outcomes;
  arm.steps = o.epochs * o.batches;
  const Clock::time_point start = Clock::now();
  Clock::time_point begin = start;
  int64_t timed = 0;  // steps since begin
  for (int64_t i = 0; i < arm.steps; ++i) {
    const StepResult r = step(data.inputs[size_t(i % o.batches)], data.targets[size_t(i % o.batches)]);
    losses.push_back(r.loss);
    outcomes.push_back(r.outcome);
    ++timed;
    if (i + 1 < o.warmup || (timed < o.inner && i + 1 != o.warmup)) continue;
    backend.synchronize();  // these steps' time is their own
    if (i + 1 > o.warmup || o.warmup == 0) step_ms.push_back(1e3 * seconds_since(begin) / double(timed));
    begin = Clock::now();
    timed = 0;
  }
  backend.synchronize();
  const double seconds = seconds_since(start);
  arm.seconds = arm.seconds == 0 ? seconds : std::min(arm.seconds, seconds);
  arm.recorded = step.is_recorded();
  const MemoryStats stats = memory.stats();
  arm.peak_bytes = stats.peak;
  arm.peak_by_tag = stats.peak_by_tag;
  arm.losses.clear();
  for (const Tensor& l : losses) arm.losses.push_back(l.item<double>());
  arm.skipped = std::count_if(outcomes.begin(), outcomes.end(), [](const StepOutcome& s) { return !s.applied(); });
}

}  // namespace

std::vector<BenchArm> bench_mlp(const BenchOptions& o, const std::function<void(const BenchArm&)>& done) {
  backend_for(o.device);
  const ResidentData data = make_data(o);
  if (o.export_to) export_start(o, data);
  set_allow_tf32(o.tf32);
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
      arm.p90_ms = step_ms[(n - 1) * 9 / 10];
      arm.median_ms = (step_ms[(n - 1) / 2] + step_ms[n / 2]) / 2;
    }
    if (done) done(arm);
    arms.push_back(arm);
  }
  return arms;
}

}  // namespace halfstep::app
