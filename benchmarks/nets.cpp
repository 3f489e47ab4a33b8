// SPDX-License-Identifier: Apache-2.0
// Times networks made from the JSON of a config, for compare_torch_nets.py and compare_torch_optim.py: a line of JSON in, a line
// out.
//   {"model": {"type": "LSTM", "input_size": 256, "hidden_size": 256, "batch_first": false}, "input": [64, 32, 256],
//    "dtype": "bfloat16", "train": true, "seconds": 0.5}
//   {"ms": 12.34}
// input: the shape of normal numbers; {"shape": [16, 128], "below": 50000}: integers. dtype: float32, or the region's. With
// "channels_last": true the input and the weights lie in that memory format. ms: the
// median of the runs within `seconds`, of a training step (forward, the mean of the squared outputs as the loss, backward, SGD), or
// without "train" of a forward in evaluation, in InferenceMode. With "optimizer", the JSON of one: of its step alone.
// "training": {"loss": ..., "target": spec, "optimizer": ..., "clip_grad_norm": 1}, as in a config: the step is TrainStep's, in
// float16 with a gradient scaler; the answer has its last "loss".
// "device": "cuda": on a GPU, each run from an idle device to an idle device; with "recorded" it is recorded once and replayed.
// "threads_independent": as performance.threads_independent. "cpu_ms" is the time of all threads in place of the clock's.
// "first_ms" is the first run's time, with all that a library prepares. With "floor": true the answer has "floor_ms", the time that
// the products and bytes of the net's plan take on this machine at the least (MachineRates), and "calls": of each op in each pass
// its time, its floor and the number of calls, in ms, from a profile of as many runs.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/catalog/losses.h"
#include "apps/catalog/modules.h"
#include "apps/catalog/optimizers.h"
#include "apps/train/profile.h"
#include "halfstep.h"

using namespace halfstep;
using app::Json;

namespace {

struct Net {
  std::string text = {};
  std::shared_ptr<Module> module = {};
  std::unique_ptr<Optimizer> optimizer = {};
  Tensor input = {};
  std::optional<DType> low = {};
  bool train = false, step_only = false;
  Device device = Device::cpu;
  std::unique_ptr<Recording> recording = {};
  std::unique_ptr<Loss> loss = {};  // of a whole step
  std::unique_ptr<GradScaler> scaler = {};
  std::unique_ptr<TrainStep> step = {};
  Tensor target = {}, last_loss = {};

  static Json checked(const Json& given, const app::Family& family, const std::string& name) {
    app::Issues issues;
    Json full = app::validate(given, app::component(name, family, ""), name, issues);
    for (const app::Issue& issue : issues.list()) fail<ValueError>("nets", issue.path, ": ", issue.message);
    return full;
  }
  static Tensor numbers(const Json& spec) {
    const Json& dims = spec.is_array() ? spec : spec.at("shape");
    const Shape shape(std::span<const int64_t>(dims.get<std::vector<int64_t>>()));
    return spec.is_object() ? randint(0, spec.at("below").get<int64_t>(), shape) : randn(shape);
  }
  explicit Net(const std::string& line, std::optional<Device> on = {}) : text(line) {
    const Json j = Json::parse(line);
    const Json model = checked(j.at("model"), app::module_family(), "model");
    device = on.value_or(parse_device(j.value("device", "cpu")));
    set_threads_independent(j.value("threads_independent", false));
    manual_seed(0);
    module = app::build_model(model);
    input = numbers(j.at("input"));
    if (!device.is_cpu()) {
      module->to(device);
      input = input.to(device);
    }
    const DType dtype = parse_dtype(j.value("dtype", "float32")).value();
    if (dtype != DType::f32) low = dtype;
    train = j.value("train", false);
    module->train(train);
    if (j.value("channels_last", false)) {
      module->to(MemoryFormat::channels_last);
      input = input.to(MemoryFormat::channels_last);
    }
    if (j.contains("training")) {
      make_step(j.at("training"), j.value("recorded", false));
      return;
    }
    if (train) optimizer = std::make_unique<SGD>(module->parameters(), SGDOptions{.lr = 1e-3});
    if (!j.contains("optimizer")) return;
    step_only = true;
    optimizer = app::build_optimizer(checked(j.at("optimizer"), app::optimizer_family(), "optimizer"), *module);
    for (const Tensor& p : module->parameters()) p.set_grad(randn(p.shape()));
  }

