// SPDX-License-Identifier: Apache-2.0
#include "amp/step/recomputation.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "framework/backend/op_log.h"
#include "framework/base/list_text.h"
#include "framework/base/number_text.h"
#include "layers/sequences/recurrent.h"

namespace halfstep {
namespace {

// Cost of moving a byte, in operations: work that is not a product takes as long as its bytes.
constexpr double kOperationsOfByte = 10;
constexpr double kWorthIt = 1e-3;  // share of the peak below which a module's savings are ignored
constexpr int kAttempts = 12;      // number of steps measured to find one that fits
constexpr size_t kRemovals = 200;  // number of chosen modules to try without
constexpr int kBisections = 40;    // of a peak: to a byte for a terabyte

std::string bytes_of(size_t bytes) {
  return bytes < 1'000'000'000 ? fixed_text(double(bytes) / 1e6, 1) + " MB" : fixed_text(double(bytes) / 1e9, 2) + " GB";
}

// A module that may be chosen. Places are forward calls, counted from the first of the last micro-batch.
struct Candidate {
  Module* module = nullptr;
  std::string name;
  size_t begin = 0, end = 0;  // its calls are [begin, end)
  size_t backward_begin = 0;  // call of the step with which its backward begins
  int calls = 0;
  double cost = 0;   // operations of its forward, with bytes as operations
  size_t saves = 0;  // bytes between its forward and its backward
};

struct MeasuredStep {
  MemoryStats memory;
  double flops = 0;
  std::vector<LoggedCall> calls;
  size_t first = 0, forward_end = 0;  // forward calls of the last micro-batch: [first, forward_end)
  size_t bytes_at_backward() const { return calls[forward_end - 1].live; }  // bytes at the start of backward
};

// Makes modules recompute while it lives.
class Recomputing {
 public:
  [[nodiscard]] explicit Recomputing(const std::vector<Module*>& modules) : modules_(modules) {
    for (Module* m : modules_) m->recompute_in_backward(true);
  }
  ~Recomputing() {
    for (Module* m : modules_) m->recompute_in_backward(false);
  }
  Recomputing(const Recomputing&) = delete;

 private:
  std::vector<Module*> modules_;
};

class Planner {
 public:
  Planner(Module& model, const std::function<void()>& step, const RecomputationOptions& options)
      : model_(model), step_(step), options_(options), base_(measure({})) {}

  RecomputationPlan run(size_t budget) {
    Choice best;
    if (base_.memory.peak > budget) {
      find_candidates();
      best = find_fitting(budget);
      if (best.measured.memory.peak > budget) {
        best = find_smallest();
        if (best.measured.memory.peak > budget && options_.must_fit) throw_does_not_fit(budget, best.measured);
      }
      drop_needless(best, std::max(budget, best.measured.memory.peak));
    }
    RecomputationPlan plan{.before = base_.memory, .flops_before = base_.flops};
    std::sort(best.chosen.begin(), best.chosen.end(),
              [&](size_t a, size_t b) { return candidates_[a].begin < candidates_[b].begin; });
    for (const size_t i : best.chosen) plan.modules.push_back(candidates_[i].name);
    plan.after = best.chosen.empty() ? base_.memory : best.measured.memory;
    plan.flops_after = best.chosen.empty() ? base_.flops : best.measured.flops;
    return plan;
  }

 private:
  struct Choice {
    std::vector<size_t> chosen;  // of candidates_
    MeasuredStep measured;
  };

  MeasuredStep measure(const std::vector<Module*>& modules) const {
    const Recomputing on(modules);
    MeasuredStep out;
    Allocator& memory = allocator(Device::meta);
    const OpLogScope log(Device::meta);
    memory.reset_peak();
    step_();
    out.memory = peak_without(memory.stats(), options_.others);
    out.calls = log.calls();
    for (const LoggedCall& call : out.calls) out.flops += call.flops();
    const auto is_forward = [&](size_t i) { return out.calls[i].pass == StepPass::forward; };
    for (size_t i = 0; i < out.calls.size(); ++i)
      if (is_forward(i)) out.forward_end = i + 1;
    check<ValueError>(out.forward_end > 0, options_.where, "the step must compute a forward on Device::meta, got none");
    out.first = out.forward_end - 1;
    while (out.first > 0 && is_forward(out.first - 1)) --out.first;
    return out;
  }
  MeasuredStep measure_choice(const std::vector<size_t>& chosen) const {
    std::vector<Module*> modules;
    for (const size_t i : chosen) modules.push_back(candidates_[i].module);
    return measure(modules);
  }

