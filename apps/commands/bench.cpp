// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <memory>

#include "amp/step/step_recorder.h"
#include "apps/commands/commands.h"
#include "apps/commands/options.h"
#include "apps/commands/products.h"
#include "apps/examine/bench_baseline.h"
#include "apps/examine/bench_mlp.h"
#include "apps/exit_codes.h"
#include "apps/schema/suggest.h"
#include "apps/terminal/build_info.h"
#include "framework/backend/backend.h"
#include "framework/base/number_text.h"
#include "framework/base/text_stream.h"

namespace halfstep::app {
namespace {

// Options of the command line; missing ones come from the config, or depend on the device.
struct BenchArguments {
  BenchOptions bench;
  std::optional<std::string> config, arms, baseline;
  std::optional<int64_t> batch, width, layers, batches, epochs, warmup, repeats, inner;
  std::optional<uint64_t> seed;
  std::string graph = "auto";
  std::optional<std::string> device;
  std::optional<int> threads;
  bool json = false;
};

std::vector<Precision> parse_arms(const std::string& list) {
  constexpr Precision kAll[] = {Precision::float32, Precision::tf32, Precision::bfloat16, Precision::float16};
  std::vector<std::string> legal;
  for (const Precision p : kAll) legal.push_back(name(p));
  std::vector<Precision> out;
  TextReader in(list);
  for (std::string arm; std::getline(in, arm, ',');) {
    const auto at = std::find(legal.begin(), legal.end(), arm);
    check<ConfigError>(at != legal.end(), "bench", "arms must be ", one_of(legal), ", got \"", arm, "\"", did_you_mean(arm, legal));
    out.push_back(kAll[at - legal.begin()]);
  }
  check<ConfigError>(!out.empty(), "bench", "arms must name at least one precision");
  return out;
}

// Takes options that the command line lacks from a config: its network, which must be of the benchmark's kind, and its bench
// section.
void apply_config(BenchArguments& arguments) {
  const Config config = load_config(*arguments.config, {.device = arguments.device});
  print_warnings(config);
  const Json &model = config.model, &data = config.data.train;
  const auto require = [&](bool holds, const char* key, const char* rule) {
    check<ConfigError>(holds, "bench", *arguments.config, ": ", key, " must be ", rule, ", which is what this benchmark measures",
                       Help{"see configs/mlp_amp.json"});
  };
  require(model["type"] == "MLP" && model["activation"]["type"] == "ReLU" && model["dropout"] == 0.0 && model["bias"] == true,
          "model", "an MLP with bias and ReLU");
  const Json width = model["in_features"];
  for (const Json& hidden : model["hidden"]) require(hidden == width, "model.hidden", "of model.in_features each");
  require(model["out_features"] == width, "model.out_features", "model.in_features");
  require(config.loss["type"] == "MSELoss", "loss", "MSELoss");
  const Json& optimizer = config.optimizer;
  require(optimizer["type"] == "SGD" && optimizer["momentum"] == 0.0 && optimizer["weight_decay"] == 0.0, "optimizer", "plain SGD");
  arguments.bench.lr = optimizer["lr"].get<double>();
  require(data["type"] == "Random", "data.train", "Random");
  const auto set_default = [](auto& option, const auto& value) {
    if (!option) option = value;
  };
  set_default(arguments.width, width.get<int64_t>());
  set_default(arguments.layers, int64_t(model["hidden"].size()) + 1);
  set_default(arguments.batch, config.data.loader.batch_size);
  set_default(arguments.batches, data["num_batches"].get<int64_t>());
  set_default(arguments.epochs, config.train.epochs);
  set_default(arguments.seed, config.seed);
  arguments.bench.device = config.device;
  set_default(arguments.warmup, config.bench.warmup);
  set_default(arguments.repeats, config.bench.repeats);
  if (!arguments.arms && config.bench.arms) {
    arguments.arms = "";
    for (const std::string& arm : *config.bench.arms) *arguments.arms += (arguments.arms->empty() ? "" : ",") + arm;
  }
}

// Returns the time in UTC: "2026-11-30T06:00:00Z".
std::string utc_text() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc)};
}

// Returns the cores' current clock in MHz, and a GPU's clocks, power and temperature from nvidia-smi. Empty if unknown.
Json clocks(bool gpu) {
  Json out{{"cpu_mhz", Json::array()}, {"gpu", nullptr}};
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("cpu MHz")) out["cpu_mhz"].push_back(number_before(line.substr(line.find(':') + 1)).value_or(0));
  if (!gpu) return out;
  constexpr const char* kQuery =
      "nvidia-smi --query-gpu=name,clocks.sm,clocks.mem,power.draw,temperature.gpu --format=csv 2>/dev/null";
  if (std::FILE* pipe = popen(kQuery, "r")) {
    std::string text;
    for (int ch; (ch = std::fgetc(pipe)) != EOF;) text += char(ch);
    if (pclose(pipe) == 0) out["gpu"] = text;
  }
  return out;
}

