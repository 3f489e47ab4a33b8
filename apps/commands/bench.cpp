#include <CLI/CLI.hpp>
#include <iomanip>
#include <iostream>
#include <memory>
#include <sstream>

#include "apps/commands/commands.h"
#include "apps/commands/options.h"
#include "apps/config/suggest.h"
#include "apps/exit_codes.h"
#include "apps/run/bench_mlp.h"
#include "apps/run/progress.h"
#include "framework/backend/backend.h"

namespace halfstep::app {
namespace {

struct Options {
  BenchOptions bench;
  std::string arms = "float32,bfloat16,float16";
  std::optional<int64_t> width, batches, epochs, inner;  // unset: by the device
  std::string graph = "auto";
  std::optional<std::string> device;
  std::optional<int> threads;
  bool json = false;
};

std::vector<DType> parse_arms(const std::string& list) {
  std::vector<DType> out;
  std::istringstream in(list);
  for (std::string arm; std::getline(in, arm, ',');) {
    const std::vector<std::string> legal = {"float32", "bfloat16", "float16"};
    const auto dtype = parse_dtype(arm);
    check<ConfigError>(dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16, "bench", "arms must be ", one_of(legal),
                       ", got \"", arm, "\"", did_you_mean(arm, legal));
    out.push_back(*dtype);
  }
  check<ConfigError>(!out.empty(), "bench", "arms must name at least one precision");
  return out;
}

// As the recipe prints it.
void print_recipe(const BenchArm& arm) {
  std::cout << '\n'
            << (arm.dtype == DType::f32 ? "Default precision:" : "Mixed precision:") << '\n'
            << "Total execution time = " << std::fixed << std::setprecision(3) << arm.seconds << " sec\n"
            << "Max memory used by tensors = " << arm.peak_bytes << " bytes\n"
            << "(" << arm.dtype << (arm.recorded ? ", recorded steps" : "")
            << (arm.skipped ? ", " + std::to_string(arm.skipped) + " steps skipped" : "") << ")" << std::endl;
}

void print_table(const std::vector<BenchArm>& arms, const BenchArm* base) {
  constexpr MemoryTag kColumns[] = {MemoryTag::data, MemoryTag::parameters, MemoryTag::shadows, MemoryTag::gradients,
                                    MemoryTag::activations};
  std::cout << '\n'
            << std::left << std::setw(10) << "arm" << std::right << std::setw(12) << "median ms" << std::setw(10) << "speed-up";
  for (const MemoryTag tag : kColumns) std::cout << std::setw(13) << name(tag);
  std::cout << std::setw(13) << "other" << std::setw(13) << "peak bytes" << std::setw(12) << "final loss" << '\n';
  for (const BenchArm& a : arms) {
    std::cout << std::left << std::setw(10) << name(a.dtype) << std::right << std::setw(12) << std::setprecision(3) << a.median_ms;
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

Json arm_json(const BenchArm& a, const BenchArm* base) {
  Json memory;
  for (int i = 0; i < kMemoryTagCount; ++i) memory[name(MemoryTag(i))] = a.peak_by_tag[size_t(i)];
  return {{"arm", std::string(name(a.dtype))},
          {"seconds", a.seconds},
          {"median_ms", a.median_ms},
          {"fastest_ms", a.fastest_ms},
          {"p90_ms", a.p90_ms},
          {"speedup", base && a.median_ms > 0 ? Json(base->median_ms / a.median_ms) : Json()},
          {"peak_bytes", a.peak_bytes},
          {"peak_bytes_by_tag", memory},
          {"first_loss", a.losses.front()},
          {"final_loss", a.losses.back()},
          {"losses", a.losses},
          {"steps", a.steps},
          {"skipped", a.skipped},
          {"recorded", a.recorded}};
}

int bench(Options o) {
  apply_threads(o.threads);
  o.bench.arms = parse_arms(o.arms);
  o.bench.device = config_device(Json{{"device", o.device.value_or("auto")}});
  const std::string where = backend_for(o.bench.device).describe();
  const bool gpu = o.bench.device.is_cuda();
  o.bench.width = o.width.value_or(gpu ? 4096 : 1024);
  o.bench.batches = o.batches.value_or(gpu ? 50 : 10);
  o.bench.epochs = o.epochs.value_or(gpu ? 3 : 2);
  o.bench.inner = o.inner.value_or(gpu ? 10 : 1);
  o.bench.graph = o.graph == "on" ? GraphMode::on : o.graph == "off" ? GraphMode::off : GraphMode::automatic;
  const BenchOptions& b = o.bench;
  if (!o.json) {
    std::cout << b.layers << " x Linear(" << b.width << ", " << b.width << "), batch " << b.batch << ", " << b.batches
              << " resident batches, " << b.epochs << (b.epochs == 1 ? " epoch" : " epochs") << ", SGD, MSE\n"
              << where << '\n';
  }
  const auto arms = bench_mlp(b, [&](const BenchArm& arm) {
    if (!o.json) print_recipe(arm);
  });
  const auto base = std::find_if(arms.begin(), arms.end(), [](const BenchArm& a) { return a.dtype == DType::f32; });
  const BenchArm* f32 = base == arms.end() ? nullptr : &*base;
  if (o.json) {
    Json list = Json::array();
    for (const BenchArm& a : arms) list.push_back(arm_json(a, f32));
    std::cout << Json{{"bench", "mlp"},       {"device", std::string(name(b.device.type))},
                      {"description", where}, {"threads", num_threads()},
                      {"batch", b.batch},     {"width", b.width},
                      {"layers", b.layers},   {"batches", b.batches},
                      {"epochs", b.epochs},   {"warmup", b.warmup},
                      {"repeats", b.repeats}, {"inner", b.inner},
                      {"tf32", b.tf32},       {"graph", o.graph},
                      {"arms", list}}
                     .dump()
              << '\n';
    return kDone;
  }
  print_table(arms, f32);
  std::cout << "\nMedians leave out the first " << b.warmup
            << " steps, totals count them. \"other\": optimizer state and workspace.\n";
  return kDone;
}

}  // namespace

void add_bench(CLI::App& program, Action& chosen) {
  auto o = std::make_shared<Options>();
  CLI::App* group = program.add_subcommand("bench", "Measure");
  group->require_subcommand(1);
  CLI::App* c = group->add_subcommand("mlp", "The recipe's MLP: float32 against mixed precision");
  const auto count = [&](const char* flag, int64_t& value, const char* doc) {
    c->add_option(flag, value, doc)->check(CLI::Range(int64_t(1), int64_t(1) << 30))->capture_default_str();
  };
  count("--batch", o->bench.batch, "samples a batch");
  const auto by_device = [&](const char* flag, std::optional<int64_t>& value, const char* doc) {
    c->add_option(flag, value, doc)->check(CLI::Range(int64_t(1), int64_t(1) << 30));
  };
  by_device("--width", o->width, "width of all layers [1024, on a GPU 4096]");
  count("--layers", o->bench.layers, "Linear layers");
  by_device("--batches", o->batches, "resident batches [10, on a GPU 50]");
  by_device("--epochs", o->epochs, "passes over them [2, on a GPU 3]");
  count("--repeats", o->bench.repeats, "runs an arm");
  c->add_option("--warmup", o->bench.warmup, "first steps that the median leaves out")
      ->check(CLI::Range(int64_t(0), int64_t(1) << 30))
      ->capture_default_str();
  by_device("--inner", o->inner, "steps a timing, between two waits for the device [1, on a GPU 10]");
  c->add_flag("--tf32", o->bench.tf32, "float32 products of a GPU in TF32");
  c->add_option("--graph", o->graph, "replay recorded steps on a GPU")
      ->check(CLI::IsMember({"auto", "on", "off"}))
      ->capture_default_str();
  c->add_option("--export", o->bench.export_to, "write weights and data as safetensors, for a comparison elsewhere");
  c->add_option("--seed", o->bench.seed, "of weights and data")->capture_default_str();
  c->add_option("--arms", o->arms, "precisions to compare")->capture_default_str();
  c->add_flag("--json", o->json, "one JSON object");
  add_device(*c, o->device);
  add_threads(*c, o->threads);
  c->callback([o, &chosen] { chosen = [o] { return bench(*o); }; });
}

}  // namespace halfstep::app
