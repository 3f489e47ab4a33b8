// SPDX-License-Identifier: Apache-2.0
// What the recomputation that plan_recomputation chooses saves and costs: a training step of GPT-2 small (examples/gpt2.h), AdamW.
//   recomputation [--batch 1] [--length 256] [--rounds 5] [--plans-only]
// `plans`: steps of 8 x 1024 tokens on Device::meta, with a budget that leaves half of the activations at the peak. `times`: steps
// of a smaller batch with the modules of that plan and without, in turns; losses and weights are compared bit by bit. Prints one
// JSON object.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "examples/gpt2.h"
#include "framework/backend/backend.h"

namespace {

struct Options {
  int64_t batch = 1, length = 256, rounds = 5;
  bool plans_only = false;
};

bool parse(int argc, char** argv, Options& o) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--plans-only") {
      o.plans_only = true;
      continue;
    }
    int64_t* value = name == "--batch" ? &o.batch : name == "--length" ? &o.length : name == "--rounds" ? &o.rounds : nullptr;
    if (!value || ++i == argc) return false;
    *value = std::strtoll(argv[i], nullptr, 10);
    if (*value < 1) return false;
  }
  return true;
}

struct Bench {
  Gpt2 net{GptConfig{}};
  AdamW opt{net.parameters(), {.lr = 6e-4}};
  FunctionLoss loss{"NextToken",
                    [](const Tensor& logits, const Tensor& next) { return cross_entropy(logits.flatten(0, 1), next.flatten()); }};
  GradScaler scaler{{.enabled = false}};
  TrainStep step;
  Tensor ids;

  Bench(Device here, DType dtype, int64_t batch, int64_t length)
      : step(net, loss, opt, scaler, nullptr, {.device = here, .amp = if_half(dtype)}),
        ids(here.is_meta() ? empty({batch, length}, {.dtype = DType::i64}) : randint(0, 50257, {batch, length})) {}
  Tensor run() { return step(ids, ids).loss; }
};

size_t activations(const MemoryStats& m) { return m.peak_by_tag[size_t(MemoryTag::activations)]; }

// With half of the activations that are held at the peak.
RecomputationPlan plan(DType dtype, int64_t batch, int64_t length) {
  const DefaultDevice on(Device::meta);
  const RecomputationOptions options{.others = allocator(Device::meta).stats()};
  Bench bench(Device::meta, dtype, batch, length);
  const auto step = [&] { bench.run(); };
  const MemoryStats before = plan_recomputation(bench.net, step, size_t(-1), options).before;
  return plan_recomputation(bench.net, step, before.peak - activations(before) / 2, options);
}

void print(const RecomputationPlan& p, DType dtype, double seconds) {
  std::printf("{\"dtype\": \"%s\", \"batch\": 8, \"length\": 1024, \"modules\": [", joined(dtype).c_str());
  for (size_t i = 0; i < p.modules.size(); ++i) std::printf("%s\"%s\"", i ? ", " : "", p.modules[i].c_str());
  std::printf("], \"peak_bytes\": [%zu, %zu], \"activation_bytes\": [%zu, %zu], ", p.before.peak, p.after.peak,
              activations(p.before), activations(p.after));
  std::printf("\"repeated_operations\": %.4f, \"plan_seconds\": %.2f}", p.repeated(), seconds);
}

// The peak of a second step, which nothing else shares the device with.
size_t peak_of(Device here, const std::vector<std::string>& modules, DType dtype, const Options& o) {
  const DefaultDevice on(here);
  Allocator& memory = allocator(here);
  const size_t others = memory.stats().live;
  Bench bench(here, dtype, o.batch, o.length);
  recompute_modules(bench.net, modules);
  bench.run();
  memory.reset_peak();
  bench.run();
  return memory.stats().peak - others;
}

// Steps of two nets that begin alike, one with recomputation, in turns.
void print_times(const Options& o, DType dtype, const std::vector<std::string>& modules) {
  size_t planned[2], measured[2];
  for (const int again : {0, 1}) {
    planned[again] = peak_of(Device::meta, again ? modules : std::vector<std::string>(), dtype, o);
    measured[again] = peak_of(Device::cpu, again ? modules : std::vector<std::string>(), dtype, o);
  }
  std::unique_ptr<Bench> benches[2];
  for (auto& bench : benches) {
    manual_seed(1);
    bench = std::make_unique<Bench>(Device::cpu, dtype, o.batch, o.length);
  }
  recompute_modules(benches[1]->net, modules);
  std::vector<double> seconds[2];
  bool same = true;
  for (int64_t round = -1; round < o.rounds; ++round) {
    double losses[2];
    for (const int again : {0, 1}) {
      manual_seed(uint64_t(round + 7));  // the same dropout
      const auto start = std::chrono::steady_clock::now();
      losses[again] = benches[again]->run().item<double>();
      if (round >= 0) seconds[again].push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    same &= losses[0] == losses[1];
  }
  const Tensors plain = benches[0]->net.parameters(), other = benches[1]->net.parameters();
  for (size_t i = 0; i < plain.size(); ++i) same &= plain[i].to_vector<float>() == other[i].to_vector<float>();
  std::vector<double> ratios;
  for (size_t i = 0; i < seconds[0].size(); ++i) ratios.push_back(seconds[1][i] / seconds[0][i]);
  for (std::vector<double>* v : {&seconds[0], &seconds[1], &ratios}) std::sort(v->begin(), v->end());
  const auto middle = [](const std::vector<double>& v) { return v[v.size() / 2]; };
  std::printf("{\"dtype\": \"%s\", \"batch\": %lld, \"length\": %lld, \"threads\": %d, \"rounds\": %lld, ", joined(dtype).c_str(),
              (long long)o.batch, (long long)o.length, num_threads(), (long long)o.rounds);
  std::printf("\"planned_peak_bytes\": [%zu, %zu], \"peak_bytes\": [%zu, %zu], \"same_bits\": %s, ", planned[0], planned[1],
              measured[0], measured[1], same ? "true" : "false");
  std::printf("\"seconds\": [%.3f, %.3f], \"ratio\": %.3f, \"spread\": [%.3f, %.3f]}", middle(seconds[0]), middle(seconds[1]),
              middle(ratios), ratios.front(), ratios.back());
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  if (!parse(argc, argv, o)) {
    std::fprintf(stderr, "usage: recomputation [--batch N] [--length N] [--rounds N] [--plans-only]\n");
    return 2;
  }
  std::printf("{\"what\": \"GPT-2 small, AdamW, half of the activations at the peak of a step\", \"plans\": [");
  const DType dtypes[] = {DType::f32, DType::bf16};
  std::vector<std::vector<std::string>> chosen;
  for (const DType dtype : dtypes) {
    const auto start = std::chrono::steady_clock::now();
    const RecomputationPlan p = plan(dtype, 8, 1024);
    if (!chosen.empty()) std::printf(",\n");
    print(p, dtype, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    chosen.push_back(p.modules);
  }
  std::printf("],\n\"times\": [");
  for (size_t i = 0; i < chosen.size() && !o.plans_only; ++i) {
    if (i > 0) std::printf(",\n");
    print_times(o, dtypes[i], chosen[i]);
    std::fflush(stdout);
  }
  std::printf("]}\n");
  return 0;
}
