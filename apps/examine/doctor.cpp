// SPDX-License-Identifier: Apache-2.0
#include "apps/examine/doctor.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <sstream>

#include "amp/step/train_step.h"
#include "apps/session/evaluate.h"
#include "apps/session/session.h"
#include "apps/terminal/quantity_text.h"
#include "apps/train/plan.h"
#include "apps/train/run_context.h"
#include "framework/backend/backend.h"

namespace halfstep::app {
namespace {

std::string percent(double share) { return number_text(100 * share, 2) + " %"; }

constexpr int64_t kWidthStep = 8;           // elements: Tensor Cores and AMX process 16-bit operands in such steps
constexpr int64_t kTileColumns = 64;        // columns of a product that a GPU computes together
constexpr double kLeastWaste = 0.2;         // share of a tile: less waste is not reported
constexpr double kLeastShare = 0.05;        // share of a step's operations: smaller layers are not reported
constexpr double kLeastOutputShare = 0.25;  // the same for a model's output, whose width the data determines
constexpr int64_t kFewRows = 64;       // in a product: fewer leave a GPU's processors idle
constexpr double kLeastGain = 1.2;     // speedup that justifies another precision
constexpr double kMostMemoryShare = 0.9;  // share of the memory that a step may take
constexpr double kLeastLoadShare = 0.25;  // of a step's time: a shorter wait for data is not reported
constexpr int64_t kMostBatch = int64_t(1) << 24;

// Approximate speed of a device: its order of magnitude shows whether a step mostly computes or waits.
struct DeviceSpeed {
  double launch_seconds;  // overhead of each kernel
  double flops, bytes;    // in a second
};
DeviceSpeed speed_of(Device device, bool low) {
  if (device.is_cuda()) return {4e-6, low ? 3e14 : 4e13, 2e12};
  return {1e-6, low ? 2e11 : 1e11, 2e10};
}

class Doctor {
 public:
  Doctor(const Config& config, const DoctorOptions& options) : config_(config), options_(options), plan_(plan_step(config)) {}

  std::vector<Finding> run() {
    check_scaler();
    check_precision();
    check_widths();
    check_float32_layers();
    check_last_layer();
    check_batch_size();
    check_memory();
    check_overhead();
    if (options_.probe) check_loading();
    return std::move(findings_);
  }

 private:
  void add(Finding f) { findings_.push_back(std::move(f)); }

  std::string title_of(const LayerRow& row) const { return row.name == "model" ? row.what : row.name + ", " + row.what; }

  void check_scaler() {
    if (plan_.low != DType::f16 || (config_.scaler.enabled && !config_.scaler.fixed)) return;
    add({"amp.scaler.enabled", "float16 without a gradient scaler: gradients below 6e-8 become 0, and many of a deep network are",
         "set it to \"auto\", or take amp.dtype \"bfloat16\", which has the range of float32", "weights that learn at all"});
  }

  // Estimates the seconds of a step from the device's rates for its products and bytes.
  static double seconds_of(const StepPlan& plan, MachineRates& rates) {
    double seconds = 0, bytes = plan.cast_bytes();
    for (const LoggedCall& call : plan.calls) {
      for (const MatrixProduct& p : call.products) seconds += rates.seconds(p);
      if (call.products.empty()) bytes += call.bytes_read + call.bytes_written;
    }
    return seconds + bytes / rates.bytes_per_second();
  }