bool is_mixed(const BenchArm& arm) { return arm.precision == Precision::bfloat16 || arm.precision == Precision::float16; }

// Prints an arm as PyTorch's recipe for automatic mixed precision does.
void print_recipe(const BenchArm& arm) {
  std::cout << '\n'
            << (is_mixed(arm) ? "Mixed precision:" : "Default precision:") << '\n'
            << "Total execution time = " << std::fixed << std::setprecision(3) << arm.seconds << " sec\n"
            << "Max memory used by tensors = " << arm.peak_bytes << " bytes\n"
            << "(" << name(arm.precision) << (arm.recorded ? ", recorded steps" : "")
            << (arm.skipped ? ", " + std::to_string(arm.skipped) + " steps skipped" : "") << ")" << std::endl;
}

// Prints a row for each arm. base: the arm that speed-ups are relative to; may be null.
void print_table(const std::vector<BenchArm>& arms, const BenchArm* base) {
  constexpr MemoryTag kColumns[] = {MemoryTag::data, MemoryTag::parameters, MemoryTag::shadows, MemoryTag::gradients,
                                    MemoryTag::activations};
  std::cout << '\n'
            << std::left << std::setw(10) << "arm" << std::right << std::setw(12) << "fastest ms" << std::setw(12) << "median ms"
            << std::setw(12) << "p90 ms" << std::setw(10) << "speed-up";
  for (const MemoryTag tag : kColumns) std::cout << std::setw(13) << name(tag);
  std::cout << std::setw(13) << "other" << std::setw(13) << "peak bytes" << std::setw(12) << "final loss" << '\n';
  for (const BenchArm& a : arms) {
    std::cout << std::left << std::setw(10) << name(a.precision) << std::right << std::setprecision(3) << std::setw(12)
              << a.fastest_ms << std::setw(12) << a.median_ms << std::setw(12) << a.p90_ms;
    if (base && a.median_ms > 0) {
      std::cout << std::setw(9) << std::setprecision(2) << base->median_ms / a.median_ms << 'x';
    } else {
      std::cout << std::setw(10) << "-";
    }
    size_t rest = a.peak_bytes;
    for (const MemoryTag tag : kColumns) {
      std::cout << std::setw(13) << a.peak_by_tag[size_t(tag)];
      rest -= std::min(rest, a.peak_by_tag[size_t(tag)]);
    }
    std::cout << std::setw(13) << rest << std::setw(13) << a.peak_bytes << std::setw(12) << std::setprecision(6) << a.losses.back()
              << '\n';
  }
}

// Returns the arm that others are compared with: float32 if it was measured.
const BenchArm& reference(const std::vector<BenchArm>& arms) {
  const auto f32 = std::find_if(arms.begin(), arms.end(), [](const BenchArm& a) { return a.precision == Precision::float32; });
  return f32 == arms.end() ? arms.front() : *f32;
}

void print_verdict(const std::vector<BenchArm>& arms, int64_t layers) {
  const BenchArm& base = reference(arms);
  for (const BenchArm& a : arms) {
    if (&a == &base) continue;
    const Agreement found = agreement(a, base, layers);
    std::cout << "Losses of " << name(a.precision) << (found.ok() ? " agree" : " DO NOT AGREE") << " with those of "
              << name(base.precision) << ": " << std::scientific << std::setprecision(1) << found.difference
              << " apart at most, tolerated " << found.tolerance << std::fixed << '\n';
  }
}

// Throws if a step's products ran on the plain kernel, which says nothing about a GPU.
void check_products(const std::vector<BenchArm>& arms) {
  for (const BenchArm& a : arms) {
    const int64_t calls = plain_products(a.products);
    check<DeviceError>(calls == 0, "bench", calls, " products of the arm ", name(a.precision),
                       " ran on a kernel of halfstep's own, since cuBLASLt had no code for them: these times are not the GPU's",
                       Help{"`halfstep devices --products` shows the library's answers; HALFSTEP_CUDA_BLAS=plain measures "
                            "without it on purpose"});
  }
}

// Throws if all requested arms were refused; else prints those that were, and the others' times are valid.
void check_measured(const std::vector<BenchArm>& refused, bool all_refused) {
  if (all_refused) throw DeviceError(refused.front().refused);
  for (const BenchArm& a : refused) std::cerr << name(a.precision) << " was not measured: " << a.refused << '\n';
}

