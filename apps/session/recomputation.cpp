// SPDX-License-Identifier: Apache-2.0
#include "apps/session/recomputation.h"

#include <algorithm>
#include <utility>

#include "apps/session/meta_step.h"
#include "apps/session/ranks.h"
#include "apps/terminal/quantity_text.h"
#include "framework/backend/backend.h"
#include "framework/backend/reports.h"
#include "framework/io/files/free_memory.h"

namespace halfstep::app {
namespace {

constexpr double kFreeShare = 0.9;  // share of the device's memory to use: the rest is for data, libraries and other programs
constexpr int kMostRounds = 3;      // of planning

// Returns the number of ranks that share the device's memory: all of the machine on a CPU, one on a GPU.
int sharers(ProcessGroup& group, Device device) {
  if (!device.is_cpu()) return 1;
  const std::vector<std::string> hosts = group.gather(host_name());
  return int(std::count(hosts.begin(), hosts.end(), hosts[size_t(group.rank())]));
}

// Plans for the peak of a step after the first, which usually has a lower one, because the optimizer has no state yet. If a run of
// the plan exceeds the budget, plans again for a budget that is smaller by the excess.
RecomputationPlan fitting_plan(const Config& config, int64_t batch, double budget, const RecomputationOptions& given, int ranks) {
  double excess = 0;
  RecomputationPlan plan;
  for (int round = 0; round < kMostRounds; ++round) {
    {
      MetaStep step(config, batch, {}, ranks);
      RecomputationOptions options = given;
      options.others = step.others();
      plan = plan_recomputation(
          step.model(), [&] { step.run_as_second(); }, size_t(std::max(0.0, budget - excess)), options);
    }
    MetaStep step(config, batch, plan.modules, ranks);
    allocator(Device::meta).reset_peak();
    step.run();
    const double over = double(step.peak().peak) - budget;
    if (over <= 0 || !given.must_fit) break;
    excess += over;
  }
  return plan;
}

std::string names_text(const std::vector<std::string>& names) {
  constexpr size_t kShown = 4;
  std::string out;
  for (size_t i = 0; i < names.size(); ++i) {
    if (names.size() > kShown && i >= kShown - 1 && i + 1 < names.size()) continue;
    out += (out.empty() ? "" : names.size() > kShown && i + 1 == names.size() ? ", ..., " : ", ") + names[i];
  }
  return out;
}

}  // namespace

double free_device_memory(Device device) {
  if (device.is_cuda() && has_backend(device.type)) {
    auto* const reporter = dynamic_cast<MemoryReporter*>(&backend_for(device));
    return reporter ? double(reporter->available_memory()) : 0;
  }
  return device.is_cpu() ? free_memory() : 0;
}

std::optional<Recomputation> choose_recomputation(const Config& config, int64_t batch, ProcessGroup* group) {
  const TrainSection& t = config.train;
  if (!t.chooses_recomputation()) return {};
  Recomputation out;
  RecomputationOptions options{.where = "train.memory_budget"};
  if (t.memory_budget) {
    out.budget = double(t.memory_budget->bytes);
    out.budget_is = "train.memory_budget";
  } else {
    const int ranks = group ? sharers(*group, config.device) : 1;
    out.budget = kFreeShare * free_device_memory(config.device) / ranks;
    out.budget_is = joined(100 * kFreeShare, " % of the free memory of ",
                           config.device.is_cpu() ? std::string("this machine") : joined(config.device),
                           ranks > 1 ? joined(", which ", ranks, " ranks share") : "");
    options.must_fit = false;
    if (group) out.budget = value_of_rank0(*group, out.budget).get<double>();
    if (out.budget <= 0) return out;
  }
  out.plan = fitting_plan(config, batch, out.budget, options, group ? group->size() : 1);
  if (group) out.plan.modules = value_of_rank0(*group, out.plan.modules).get<std::vector<std::string>>();
  return out;
}

std::string text(const Recomputation& chosen) {
  const RecomputationPlan& plan = chosen.plan;
  if (chosen.budget <= 0)
    return "the memory of the device is not known here, so nothing is computed again; set train.memory_budget";
  const std::string budget = joined(bytes_text(chosen.budget), ", ", chosen.budget_is);
  const double before = double(plan.before.peak), after = double(plan.after.peak);
  const std::string above_budget = after > chosen.budget ? "; no choice has a lower peak, which is above the budget" : "";
  if (plan.modules.empty())
    return joined("budget ", budget, ": nothing is computed again, the peak of a step is ", bytes_text(before), above_budget);
  return joined("budget ", budget, ": ", plan.modules.size(), plan.modules.size() == 1 ? " module is" : " modules are",
                " computed again in backward, ", names_text(plan.modules), "; peak of a step ", bytes_text(before), " -> ",
                bytes_text(after), ", ", number_text(100 * plan.repeated(), 3), " % more operations", above_budget);
}

Json to_json(const Recomputation& chosen) {
  const RecomputationPlan& plan = chosen.plan;
  const auto activations = [](const MemoryStats& m) { return m.peak_by_tag[size_t(MemoryTag::activations)]; };
  return {{"budget_bytes", chosen.budget > 0 ? Json(int64_t(chosen.budget)) : Json()},
          {"budget_is", chosen.budget_is},
          {"modules", plan.modules},
          {"peak_bytes_before", plan.before.peak},
          {"peak_bytes_after", plan.after.peak},
          {"activation_bytes_before", activations(plan.before)},
          {"activation_bytes_after", activations(plan.after)},
          {"flops_before", plan.flops_before},
          {"flops_after", plan.flops_after}};
}

}  // namespace halfstep::app
