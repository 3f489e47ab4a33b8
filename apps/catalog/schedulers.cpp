// SPDX-License-Identifier: Apache-2.0
// Rows of schedules.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "apps/catalog/optimizers.h"
#include "optim/schedule_parts.h"

namespace halfstep::app {
namespace {

// Returns the number of steps in a schedule's unit of time.
int64_t unit_of(const Json& self, const RunLength& run) { return self["interval"] == "epoch" ? run.steps_per_epoch : 1; }

Field count_field(const char* key, Json fallback, const char* doc, int64_t least = 1) {
  return integer(key, std::move(fallback), doc).at_least(double(least)).at_most(kMaxCount);
}

// Makes half a cosine, which is smooth within epochs too, and warms up by itself.
SchedulePtr make_cosine(const Json& self, Optimizer& optimizer, const RunLength& run) {
  const int64_t t_max = self["T_max"].is_null() ? run.total_steps : self["T_max"].get<int64_t>() * unit_of(self, run);
  const int64_t warmup = self["warmup_steps"];
  check<ConfigError>(warmup < t_max, "scheduler.warmup_steps", "must be less than the ", t_max, " steps until T_max, got ", warmup);
  return std::make_shared<CosineAnnealingLR>(optimizer, t_max, self["eta_min"].get<double>(), warmup);
}

// Makes a row from make(self, optimizer, length), where length is the run's length in the schedule's unit.
template <class Make>
SchedulerRow row_of(std::string type, std::string doc, std::vector<Field> fields, const Make& make) {
  return {{std::move(type), std::move(doc), std::move(fields)},
          [make](const Json& self, Optimizer& optimizer, const RunLength& run) -> SchedulePtr {
            return make(self, optimizer, run.total_steps);
          }};
}

// Constructs the schedule of `self`, stepped at its interval and after its warm-up.
SchedulePtr make_one(const Json& self, Optimizer& optimizer, const RunLength& run) {
  const SchedulerRow& row = scheduler_catalog().row(self);
  if (row.own_clock) return row.make(self, optimizer, run);
  const int64_t warmup = self["warmup_steps"], unit = unit_of(self, run);
  RunLength own = run;
  own.total_steps = (std::max<int64_t>(run.total_steps - warmup, 1) + unit - 1) / unit;
  SchedulePtr out = row.make(self, optimizer, own);
  if (unit > 1) out = std::make_shared<Epochs>(optimizer, std::move(out), unit);
  return warmup > 0 ? std::make_shared<WarmupLR>(optimizer, std::move(out), warmup) : std::move(out);
}

int64_t count_or(const Json& value, int64_t otherwise) { return value.is_null() ? otherwise : value.get<int64_t>(); }

template <class T>
void add_decays(T& made) {
  made.add(row_of(
      "StepLR", "lr gamma^(count / step_size)",
      {count_field("step_size", nullptr, "steps or epochs, see interval").required(), number("gamma", 0.1, "factor").above(0)},
      [](const Json& self, Optimizer& o, int64_t) {
        return std::make_shared<StepLR>(o, self["step_size"].template get<int64_t>(), self["gamma"].template get<double>());
      }));
  made.add(row_of("MultiStepLR", "lr gamma^(milestones passed)",
                  {list("milestones", nullptr, count_field("", nullptr, "count", 0), "when the rate falls, see interval")
                       .items(1, 1000)
                       .required(),
                   number("gamma", 0.1, "factor").above(0)},
                  [](const Json& self, Optimizer& o, int64_t) {
                    return std::make_shared<MultiStepLR>(o, self["milestones"].template get<std::vector<int64_t>>(),
                                                         self["gamma"].template get<double>());
                  }));
  made.add(row_of("ExponentialLR", "lr gamma^count", {number("gamma", nullptr, "factor of each step or epoch").above(0).required()},
                  [](const Json& self, Optimizer& o, int64_t) {
                    return std::make_shared<ExponentialLR>(o, self["gamma"].template get<double>());
                  }));
  made.add(row_of("PolynomialLR", "lr (1 - count / total_iters)^power",
                  {count_field("total_iters", nullptr, "when 0 is reached; left out: at the end of training"),
                   number("power", 1.0, "power").at_least(0)},
                  [](const Json& self, Optimizer& o, int64_t length) {
                    return std::make_shared<PolynomialLR>(o, count_or(self["total_iters"], length),
                                                          self["power"].template get<double>());
                  }));
  made.add(row_of("LinearLR", "a line from lr start_factor to lr end_factor",
                  {number("start_factor", 1.0 / 3, "of lr, at first").above(0).at_most(1),
                   number("end_factor", 1.0, "of lr, at last").at_least(0).at_most(1),
                   count_field("total_iters", nullptr, "how long; left out: to the end of training")},
                  [](const Json& self, Optimizer& o, int64_t length) {
                    return std::make_shared<LinearLR>(o, self["start_factor"].template get<double>(),
                                                      self["end_factor"].template get<double>(),
                                                      count_or(self["total_iters"], length));
                  }));
  made.add(row_of("ConstantLR", "lr factor until total_iters, then lr",
                  {number("factor", 1.0 / 3, "of lr").at_least(0).at_most(1), count_field("total_iters", 5, "how long")},
                  [](const Json& self, Optimizer& o, int64_t) {
                    return std::make_shared<ConstantLR>(o, self["factor"].template get<double>(),
                                                        self["total_iters"].template get<int64_t>());
                  }));
}

template <class T>
void add_curves(T& made) {
  made.add({{"CosineAnnealingLR",
             "warm-up, then half a cosine down to eta_min",
             {count_field("T_max", nullptr, "when eta_min is reached, in steps or epochs; left out: at the end of training"),
              number("eta_min", 0.0, "last learning rate").at_least(0)}},
            make_cosine,
            /*own_clock=*/true});
  made.add(row_of("CosineAnnealingWarmRestarts", "half a cosine down to eta_min, again and again",
                  {count_field("T_0", nullptr, "length of the first, see interval").required(),
                   count_field("T_mult", 1, "length of each cycle over that of the one before"),
                   number("eta_min", 0.0, "lowest learning rate").at_least(0)},
                  [](const Json& self, Optimizer& o, int64_t) {
                    return std::make_shared<CosineAnnealingWarmRestarts>(o, self["T_0"].template get<int64_t>(),
                                                                         self["T_mult"].template get<int64_t>(),
                                                                         self["eta_min"].template get<double>());
                  }));
  made.add(row_of("InverseSqrtLR", "a line up to lr, then lr sqrt(rise / count)",
                  {count_field("rise", nullptr, "steps of the line").required()}, [](const Json& self, Optimizer& o, int64_t) {
                    return std::make_shared<InverseSqrtLR>(o, self["rise"].template get<int64_t>());
                  }));
  made.add(
      row_of("NoamLR", "lr d_model^-0.5 min(t^-0.5, t rise^-1.5), of the first transformer",
             {count_field("d_model", nullptr, "width of the model").required(), count_field("rise", 4000, "steps of the rise")},
             [](const Json& self, Optimizer& o, int64_t) {
               return std::make_shared<NoamLR>(o, self["d_model"].template get<int64_t>(), self["rise"].template get<int64_t>());
             }));
}

template <class T>
void add_cycles(T& made) {
  made.add(row_of("OneCycleLR", "up to max_lr and down to nearly 0; the momentum moves in the opposite direction",
                  {number("max_lr", nullptr, "left out: the lr of the optimizer and its groups").above(0),
                   count_field("total_steps", nullptr, "left out: to the end of training"),
                   number("pct_start", 0.3, "share of the rise").at_least(0).at_most(1),
                   choice("anneal_strategy", "cos", {"cos", "linear"}, "shape"),
                   boolean("cycle_momentum", true, "move momentum, or the first beta, as well"),
                   number("base_momentum", 0.85, "at the top").at_least(0).below(1),
                   number("max_momentum", 0.95, "at both ends").at_least(0).below(1),
                   number("div_factor", 25.0, "max_lr over the first rate").above(0),
                   number("final_div_factor", 1e4, "the first rate over the last").above(0),
                   boolean("three_phase", false, "down as long as up, then a tail")},
                  [](const Json& self, Optimizer& o, int64_t length) {
                    const int64_t total = count_or(self["total_steps"], length);
                    check<ConfigError>(total >= length, "scheduler.total_steps", "must be at least the ", length,
                                       " steps or epochs of training, got ", total);
                    return std::make_shared<OneCycleLR>(
                        o, OneCycleOptions{.max_lr = self["max_lr"].is_null() ? 0 : self["max_lr"].template get<double>(),
                                           .total_steps = total,
                                           .pct_start = self["pct_start"],
                                           .anneal_strategy = self["anneal_strategy"],
                                           .cycle_momentum = self["cycle_momentum"],
                                           .base_momentum = self["base_momentum"],
                                           .max_momentum = self["max_momentum"],
                                           .div_factor = self["div_factor"],
                                           .final_div_factor = self["final_div_factor"],
                                           .three_phase = self["three_phase"]});
                  }));
  made.add(row_of(
      "CyclicLR", "from base_lr to max_lr and back; the momentum moves in the opposite direction",
      {number("base_lr", nullptr, "lowest rate").at_least(0).required(),
       number("max_lr", nullptr, "highest rate").above(0).required(), count_field("step_size_up", 2000, "length of the rise"),
       count_field("step_size_down", nullptr, "left out: as the rise"),
       choice("mode", "triangular", {"triangular", "triangular2", "exp_range"}, "height of later cycles"),
       number("gamma", 1.0, "of exp_range: gamma^count").above(0),
       boolean("cycle_momentum", true, "move momentum, or the first beta, as well"),
       number("base_momentum", 0.8, "at the top").at_least(0).below(1),
       number("max_momentum", 0.9, "at the bottom").at_least(0).below(1)},
      [](const Json& self, Optimizer& o, int64_t) {
        return std::make_shared<CyclicLR>(o, CyclicOptions{.base_lr = self["base_lr"],
                                                           .max_lr = self["max_lr"],
                                                           .step_size_up = self["step_size_up"],
                                                           .step_size_down = count_or(self["step_size_down"], 0),
                                                           .mode = self["mode"],
                                                           .gamma = self["gamma"],
                                                           .cycle_momentum = self["cycle_momentum"],
                                                           .base_momentum = self["base_momentum"],
                                                           .max_momentum = self["max_momentum"]});
      }));
}

template <class T>
void add_stable_decay(T& made) {
  made.add(row_of(
      "WSDLR", "warm-up, stable, decay: lr until the decay, which ends with training",
      {number("decay_share", 0.2, "share of the decay").above(0).at_most(1),
       choice("decay", "linear", {"linear", "cosine", "1-sqrt"}, "its shape"),
       number("min_factor", 0.0, "of lr, at last").at_least(0).at_most(1)},
      [](const Json& self, Optimizer& o, int64_t length) {
        const int64_t decay = std::max<int64_t>(int64_t(double(length) * self["decay_share"].template get<double>()), 1);
        return std::make_shared<WSDLR>(
            o, WSDOptions{
                   .stable_steps = length - decay, .decay_steps = decay, .min_factor = self["min_factor"], .decay = self["decay"]});
      }));
}

template <class T>
void add_plateau(T& made) {
  made.add({{"ReduceLROnPlateau",
             "lr factor each time the value that checkpoint.monitor names has stopped improving",
             {number("factor", 0.1, "factor").above(0).below(1), count_field("patience", 10, "evaluations without improvement", 0),
              number("threshold", 1e-4, "least improvement that counts").at_least(0),
              choice("threshold_mode", "rel", {"rel", "abs"}, "relative to the best value, or not"),
              count_field("cooldown", 0, "evaluations after a change that do not count", 0),
              number("min_lr", 0.0, "lowest rate").at_least(0), number("eps", 1e-8, "smaller changes are ignored").at_least(0)}},
            [](const Json& self, Optimizer& o, const RunLength& run) -> SchedulePtr {
              return std::make_shared<ReduceLROnPlateau>(o, PlateauOptions{.mode = run.monitor_mode,
                                                                           .factor = self["factor"],
                                                                           .patience = self["patience"],
                                                                           .threshold = self["threshold"],
                                                                           .threshold_mode = self["threshold_mode"],
                                                                           .cooldown = self["cooldown"],
                                                                           .min_lr = self["min_lr"],
                                                                           .eps = self["eps"]});
            }});
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
    parts.push_back(make_one(self, optimizer, own));
    at += length;
    if (!last) milestones.push_back(at);
  }
  return std::make_shared<SequentialLR>(optimizer, std::move(parts), std::move(milestones));
}

}  // namespace