  Tensor forward() {
    if (!low) return (*module)(input);
    const Autocast region(device, *low);
    return (*module)(input);
  }
  double run() {
    if (!device.is_cpu()) backend_for(device).synchronize();
    const auto begin = std::chrono::steady_clock::now();
    if (recording)
      recording->replay();
    else
      work();
    if (!device.is_cpu()) backend_for(device).synchronize();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  }
  // Where the time of `runs` runs goes, and the least that the net's plan needs.
  Json calls(int runs) {
    static std::map<Device::Type, MachineRates> rates;
    MachineRates& machine = rates.try_emplace(device.type, device).first->second;
    std::vector<LoggedCall> planned;
    {
      const PlanFor target(device.type);
      Net on_meta(text, Device::meta);
      on_meta.work();
      const OpLogScope log;
      on_meta.work();
      planned = log.calls();
    }
    const app::PlannedCalls work_of = app::planned_calls(planned, machine);
    app::StepProfiler profiler(runs, device, work_of);
    while (!profiler.done()) {
      profiler.begin();
      work();
      profiler.end();
    }
    const app::StepProfile profile = profiler.result();
    double floor = 0;
    for (const auto& [name, w] : work_of) floor += w.floor_seconds;
    std::map<std::string, std::array<double, 3>> sums;
    for (const app::ProfileRow& row : profile.rows) {
      std::array<double, 3>& sum = sums[joined(name(row.call.pass), " ", row.call.op)];
      sum[0] += row.seconds * 1e3;
      sum[1] += row.work ? row.work->floor_seconds * 1e3 : 0;
      sum[2] += row.calls;
    }
    return {{"floor_ms", floor * 1e3}, {"profiled_ms", profile.seconds * 1e3}, {"calls", sums}};
  }
  void record() {
    if (step) {  // it records itself, and prepares for that several times
      for (int i = 0; i < StepRecorder::kWarmup + StepRecorder::kPreparations + 1; ++i) run();
      check<DeviceError>(step->is_recorded(), "nets", "the step was not recorded: the log says why");
      return;
    }
    for (int i = 0; i < 3; ++i) run();
    backend_for(device).begin_recording(default_generator());
    work();
    recording = backend_for(device).end_recording();
    run();
  }

 private:
  void make_step(const Json& j, bool recorded) {
    loss = app::build_loss(checked(j.at("loss"), app::loss_family(), "loss"));
    optimizer = app::build_optimizer(checked(j.at("optimizer"), app::optimizer_family(), "optimizer"), *module);
    scaler = std::make_unique<GradScaler>(GradScalerOptions{.enabled = low == DType::f16});
    target = numbers(j.at("target")).to(device);
    step = std::make_unique<TrainStep>(*module, *loss, *optimizer, *scaler, nullptr,
                                       TrainStepOptions{.device = device,
                                                        .amp = low,
                                                        .clip_grad_norm = j.value("clip_grad_norm", 0.0),
                                                        .graph = recorded ? GraphMode::on : GraphMode::off});
  }
  void work() {
    if (step) {
      last_loss = (*step)(input, target).loss;
    } else if (step_only) {
      optimizer->step();
    } else if (train) {
      mean(square(forward().to(DType::f32))).backward();
      optimizer->step();
      optimizer->zero_grad();
    } else {
      const InferenceMode inference;
      forward();
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) set_num_threads(std::atoi(argv[1]));
  std::unique_ptr<Net> net;
  double first = 0;
  for (std::string line; std::getline(std::cin, line);) {
    try {
      if (!net || line != net->text) {
        net.reset();
        net = std::make_unique<Net>(line);
        first = net->run();
        if (Json::parse(line).value("recorded", false)) net->record();
      }
      std::vector<double> times{net->run()};
      const std::clock_t cpu = std::clock();
      const auto begin = std::chrono::steady_clock::now();
      const std::chrono::duration<double> least(Json::parse(line).value("seconds", 0.5));
      while (times.size() < 5 || std::chrono::steady_clock::now() - begin < least) times.push_back(net->run());
      const double cpu_ms = 1e3 * double(std::clock() - cpu) / CLOCKS_PER_SEC / double(times.size() - 1);
      std::nth_element(times.begin(), times.begin() + std::ptrdiff_t(times.size() / 2), times.end());
      Json answer{{"ms", times[times.size() / 2]}, {"cpu_ms", cpu_ms}, {"first_ms", first}};
      if (net->last_loss.defined()) answer["loss"] = net->last_loss.to(Device::cpu).item<double>();
      if (const Json j = Json::parse(line); j.value("floor", false)) answer.update(net->calls(10));
      std::cout << answer << std::endl;
    } catch (const std::exception& e) { std::cout << Json{{"error", e.what()}} << std::endl; }
  }
}