  // Tests whether the other precision is faster, if the plan and the device's rates justify a trial.
  void check_precision() {
    if (!options_.rates && (!options_.probe || !has_backend(plan_.device.type))) return;
    MachineRates of_device(plan_.device);
    MachineRates& rates = options_.rates ? *options_.rates : of_device;
    const char* const other = plan_.low ? "false" : "true";
    const Config changed = resolve_config(config_.json, "the config", {.sets = {joined("amp.enabled=", other)}});
    const StepPlan plan = plan_step(changed);
    double gain = seconds_of(plan_, rates) / seconds_of(plan, rates);
    std::string how = "by the plan and the rates of products and copies";
    if (gain >= kLeastGain && options_.probe) {
      const double now = measured().step, then = measure(changed).step;
      gain = now / then;
      how = joined("a step took ", number_text(1e3 * now, 2), " ms, and ", number_text(1e3 * then, 2), " ms with the change");
    }
    if (gain < kLeastGain) return;
    const auto dtype = [](const StepPlan& p) { return p.low ? joined("mixed precision with ", *p.low) : std::string("float32"); };
    add({"amp", joined("the step computes in ", dtype(plan_), ", and this ", plan_.device, " computes it faster in ", dtype(plan)),
         joined(R"("amp": {"enabled": )", other, "}", plan_.low ? "; it takes more memory" : ""),
         joined("about ", number_text(gain, 2), " times the samples a second: ", how)});
  }

  // Finds 16-bit products whose sizes do not fit the hardware.
  void check_widths() {
    const double all_flops = plan_.total_flops();
    bool is_first = true;  // the first layer's input needs no gradient
    for (const LayerRow& row : plan_.layers) {
      for (const LoggedCall& call : row.calls) {
        for (const MatrixProduct& p : call.products) {
          const double flops = p.flops() / double(row.samples) * double(plan_.batch);
          const int products = is_first ? 2 : 3;  // forward, and the gradients of the weight and the input
          const double share = all_flops > 0 ? products * flops / all_flops : 0;
          is_first = false;
          const bool is_output = !row.output.empty() && config_.facts->classes == p.n;
          if (p.fused || !is_half(p.dtype) || share < (is_output ? kLeastOutputShare : kLeastShare)) continue;
          const auto round_up = [](int64_t n, int64_t step) { return (n + step - 1) / step * step; };
          if (p.n % kWidthStep != 0 || p.k % kWidthStep != 0) {
            std::string sizes = p.k % kWidthStep != 0 ? joined("takes ", p.k) : "";
            if (p.n % kWidthStep != 0) sizes += joined(sizes.empty() ? "" : " and ", "makes ", p.n);
            add({row.path, joined(title_of(row), " ", sizes, " features: 16-bit products run in steps of ", kWidthStep),
                 joined("make it ", p.k % kWidthStep != 0 ? joined(round_up(p.k, kWidthStep), " in") : std::string(),
                        p.k % kWidthStep != 0 && p.n % kWidthStep != 0 ? " and " : "",
                        p.n % kWidthStep != 0 ? joined(round_up(p.n, kWidthStep), " out") : std::string(),
                        p.k % kWidthStep != 0 ? "; pad the data, or the layer before it" : ""),
                 joined("the fast code of the library for ", percent(std::min(1.0, share)), " of the step's operations")});
          } else if (const double waste = 1 - double(p.n) / double(round_up(p.n, kTileColumns));
                     plan_.device.is_cuda() && waste > kLeastWaste) {
            add({row.path,
                 joined(title_of(row), " makes ", p.n, " features: tiles of ", kTileColumns, " leave ", percent(waste),
                        " of the work unused"),
                 joined("make it ", p.n / kTileColumns * kTileColumns, " or ", round_up(p.n, kTileColumns)),
                 joined("up to ", percent(waste), " of the time of ", percent(std::min(1.0, share)), " of the step's operations")});
          }
        }
      }
    }
  }

  // Finds float32 layers in a 16-bit model, and the casts around them.
  void check_float32_layers() {
    if (!plan_.low) return;
    DType before = DType::f32;
    for (size_t i = 0; i < plan_.layers.size(); ++i) {
      const LayerRow& row = plan_.layers[i];
      const bool is_requested = std::any_of(row.calls.begin(), row.calls.end(), [](const LoggedCall& call) {
        return call.reason.find(", set for ") != std::string::npos || call.reason.find(", policy set to ") != std::string::npos;
      });
      if (row.dtype == DType::f32 && is_half(before) && !is_requested) {
        std::string why;
        for (const LoggedCall& call : row.calls)
          if (call.policy == CastPolicy::f32 || call.policy == CastPolicy::f32_output || call.policy == CastPolicy::promote)
            why = joined(call.op, ": ", call.reason);
        const bool casts_back = i + 1 < plan_.layers.size() && is_half(plan_.layers[i + 1].dtype);
        const double numbers = double(plan_.batch) * double(numel(row.output));
        constexpr double kBytesOfTwoCasts = 8, kBytesOfWidth = 2;  // of each number: casts to float32 and back; a wider store
        add({row.path,
             joined(title_of(row), " falls to float32", why.empty() ? "" : ": " + why,
                    casts_back ? "; the next layer casts back" : ""),
             casts_back ? "keep such layers together, or at the end of the model" : "nothing, if its precision is wanted there",
             joined(bytes_text(numbers * (casts_back ? kBytesOfTwoCasts : kBytesOfWidth)), " a step less to move")});
      }
      before = row.dtype;
    }
  }