Json arm_json(const BenchArm& a, const BenchArm* base, const Agreement& found, bool gpu) {
  if (!a.refused.empty()) return {{"arm", name(a.precision)}, {"refused", a.refused}};
  Json memory;
  for (int i = 0; i < kMemoryTagCount; ++i) memory[name(MemoryTag(i))] = a.peak_by_tag[size_t(i)];
  Json out{{"arm", name(a.precision)},
           {"seconds", a.seconds},
           {"median_ms", a.median_ms},
           {"fastest_ms", a.fastest_ms},
           {"p90_ms", a.p90_ms},
           {"speedup", base && a.median_ms > 0 ? Json(base->median_ms / a.median_ms) : Json()},
           {"peak_bytes", a.peak_bytes},
           {"peak_bytes_by_tag", memory},
           {"planned_peak_bytes", a.planned_peak_bytes},
           {"first_loss", a.losses.front()},
           {"final_loss", a.losses.back()},
           {"losses", a.losses},
           {"loss_difference", found.difference},
           {"loss_tolerance", found.tolerance},
           {"losses_agree", found.ok()},
           {"step_ms", a.step_ms},
           {"steps", a.steps},
           {"skipped", a.skipped},
           {"recorded", a.recorded}};
  if (gpu) {
    out["products"] = products_json(a.products);
    out["plain_products"] = plain_products(a.products);
  }
  return out;
}

// Fills in options that neither the command line nor a config gives.
void apply_defaults(BenchArguments& arguments) {
  const bool gpu = arguments.bench.device.is_cuda();
  if (!arguments.arms) arguments.bench.arms = parse_arms(gpu ? "float32,tf32,bfloat16,float16" : "float32,bfloat16,float16");
  arguments.bench.batch = arguments.batch.value_or(gpu ? 4096 : 512);
  arguments.bench.layers = arguments.layers.value_or(3);
  arguments.bench.warmup = arguments.warmup.value_or(gpu ? StepRecorder::kDecided : 3);
  arguments.bench.repeats = arguments.repeats.value_or(1);
  arguments.bench.seed = arguments.seed.value_or(0);
  arguments.bench.width = arguments.width.value_or(gpu ? 4096 : 1024);
  arguments.bench.batches = arguments.batches.value_or(gpu ? 50 : 10);
  arguments.bench.epochs = arguments.epochs.value_or(gpu ? 3 : 2);
  arguments.bench.inner = arguments.inner.value_or(gpu ? 10 : 1);
  arguments.bench.graph = arguments.graph == "on"    ? GraphMode::on
                          : arguments.graph == "off" ? GraphMode::off
                                                     : GraphMode::automatic;
}

void print_json(const BenchArguments& arguments, const std::vector<BenchArm>& arms, const BenchArm* f32, const BenchArm& base,
                const std::string& where, const std::optional<Json>& baseline) {
  const BenchOptions& options = arguments.bench;
  const bool gpu = options.device.is_cuda();
  const Json build = build_info();
  Json list = Json::array();
  for (const BenchArm& a : arms) list.push_back(arm_json(a, f32, agreement(a, base, options.layers), gpu));
  Json out{{"bench", "mlp"},
           {"version", build["halfstep"]},
           {"commit", build["commit"]},
           {"date", utc_text()},
           {"device", std::string(name(options.device.type))},
           {"description", where},
           {"clocks", clocks(gpu)},
           {"threads", num_threads()},
           {"batch", options.batch},
           {"width", options.width},
           {"layers", options.layers},
           {"batches", options.batches},
           {"epochs", options.epochs},
           {"warmup", options.warmup},
           {"repeats", options.repeats},
           {"inner", options.inner},
           {"seed", options.seed},
           {"graph", arguments.graph},
           {"arms", list}};
  if (baseline) out["baseline"] = {{"file", *arguments.baseline}, {"arms", comparisons_json(compare_arms(arms, *baseline))}};
  std::cout << out.dump() << std::endl;
}

// Prints a line for each arm, unless the results are JSON. Returns the exit code.
int check_baseline(const BenchArguments& arguments, const std::vector<BenchArm>& arms, const std::optional<Json>& baseline,
                   const std::string& where) {
  if (!baseline) return kDone;
  const Json then = baseline->value("description", Json());
  if (then != where)
    std::cerr << "warning: " << *arguments.baseline << " is of another machine or library: " << then.dump() << '\n';
  const std::vector<ArmComparison> all = compare_arms(arms, *baseline);
  if (!arguments.json)
    for (const ArmComparison& c : all) std::cout << "against " << *arguments.baseline << ": " << c.text() << '\n';
  return std::any_of(all.begin(), all.end(), [](const ArmComparison& c) { return c.is_slower(); }) ? kNotHeld : kDone;
}

