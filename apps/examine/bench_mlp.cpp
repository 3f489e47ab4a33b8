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

// Batches that stay on the device.
struct ResidentData {
  std::vector<Tensor> inputs, targets;
};

ResidentData make_data(const BenchOptions& options) {
  const MemoryScope scope(MemoryTag::data);
  Generator generator(options.seed + 1);
  ResidentData out;
  for (auto* tensors : {&out.inputs, &out.targets}) {
    for (int64_t i = 0; i < options.batches; ++i)
      tensors->push_back(randn({options.batch, options.width}, {.device = options.device}, &generator));
  }
  return out;
}

// Seeds the default generator, so that each call returns the same weights.
Sequential make_net(const BenchOptions& options) {
  manual_seed(options.seed);
  const MemoryScope scope(MemoryTag::parameters);
  Sequential net;
  for (int64_t i = 0; i < options.layers; ++i) {
    net.push_back(std::make_shared<Linear>(options.width, options.width));
    if (i + 1 < options.layers) net.push_back(std::make_shared<ReLU>());
  }
  net.to(options.device);
  return net;
}

// Writes the first weights and the data.
void export_start(const BenchOptions& options, const ResidentData& data) {
  TensorMap tensors;
  for (const NamedTensor& p : make_net(options).state_tensors()) tensors[p.name] = p.tensor.to(Device::cpu);
  for (size_t i = 0; i < data.inputs.size(); ++i) {
    tensors["input." + std::to_string(i)] = data.inputs[i].to(Device::cpu);
    tensors["target." + std::to_string(i)] = data.targets[i].to(Device::cpu);
  }
  save_safetensors(*options.export_to, tensors);
}

std::optional<DType> autocast_dtype(Precision p) {
  return p == Precision::float16 ? std::optional(DType::f16) : p == Precision::bfloat16 ? std::optional(DType::bf16) : std::nullopt;
}

// Returns the unit roundoff (see Agreement).
double roundoff(Precision p) { return p == Precision::float32 ? 0x1p-24 : p == Precision::bfloat16 ? 0x1p-8 : 0x1p-11; }

// While it lives, float32 products are in TF32, or not.
struct TensorFloat {
  [[nodiscard]] explicit TensorFloat(bool on) { set_allow_tf32(on); }
  ~TensorFloat() { set_allow_tf32(before); }
  TensorFloat(const TensorFloat&) = delete;
  bool before = allow_tf32();
};

// Runs an arm once, and fills in its results, except for the statistics of a step's time.
void run_arm(const BenchOptions& options, const ResidentData& data, BenchArm& arm) {
  const TensorFloat mode(arm.precision == Precision::tf32);
  Backend& backend = backend_for(options.device);
  Sequential net = make_net(options);
  const MSELoss loss;
  SGD optimizer(net.parameters(), {.lr = options.lr});
  GradScaler scaler({.enabled = arm.precision == Precision::float16});
  TrainStep step(net, loss, optimizer, scaler, nullptr,
                 {.device = options.device, .amp = autocast_dtype(arm.precision), .graph = options.graph});

  Allocator& memory = allocator(options.device);
  backend.synchronize();
  memory.reset_peak();
  auto* const reporter = dynamic_cast<ProductReporter*>(&backend);
  if (reporter) reporter->take_product_reports();  // discard reports of earlier arms
  std::vector<Tensor> losses;
  std::vector<StepOutcome> outcomes;
  arm.steps = options.epochs * options.batches;
  const Clock::time_point start = Clock::now();
  Clock::time_point begin = start;
  int64_t timed = 0;  // steps since `begin`
  for (int64_t i = 0; i < arm.steps; ++i) {
    const StepResult r = step(data.inputs[size_t(i % options.batches)], data.targets[size_t(i % options.batches)]);
    losses.push_back(r.loss);
    outcomes.push_back(r.outcome);
    ++timed;
    if (i + 1 < options.warmup || (timed < options.inner && i + 1 != options.warmup)) continue;
    backend.synchronize();  // exclude earlier steps from the time
    if (i + 1 > options.warmup || options.warmup == 0) arm.step_ms.push_back(1e3 * seconds_since(begin) / double(timed));
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
  if (options.device.is_meta()) return;  // meta has no values
  for (const Tensor& l : losses) arm.losses.push_back(l.item<double>());
  arm.skipped = std::count_if(outcomes.begin(), outcomes.end(), [](const StepOutcome& s) { return !s.applied(); });
}

// Returns an arm's peak without computing it.
size_t planned_peak(const BenchOptions& options, Precision precision) {
  const PlanFor target(options.device.type);
  const DefaultDevice on(Device::meta);
  BenchOptions on_meta = options;
  on_meta.device = Device::meta;
  BenchArm arm;
  arm.precision = precision;
  const size_t others = allocator(Device::meta).stats().live;  // bytes that were there before
  Tensors recorded;                                            // the copy of the batch that a recording has
  for (int i = 0; i < 2 && options.device.is_cuda() && options.graph != GraphMode::off; ++i)
    recorded.push_back(empty({options.batch, options.width}));
  run_arm(on_meta, make_data(on_meta), arm);
  return arm.peak_bytes - others;
}

}  // namespace

const char* name(Precision p) {
  constexpr const char* names[] = {"float32", "tf32", "bfloat16", "float16"};
  return names[size_t(p)];
}

Agreement agreement(const BenchArm& arm, const BenchArm& reference, int64_t layers) {
  Agreement out{.tolerance = double(layers) * std::max(roundoff(arm.precision), roundoff(reference.precision))};
  for (size_t i = 0; i < std::min(arm.losses.size(), reference.losses.size()); ++i) {
    const double difference = std::fabs(arm.losses[i] - reference.losses[i]) / std::fabs(reference.losses[i]);
    if (!(difference <= out.difference)) out.difference = difference;
    if (!std::isfinite(difference)) break;
  }
  return out;
}

std::vector<BenchArm> bench_mlp(const BenchOptions& options, const std::function<void(const BenchArm&)>& done) {
  backend_for(options.device);
  for (const Precision p : options.arms)
    check<ValueError>(p != Precision::tf32 || options.device.is_cuda(), "bench", "the arm tf32 needs a GPU, got device ",
                      options.device, Help{"leave tf32 out of the arms: a CPU multiplies float32 as it is"});
  const ResidentData data = make_data(options);
  if (options.export_to) export_start(options, data);
  std::vector<BenchArm> arms;
  for (const Precision precision : options.arms) {
    BenchArm arm;
    arm.precision = precision;
    arm.planned_peak_bytes = planned_peak(options, precision);
    try {
      for (int64_t r = 0; r < options.repeats; ++r) run_arm(options, data, arm);
    } catch (const DeviceError& e) {
      backend_for(options.device).synchronize();  // throws if the device itself fails, not only this arm
      arm = {.precision = precision, .refused = e.what()};
      arms.push_back(arm);
      continue;
    }
    if (std::vector<double> step_ms = arm.step_ms; !step_ms.empty()) {
      std::sort(step_ms.begin(), step_ms.end());
      arm.fastest_ms = step_ms.front();
      const size_t count = step_ms.size();
      arm.p90_ms = step_ms[(count - 1) * 9 / 10];
      arm.median_ms = (step_ms[(count - 1) / 2] + step_ms[count / 2]) / 2;
    }
    if (done) done(arm);
    arms.push_back(arm);
  }
  return arms;
}

}  // namespace halfstep::app