  // Finds a model that ends in a Sigmoid or Softmax.
  void check_last_layer() {
    if (plan_.layers.empty()) return;
    const LayerRow& last = plan_.layers.back();
    const std::string loss = config_.loss["type"];
    const bool sigmoid = last.what.starts_with("Sigmoid"), softmax = last.what.starts_with("Softmax");
    if (!sigmoid && !softmax) return;
    const std::string kind = sigmoid ? "Sigmoid" : "Softmax";
    add({last.path,
         joined("the loss ", loss, " is computed on the outputs of ", kind,
                is_half(last.dtype) ? joined(", rounded to ", last.dtype) : "",
                ": near 0 and 1 they have no digits left, and no gradient"),
         loss == "CrossEntropyLoss" ? "leave the layer out: the loss takes the scores as they are"
                                    : "leave the layer out, and learn the scores themselves",
         "gradients where the model is sure and wrong"});
  }

  // Finds batches that are too small for a GPU.
  void check_batch_size() {
    if (!plan_.device.is_cuda()) return;
    int64_t rows = 0;
    for (const LoggedCall& call : plan_.calls)
      if (call.pass == StepPass::forward)
        for (const MatrixProduct& p : call.products) rows = std::max(rows, p.batch * p.m);
    if (rows == 0 || rows >= kFewRows) return;
    add({"data.loader.batch_size",
         joined(plan_.batch, " samples make products of ", rows, " rows, which occupy a small part of a GPU"),
         joined("at least ", (kFewRows * plan_.batch + rows - 1) / rows, "; train.accumulate_steps does not help here"),
         joined("up to ", number_text(double(kFewRows) / double(rows), 2), " times the samples a second")});
  }

  // Checks whether a step fits into the device's memory.
  void check_memory() {
    const double device_bytes = options_.memory ? *options_.memory : free_device_memory(plan_.device);
    if (device_bytes <= 0) return;
    const double peak = double(plan_.later_steps.peak);
    const int64_t most = largest_batch(kMostMemoryShare * device_bytes);
    if (peak > kMostMemoryShare * device_bytes) {
      add({"data.loader.batch_size",
           joined("a step takes ", bytes_text(peak), " of the ", bytes_text(device_bytes), " that ", plan_.device, " has"),
           most > 0 ? joined("at most ", most, "; with train.accumulate_steps the gradient is that of the whole batch. Or ",
                             "\"train\": {\"checkpoint_activations\": \"auto\"}, which computes activations again")
                    : std::string("even the smallest batch is too much: a smaller model, or SGD, which keeps less than Adam"),
           "a step that fits"});
    }
  }

  // Returns the largest batch whose step fits, by bisection on Device::meta; 0: none.
  int64_t largest_batch(double bytes) const {
    const auto fits = [&](int64_t batch) {
      try {
        return double(plan_step(config_, batch).later_steps.peak) <= bytes;
      } catch (const MemoryError&) { return false; } catch (const ShapeError&) { return false; } catch (const ValueError&) {
        return false;
      }
    };
    int64_t low = 1, high = kMostBatch;
    if (!fits(low)) low = 2;  // batch normalisation needs two samples
    if (!fits(low)) return 0;
    constexpr int64_t kPrecision = 50;  // ends within 1/50 of the largest
    while (high - low > std::max<int64_t>(1, low / kPrecision)) {
      const int64_t middle = low < high / 4 ? std::max(low + 1, std::min(high / 2, low * 2)) : (low + high) / 2;
      (fits(middle) ? low : high) = middle;
    }
    return low;
  }

