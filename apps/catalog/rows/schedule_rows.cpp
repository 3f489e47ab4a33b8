// SPDX-License-Identifier: Apache-2.0
// Rows of schedules.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "apps/catalog/optimizers.h"
#include "apps/catalog/option_fields.h"
#include "optim/schedule_parts.h"

namespace halfstep::app {
namespace {

constexpr int kMaxMilestones = 1000, kMaxChained = 20;

// Returns the number of steps in a schedule's unit of time.
int64_t unit_of(const Json& self, const RunLength& run) { return self["interval"] == "epoch" ? run.steps_per_epoch : 1; }

// Makes the row of a schedule of this library, with a field for each option. complete(options, self, run) sets what a config says
// otherwise, where `run` is in the unit that the schedule counts in.
template <class S, class Complete>
SchedulerRow listed_row(std::string doc, const Complete& complete) {
  using O = typename S::Options;
  return {{S::kName, std::move(doc), fields_of(defaults_of<O>(), {.most = kMaxCount})},
          [complete](const Json& self, Optimizer& optimizer, const RunLength& run) -> SchedulePtr {
            O options = defaults_of<O>();
            read_options(self, options);
            complete(options, self, run);
            return std::make_shared<S>(optimizer, options);
          }};
}
template <class S>
SchedulerRow listed_row(std::string doc) {
  return listed_row<S>(std::move(doc), [](auto&, const Json&, const RunLength&) {});
}
// Returns the row with an option that a config may leave out.
SchedulerRow with_optional(SchedulerRow row, const char* key, const char* default_text) {
  Field& f = field_of(row.component, key);
  f.fallback = nullptr, f.needed = false, f.doc += joined("; left out: ", default_text);
  return row;
}
// Returns the row without options that a config cannot set, or sets by other keys.
SchedulerRow without_options(SchedulerRow row, const std::vector<std::string_view>& keys) {
  std::erase_if(row.component.fields, [&](const Field& f) { return std::find(keys.begin(), keys.end(), f.key) != keys.end(); });
  return row;
}
// Returns the row with a factor that is not 0.
SchedulerRow with_factor(SchedulerRow row) {
  Field& f = field_of(row.component, "gamma");
  f = f.above(0);
  return row;
}
// Returns the row with its option warmup_steps called "rise", as "warmup_steps" is a line before the schedule.
SchedulerRow with_rise(SchedulerRow row, const Json& default_value) {
  Field& f = field_of(row.component, "warmup_steps");
  f.key = "rise", f.fallback = default_value, f.needed = default_value.is_null();
  return row;
}

// Constructs the schedule of `self`, stepped at its interval and after its warm-up.
SchedulePtr make_schedule(const Json& self, Optimizer& optimizer, const RunLength& run) {
  const SchedulerRow& row = scheduler_catalog().row(self);
  if (row.own_clock) return row.make(self, optimizer, run);
  const int64_t warmup = self["warmup_steps"], unit = unit_of(self, run);
  RunLength own = run;
  own.total_steps = (std::max<int64_t>(run.total_steps - warmup, 1) + unit - 1) / unit;
  SchedulePtr out = row.make(self, optimizer, own);
  if (unit > 1) out = std::make_shared<Epochs>(optimizer, std::move(out), unit);
  return warmup > 0 ? std::make_shared<WarmupLR>(optimizer, std::move(out), warmup) : std::move(out);
}

// Functions for listed_row().
constexpr auto fill_total_iters = [](auto& o, const Json& self, const RunLength& run) {
  if (self["total_iters"].is_null()) o.total_iters = run.total_steps;
};
constexpr auto take_rise = [](auto& o, const Json& self, const RunLength&) { o.warmup_steps = self["rise"].get<int64_t>(); };

void add_decays(Catalog<SchedulerRow>& made) {
  made.add(with_factor(listed_row<StepLR>("lr gamma^(count / step_size)")));
  SchedulerRow steps = with_factor(listed_row<MultiStepLR>("lr gamma^(milestones passed)"));
  Field& milestones = field_of(steps.component, "milestones");
  milestones = milestones.items(1, kMaxMilestones);
  made.add(std::move(steps));
  made.add(with_factor(listed_row<ExponentialLR>("lr gamma^count")));
  made.add(with_optional(listed_row<PolynomialLR>("lr (1 - count / total_iters)^power", fill_total_iters), "total_iters",
                         "at the end of training"));
  made.add(with_optional(listed_row<LinearLR>("a line from lr start_factor to lr end_factor", fill_total_iters), "total_iters",
                         "to the end of training"));
  SchedulerRow constant = listed_row<ConstantLR>("lr factor until total_iters, then lr");
  Field& length = field_of(constant.component, "total_iters");
  length = length.at_least(1);
  made.add(std::move(constant));
}

void add_curves(Catalog<SchedulerRow>& made) {
  // This one is smooth within epochs too, and warms up by itself.
  SchedulerRow cosine = listed_row<CosineAnnealingLR>(
      "warm-up, then half a cosine down to eta_min", [](CosineAnnealingLROptions& o, const Json& self, const RunLength& run) {
        const int64_t t_max = self["T_max"].is_null() ? run.total_steps : *o.T_max * unit_of(self, run);
        check<ConfigError>(o.warmup_steps < t_max, "scheduler.warmup_steps", "must be less than the ", t_max,
                           " steps until T_max, got ", o.warmup_steps);
        o.T_max = t_max;
      });
  cosine.own_clock = true;
  made.add(without_options(with_optional(std::move(cosine), "T_max", "at the end of training"), {"warmup_steps"}));
  made.add(listed_row<CosineAnnealingWarmRestarts>("half a cosine down to eta_min, again and again"));
  made.add(with_rise(listed_row<InverseSqrtLR>("a line up to lr, then lr sqrt(rise / count)", take_rise), nullptr));
  made.add(with_rise(listed_row<NoamLR>("lr d_model^-0.5 min(t^-0.5, t rise^-1.5), of the first transformer", take_rise), 4000));
}

void add_others(Catalog<SchedulerRow>& made) {
  made.add(without_options(
      with_optional(listed_row<OneCycleLR>("up to max_lr and down to nearly 0; the momentum moves in the opposite direction",
                                           [](OneCycleOptions& o, const Json&, const RunLength& run) {
                                             if (o.total_steps == 0) o.total_steps = run.total_steps;
                                             check<ConfigError>(o.total_steps >= run.total_steps, "scheduler.total_steps",
                                                                "must be at least the ", run.total_steps,
                                                                " steps or epochs of training, got ", o.total_steps);
                                           }),
                    "total_steps", "to the end of training"),
      {"epochs", "steps_per_epoch"}));
  made.add(listed_row<CyclicLR>("from base_lr to max_lr and back; the momentum moves in the opposite direction"));
  SchedulerRow row = listed_row<WSDLR>("warm-up, stable, decay: lr until the decay, which ends with training",
                                       [](WSDOptions& o, const Json& self, const RunLength& run) {
                                         const double share = self["decay_share"];
                                         o.decay_steps = std::max<int64_t>(int64_t(double(run.total_steps) * share), 1);
                                         o.warmup_steps = 0, o.stable_steps = run.total_steps - o.decay_steps;
                                       });
  row.component.fields = {number("decay_share", 0.2, "share of the decay").above(0).at_most(1), field_of(row.component, "decay"),
                          field_of(row.component, "min_factor")};
  made.add(std::move(row));
  made.add(without_options(
      listed_row<ReduceLROnPlateau>("lr factor each time the value that checkpoint.monitor names has stopped improving",
                                    [](PlateauOptions& o, const Json&, const RunLength& run) { o.mode = run.monitor_mode; }),
      {"mode"}));
}

// Constructs a list of schedules that follow one another; the last one runs to the end.
SchedulePtr build_sequence(const Json& list, Optimizer& optimizer, const RunLength& run) {
  std::vector<SchedulePtr> parts;
  std::vector<int64_t> milestones;
  int64_t at = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    const Json& self = list[i];
    const bool last = i + 1 == list.size();
    const std::string where = joined("scheduler.", i);
    check<ConfigError>(last || !self["length"].is_null(), where, "needs a \"length\", as another schedule follows");
    const int64_t length =
        self["length"].is_null() ? std::max<int64_t>(run.total_steps - at, 1) : self["length"].get<int64_t>() * unit_of(self, run);
    RunLength own = run;
    own.total_steps = length;
    parts.push_back(make_schedule(self, optimizer, own));
    at += length;
    if (!last) milestones.push_back(at);
  }
  return std::make_shared<SequentialLR>(optimizer, std::move(parts), std::move(milestones));
}

}  // namespace

