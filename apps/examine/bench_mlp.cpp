// SPDX-License-Identifier: Apache-2.0
#include "apps/examine/bench_mlp.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "amp/step/train_step.h"
#include "framework/backend/backend.h"
#include "framework/io/weights/safetensors.h"
#include "framework/ops/ops.h"
#include "optim/optimizers.h"

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
  for (const NamedTensor& p : make_net(o).state_tensors()) tensors[p.name] = p.tensor.to(Device::cpu);
  for (size_t i = 0; i < data.inputs.size(); ++i) {
    tensors["input." + std::to_string(i)] = data.inputs[i].to(Device::cpu);
    tensors["target." + std::to_string(i)] = data.targets[i].to(Device::cpu);
  }
  save_safetensors(*o.export_to, tensors);
}

std::optional<DType> autocast_dtype(Precision p) {
  return p == Precision::float16 ? std::optional(DType::f16) : p == Precision::bfloat16 ? std::optional(DType::bf16) : std::nullopt;
}

double roundoff(Precision p) { return p == Precision::float32 ? 0x1p-24 : p == Precision::bfloat16 ? 0x1p-8 : 0x1p-11; }

// Computes float32 products in TF32 while it lives.
struct TensorFloat {
  [[nodiscard]] explicit TensorFloat(bool on) { set_allow_tf32(on); }
  ~TensorFloat() { set_allow_tf32(saved); }
  TensorFloat(const TensorFloat&) = delete;
  bool saved = allow_tf32();
};

// Runs an arm once. Fills in everything except the median and its neighbours.
void run_arm(const BenchOptions& o, const ResidentData& data, BenchArm& arm) {
  const TensorFloat mode(arm.precision == Precision::tf32);
  Backend& backend = backend_for(o.device);
  Sequential net = make_net(o);
  const MSELoss loss;
  SGD optimizer(net.parameters(), {.lr = o.lr});
  GradScaler scaler({.enabled = arm.precision == Precision::float16});
  TrainStep step(net, loss, optimizer, scaler, nullptr,
                 {.device = o.device, .amp = autocast_dtype(arm.precision), .graph = o.graph});

  Allocator& memory = allocator(o.device);
  backend.synchronize();
  memory.reset_peak();
  auto* const reporter = dynamic_cast<ProductReporter*>(&backend);
  if (reporter) reporter->take_product_reports();  // discard reports of earlier arms
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
    backend.synchronize();  // exclude earlier steps from the time
    if (i + 1 > o.warmup || o.warmup == 0) arm.step_ms.push_back(1e3 * seconds_since(begin) / double(timed));
    begin = Clock::now();
    timed = 0;
  }
  backend.synchronize();
  const double seconds = seconds_since(start);
  arm.seconds = arm.seconds == 0 ? seconds : std::min(arm.seconds, seconds);
  arm.recorded = step.is_recorded();
  if (reporter) arm.products = reporter->take_product_reports();
  const MemoryStats stats = memory.stats();
  arm.peak_bytes = stats.peak;
  arm.peak_by_tag = stats.peak_by_tag;
  arm.losses.clear();
  if (o.device.is_meta()) return;  // meta has no values
  for (const Tensor& l : losses) arm.losses.push_back(l.item<double>());
  arm.skipped = std::count_if(outcomes.begin(), outcomes.end(), [](const StepOutcome& s) { return !s.applied(); });
}

// Returns an arm's peak without computing it.
size_t planned_peak(const BenchOptions& o, Precision precision) {
  const PlanFor target(o.device.type);
  const DefaultDevice on(Device::meta);
  BenchOptions nowhere = o;
  nowhere.device = Device::meta;
  BenchArm arm;
  arm.precision = precision;
  const size_t others = allocator(Device::meta).stats().live;
  run_arm(nowhere, make_data(nowhere), arm);
  return arm.peak_bytes - others;
}

}  // namespace

const char* name(Precision p) {
  constexpr const char* names[] = {"float32", "tf32", "bfloat16", "float16"};
  return names[size_t(p)];
}

Agreement agreement(const BenchArm& arm, const BenchArm& reference, int64_t layers) {
  Agreement a{.tolerance = double(layers) * std::max(roundoff(arm.precision), roundoff(reference.precision))};
  for (size_t i = 0; i < std::min(arm.losses.size(), reference.losses.size()); ++i) {
    const double d = std::fabs(arm.losses[i] - reference.losses[i]) / std::fabs(reference.losses[i]);
    if (!(d <= a.difference)) a.difference = d;
    if (!std::isfinite(d)) break;
  }
  return a;
}

std::vector<BenchArm> bench_mlp(const BenchOptions& o, const std::function<void(const BenchArm&)>& done) {
  backend_for(o.device);
  for (const Precision p : o.arms)
    check<ValueError>(p != Precision::tf32 || o.device.is_cuda(), "bench", "the arm tf32 needs a GPU, got device ", o.device,
                      Help{"leave tf32 out of the arms: a CPU multiplies float32 as it is"});
  const ResidentData data = make_data(o);
  if (o.export_to) export_start(o, data);
  std::vector<BenchArm> arms;
  for (const Precision precision : o.arms) {
    BenchArm arm;
    arm.precision = precision;
    arm.planned_peak_bytes = planned_peak(o, precision);
    try {
      for (int64_t r = 0; r < o.repeats; ++r) run_arm(o, data, arm);
    } catch (const DeviceError& e) {
      backend_for(o.device).synchronize();  // throws if the device itself fails, not only this arm
      arm = {.precision = precision, .refused = e.what()};
      arms.push_back(arm);
      continue;
    }
    if (std::vector<double> step_ms = arm.step_ms; !step_ms.empty()) {
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