  // Returns the modules that could recompute, with their calls.
  std::vector<Candidate> callable() const {
    std::vector<Candidate> out;
    std::unordered_map<std::string, size_t> at;  // by path
    for (const auto& [name, module] : model_.named_modules()) {
      if (module == &model_ || !module->training() || module->any_hooks() || module->any_recomputes()) continue;
      if (!stateful_layers(*module).empty()) continue;
      at[module->path()] = out.size();
      out.push_back({.module = module, .name = name});
    }
    for (const auto& [name, module] : model_.named_modules()) {  // a module inside a recomputing one would recompute twice
      if (!module->recomputes_in_backward()) continue;
      module->visit([&](const Module& m) { at.erase(m.path()); });
    }
    for (size_t t = base_.first; t < base_.calls.size(); ++t) {
      const LoggedCall& call = base_.calls[t];
      const bool forward = t < base_.forward_end;
      for (std::string path = call.layer; !path.empty(); path.resize(path.rfind('.') == path.npos ? 0 : path.rfind('.'))) {
        const auto found = at.find(path);
        if (found == at.end()) continue;
        Candidate& c = out[found->second];
        if (forward) {
          if (c.calls++ == 0) c.begin = t - base_.first;
          c.end = t - base_.first + 1;
          c.cost += call.flops() + kOperationsOfByte * (call.bytes_read + call.bytes_written);
        } else if (c.backward_begin == 0) {
          c.backward_begin = t;
        }
      }
    }
    std::erase_if(out, [](const Candidate& c) { return c.calls == 0 || c.backward_begin == 0; });
    return out;
  }

  // Measures equal modules once: a step in which one of them recomputes holds less at the end of its forward.
  void find_candidates() {
    const size_t least = size_t(kWorthIt * double(base_.memory.peak));
    std::map<std::string, size_t> known;
    for (Candidate& c : callable()) {
      const size_t from = base_.first + c.begin, before = from > 0 ? base_.calls[from - 1].live : 0;
      const size_t after = base_.calls[base_.first + c.end - 1].live;
      if (after < before + least) continue;
      const std::string kind = joined(c.module->str(), ' ', c.calls, ' ', c.cost, ' ', after - before);
      const auto [entry, is_new] = known.emplace(kind, 0);
      if (is_new) {
        const size_t held = measure(std::vector<Module*>{c.module}).bytes_at_backward();
        entry->second = base_.bytes_at_backward() > held ? base_.bytes_at_backward() - held : 0;
      }
      c.saves = entry->second;
      if (c.saves >= least) candidates_.push_back(c);
    }
    find_live_bytes();
  }

  // Computes, for each place, the most live bytes at the times when only modules that end at or before it are between their forward
  // and their backward. A target below these bytes is the savings required of those modules.
  void find_live_bytes() {
    live_by_place_.assign(base_.forward_end - base_.first + 1, 0);
    size_t highest = base_.first > 0 ? base_.calls[base_.first - 1].peak : 0;
    for (size_t t = base_.first; t < base_.calls.size(); ++t) {
      const LoggedCall& call = base_.calls[t];
      const size_t live = call.peak > highest ? call.peak : call.live;  // within the call, if known
      highest = std::max(highest, call.peak);
      size_t place = 0;
      if (t < base_.forward_end) {
        place = t - base_.first + 1;
      } else {
        for (const Candidate& c : candidates_)
          if (c.backward_begin > t) place = std::max(place, c.end);
      }
      live_by_place_[place] = std::max(live_by_place_[place], live);
    }
  }

  std::optional<std::vector<size_t>> solve(double target) const {
    IntervalCover problem;
    target += double(options_.others.live);
    for (const size_t live : live_by_place_) problem.needs.push_back(std::max(0.0, double(live) - target));
    for (const Candidate& c : candidates_) problem.items.push_back({c.begin, c.end, double(c.saves), c.cost});
    return cheapest(problem);
  }

  // Finds a choice that fits. The model of times and bytes is approximate: if a measured step exceeds the budget, the next one
  // must save more.
  Choice find_fitting(size_t budget) const {
    Choice best;
    best.measured.memory.peak = std::numeric_limits<size_t>::max();
    double margin = 0;
    for (int i = 0; i < kAttempts; ++i) {
      const auto chosen = solve(double(budget) - margin);
      if (!chosen) break;
      MeasuredStep m = measure_choice(*chosen);
      const double excess = double(m.memory.peak) - double(budget);
      if (m.memory.peak < best.measured.memory.peak) best = {*chosen, std::move(m)};
      if (excess <= 0) break;
      margin += excess;
    }
    return best;
  }