Catalog<SchedulerRow>& scheduler_catalog() {
  static Catalog<SchedulerRow>& catalog = *[] {
    auto* const made = new Catalog<SchedulerRow>(
        "scheduler",
        {choice("interval", "step", {"step", "epoch"}, "unit of the schedule"),
         integer("warmup_steps", 0, "steps from lr/warmup_steps up to lr, before it").at_least(0).at_most(kMaxCount),
         integer("length", nullptr, "in a list: how long until the next one, see interval").at_least(1).at_most(kMaxCount)});
    add_decays(*made);
    add_curves(*made);
    add_others(*made);
    made->add({{"ChainedScheduler",
                "several at once: each starts from the rate of the one before",
                {list("schedulers", nullptr, component("", made->family(), "a schedule"), "the schedules")
                     .items(1, kMaxChained)
                     .required()}},
               [](const Json& self, Optimizer& optimizer, const RunLength& run) -> SchedulePtr {
                 std::vector<SchedulePtr> parts;
                 for (const Json& part : self["schedulers"]) parts.push_back(make_schedule(part, optimizer, run));
                 return std::make_shared<ChainedScheduler>(optimizer, std::move(parts));
               }});
    return made;
  }();
  return catalog;
}

SchedulePtr build_scheduler(const Json& self, Optimizer& optimizer, const RunLength& run) {
  if (self.is_null()) return nullptr;
  if (self.is_array()) return build_sequence(self, optimizer, run);
  return make_schedule(self, optimizer, run);
}

}  // namespace halfstep::app