int bench(BenchArguments arguments) {
  apply_threads(arguments.threads);
  if (arguments.config)
    apply_config(arguments);
  else
    arguments.bench.device = named_device(arguments.device.value_or("auto"));
  if (arguments.arms) arguments.bench.arms = parse_arms(*arguments.arms);  // parsed before anything starts
  const std::string where = backend_for(arguments.bench.device).describe();
  apply_defaults(arguments);
  const BenchOptions& options = arguments.bench;
  std::optional<Json> baseline;  // read before anything is measured
  if (arguments.baseline) baseline = read_baseline(*arguments.baseline, options, num_threads());
  if (!arguments.json) {
    std::cout << options.layers << " x Linear(" << options.width << ", " << options.width << "), batch " << options.batch << ", "
              << options.batches << " resident batches, " << options.epochs << (options.epochs == 1 ? " epoch" : " epochs")
              << ", SGD, MSE\n"
              << where << '\n';
  }
  const auto all = bench_mlp(options, [&](const BenchArm& arm) {
    if (!arguments.json) print_recipe(arm);
  });
  std::vector<BenchArm> arms, refused;
  for (const BenchArm& a : all) (a.refused.empty() ? arms : refused).push_back(a);
  const BenchArm& base = reference(arms.empty() ? all : arms);
  const BenchArm* f32 = base.precision == Precision::float32 ? &base : nullptr;
  if (arguments.json) {
    print_json(arguments, all, f32, base, where, baseline);
    check_measured(refused, arms.empty());
    check_products(arms);
    return check_baseline(arguments, arms, baseline, where);
  }
  check_measured(refused, arms.empty());
  print_table(arms, f32);
  std::cout << "\nMedians leave out the first " << options.warmup
            << " steps, totals count them. \"other\": optimizer state and workspace.\n";
  print_verdict(arms, options.layers);
  check_products(arms);
  return check_baseline(arguments, arms, baseline, where);
}

}  // namespace

void add_bench(CLI::App& program, Action& chosen) {
  auto arguments = std::make_shared<BenchArguments>();
  CLI::App* group = program.add_subcommand("bench", "Measure the speed of training steps");
  group->require_subcommand(1);
  CLI::App* command = group->add_subcommand("mlp", "The recipe's MLP: float32 against mixed precision");
  command->add_option("--config", arguments->config, "a config such as configs/mlp_amp.json");
  const auto count = [&](const char* flag, std::optional<int64_t>& value, const char* doc) {
    command->add_option(flag, value, doc)->check(CLI::Range(int64_t(1), int64_t(1) << 30));
  };
  count("--batch", arguments->batch, "samples in a batch [512, on a GPU 4096]");
  count("--width", arguments->width, "width of all layers [1024, on a GPU 4096]");
  count("--layers", arguments->layers, "Linear layers [3]");
  count("--batches", arguments->batches, "resident batches [10, on a GPU 50]");
  count("--epochs", arguments->epochs, "passes over them [2, on a GPU 3]");
  count("--repeats", arguments->repeats, "runs of each precision [1]");
  command->add_option("--warmup", arguments->warmup, "first steps, not part of the median [3, on a GPU 12]")
      ->check(CLI::Range(int64_t(0), int64_t(1) << 30));
  count("--inner", arguments->inner, "steps between two waits for the device [1, on a GPU 10]");
  command->add_option("--graph", arguments->graph, "replay recorded steps on a GPU")
      ->check(CLI::IsMember({"auto", "on", "off"}))
      ->capture_default_str();
  command->add_option("--export", arguments->bench.export_to, "write weights and data as safetensors, for a comparison elsewhere");
  command->add_option("--seed", arguments->seed, "of weights and data [0]");
  command->add_option("--arms", arguments->arms,
                      "precisions to compare, of float32, tf32 (on a GPU), bfloat16 and float16 [all available]");
  command
      ->add_option("--baseline", arguments->baseline,
                   "a result that --json printed earlier; ends with code 6 if a median is slower by more than both spreads")
      ->type_name("FILE");
  command->add_flag("--json", arguments->json, "one JSON object");
  add_device(*command, arguments->device);
  add_threads(*command, arguments->threads);
  command->callback([arguments, &chosen] { chosen = [arguments] { return bench(*arguments); }; });
}

}  // namespace halfstep::app