Catalog<SchedulerRow>& scheduler_catalog() {
  static Catalog<SchedulerRow>& all = *[] {
    auto* const made = new Catalog<SchedulerRow>(
        "scheduler", {choice("interval", "step", {"step", "epoch"}, "unit of the schedule"),
                      integer("warmup_steps", 0, "steps from lr/warmup_steps up to lr, before it").at_least(0).at_most(kMaxCount),
                      count_field("length", nullptr, "in a list: how long until the next one, see interval")});
    add_decays(*made);
    add_curves(*made);
    add_cycles(*made);
    add_stable_decay(*made);
    add_plateau(*made);
    made->add(
        {{"ChainedScheduler",
          "several at once: each starts from the rate of the one before",
          {list("schedulers", nullptr, component("", made->family(), "a schedule"), "the schedules").items(1, 20).required()}},
         [](const Json& self, Optimizer& optimizer, const RunLength& run) -> SchedulePtr {
           std::vector<SchedulePtr> parts;
           for (const Json& part : self["schedulers"]) parts.push_back(make_one(part, optimizer, run));
           return std::make_shared<ChainedScheduler>(optimizer, std::move(parts));
         }});
    return made;
  }();
  return all;
}

SchedulePtr build_scheduler(const Json& self, Optimizer& optimizer, const RunLength& run) {
  if (self.is_null()) return nullptr;
  if (self.is_array()) return build_sequence(self, optimizer, run);
  return make_one(self, optimizer, run);
}

}  // namespace halfstep::app