  // Checks whether launching kernels takes longer than their work.
  void check_overhead() {
    const DeviceSpeed speed = speed_of(plan_.device, plan_.low.has_value());
    double kernels = 0, bytes = 0;
    for (const LoggedCall& call : plan_.calls) kernels += call.kernels, bytes += call.bytes_read + call.bytes_written;
    const double work = plan_.total_flops() / speed.flops + bytes / speed.bytes, launching = kernels * speed.launch_seconds;
    if (launching < work) return;
    const bool graph = config_.performance.cuda_graph.value_or(true);
    add({"data.loader.batch_size",
         joined("a step is ", number_text(kernels, 3), " kernels with about ", number_text(1e6 * work, 2),
                " us of work in all: starting them takes ", number_text(1e6 * launching, 2), " us"),
         plan_.device.is_cuda() && !graph ? "larger batches, and performance.cuda_graph \"auto\"" : "larger batches",
         joined("up to ", number_text((launching + work) / std::max(work, kLeastSeconds), 2), " times the samples a second")});
  }

  struct MeasuredTimes {
    double load, step;  // seconds (medians)
  };
  // Measures loading of a batch and a step on the device.
  static MeasuredTimes measure(const Config& config) {
    using Clock = std::chrono::steady_clock;
    constexpr int kMostSteps = 12;
    constexpr double kMostSeconds = 2;
    Session session = make_session(config);
    TrainStep step(*session.model, *session.loss, *session.optimizer, session.scaler, session.schedule.get(), step_options(config));
    session.model->train();
    std::vector<double> loading, stepping;
    const auto begin = Clock::now();
    const auto since = [](Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); };
    while (int(loading.size()) < kMostSteps && (since(begin) < kMostSeconds || loading.size() < 2)) {
      const auto from = Clock::now();
      std::optional<Batch> batch = session.train->next();
      if (!batch) batch = session.train->next();
      const auto [input, target] = on_device(*batch, session.device);
      const double loaded = since(from);
      const auto step_begin = Clock::now();
      step(input, target);
      backend_for(session.device).synchronize();
      loading.push_back(loaded), stepping.push_back(since(step_begin));
    }
    const auto median = [](std::vector<double> seconds) {
      seconds.erase(seconds.begin());  // the first is slower: caches are empty
      std::sort(seconds.begin(), seconds.end());
      return seconds[seconds.size() / 2];
    };
    return {median(loading), median(stepping)};
  }
  const MeasuredTimes& measured() {
    if (!measured_) measured_ = measure(config_);
    return *measured_;
  }

  // Checks whether steps wait for data.
  void check_loading() {
    if (!has_backend(plan_.device.type)) return;
    constexpr double kRoundUp = 0.99;
    const auto [load, work] = measured();  // seconds
    const int workers = config_.data.loader.num_workers;
    const std::string times =
        joined("a batch takes ", number_text(1e3 * load, 2), " ms to come and a step ", number_text(1e3 * work, 2), " ms");
    if (workers == 0 && load > kLeastLoadShare * work) {
      add({"data.loader.num_workers", times + ", one after the other",
           joined("set it to ", std::max<int64_t>(1, int64_t(load / work + kRoundUp))),
           joined("up to ", number_text((load + work) / std::max(load, work), 2), " times the samples a second")});
    } else if (workers > 0 && load > kLeastLoadShare * work) {
      add({"data.loader.num_workers", times + joined(", although ", workers, " workers make batches ahead"),
           "more workers, or data that is cheaper to make",
           joined("up to ", number_text((load + work) / work, 2), " times the samples a second")});
    }
  }

  const Config& config_;
  const DoctorOptions& options_;
  StepPlan plan_;
  std::optional<MeasuredTimes> measured_;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> examine(const Config& config, const DoctorOptions& options) { return Doctor(config, options).run(); }

}  // namespace halfstep::app