  // Finds the choice with the smallest peak: bisects for the smallest target that a choice meets. The model of bytes is
  // approximate, so somewhat larger targets are measured, too.
  Choice find_smallest() const {
    double low = 0, high = double(base_.memory.peak);
    for (int i = 0; i < kBisections; ++i) {
      const double middle = (low + high) / 2;
      (solve(middle) ? high : low) = middle;
    }
    Choice best{{}, base_};
    for (const double factor : {1.0, 1.005, 1.01, 1.02, 1.04, 1.08}) {
      const auto chosen = solve(high * factor);
      if (!chosen) continue;
      MeasuredStep m = measure_choice(*chosen);
      if (m.memory.peak < best.measured.memory.peak) best = {*chosen, std::move(m)};
    }
    return best;
  }

  // Drops modules that are not needed, most expensive first.
  void drop_needless(Choice& choice, size_t budget) const {
    std::vector<size_t> order = choice.chosen;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return candidates_[a].cost > candidates_[b].cost; });
    if (order.size() > kRemovals) order.resize(kRemovals);
    for (const size_t i : order) {
      std::vector<size_t> fewer = choice.chosen;
      std::erase(fewer, i);
      MeasuredStep m = measure_choice(fewer);
      if (m.memory.peak <= budget) choice = {std::move(fewer), std::move(m)};
    }
  }

  [[noreturn]] void throw_does_not_fit(size_t budget, const MeasuredStep& least) const {
    std::vector<std::pair<size_t, std::string>> purposes, layers;
    for (int i = 0; i < kMemoryTagCount; ++i) purposes.emplace_back(least.memory.peak_by_tag[size_t(i)], name(MemoryTag(i)));
    std::map<std::string, int64_t> growth;  // of the live bytes over the forward
    for (size_t t = least.first; t < least.forward_end; ++t) {
      const LoggedCall& call = least.calls[t];
      const size_t before = t > 0 ? least.calls[t - 1].live : call.live;
      growth[call.layer.empty() ? call.op : call.layer] += int64_t(call.live) - int64_t(before);
    }
    for (const auto& [layer, bytes] : growth) layers.emplace_back(size_t(std::max<int64_t>(bytes, 0)), layer);
    const size_t peak = least.memory.peak + options_.others.live;
    const auto reached = std::find_if(least.calls.begin(), least.calls.end(), [&](const LoggedCall& c) { return c.peak == peak; });
    std::string place;
    if (reached != least.calls.end()) {
      place = joined(", in ", reached->op, reached->layer.empty() ? "" : " of " + reached->layer, ", ", name(reached->pass));
      if (reached->pass != StepPass::update) place += "; most is kept for backward by " + largest(layers, 3);
    }
    fail<MemoryError>(options_.where, "the peak of a training step must be at most ", budget,
                      " bytes, the smallest that recomputation reaches is ", least.memory.peak, ": ", largest(purposes, 4), place,
                      Help{"smaller batches with more accumulation, mixed precision, or an optimizer with less state"});
  }

  // Returns "fc1 2.0 MB, fc2 1.0 MB": the largest of (bytes, name) pairs.
  static std::string largest(std::vector<std::pair<size_t, std::string>> parts, size_t count) {
    std::stable_sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    std::string out;
    for (size_t i = 0; i < std::min(count, parts.size()); ++i)
      if (parts[i].first > 0) out += joined(out.empty() ? "" : ", ", parts[i].second, ' ', bytes_of(parts[i].first));
    return out;
  }

  Module& model_;
  const std::function<void()>& step_;
  const RecomputationOptions& options_;
  MeasuredStep base_;
  std::vector<Candidate> candidates_;
  std::vector<size_t> live_by_place_;  // by place: the most live bytes while only modules that end at or before it hold activations
};

}  // namespace

RecomputationPlan plan_recomputation(Module& model, const std::function<void()>& step, size_t budget,
                                     const RecomputationOptions& options) {
  step();  // allocates the optimizer's state
  return Planner(model, step, options).run(budget);
}

void recompute_modules(Module& model, const std::vector<std::string>& names) {
  std::map<std::string, Module*> modules;
  std::vector<std::string> known;
  for (const auto& [name, module] : model.named_modules()) modules[name] = module, known.push_back(name);
  for (const std::string& wanted : names) {
    if (!modules.contains(wanted)) {
      const std::string near = nearest_name(wanted, known);
      fail<ValueError>("recompute_modules", "\"", wanted, "\" is no module of the model",
                       near.empty() ? "" : "; did you mean \"" + near + "\"?");
    }
    modules[wanted]->recompute_in_backward(true);
  }
}

}  // namespace halfstep
