// SPDX-License-Identifier: Apache-2.0
// The catalogues of optimizers and schedules.
#pragma once

#include <any>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/catalog/catalog.h"
#include "layers/module/module.h"
#include "optim/optimizers.h"
#include "optim/schedule.h"

namespace halfstep::app {

struct OptimizerRow {
  Component component;
  std::function<std::unique_ptr<Optimizer>(const Json& self, std::vector<ParamGroup> groups)> make;
  // Returns the optimizer's options, overridden by those of a group (null: none). Empty: groups have only lr and weight_decay.
  std::function<std::any(const Json& self, const Json& group)> options = {};
};
Catalog<OptimizerRow>& optimizer_catalog();
inline const Family& optimizer_family() { return optimizer_catalog().family(); }

// Makes the row of a class whose constructor takes the parameter groups and then the values of its fields.
template <class O, class... Ts>
OptimizerRow optimizer_row(std::string type, std::string doc, Arg<Ts>... args) {
  return {{std::move(type), std::move(doc), {args.field...}},
          [args...](const Json& self, std::vector<ParamGroup> groups) -> std::unique_ptr<Optimizer> {
            return std::make_unique<O>(std::move(groups), value_of(self, args)...);
          }};
}

// Puts each parameter into the first of `groups` whose pattern matches its name. Throws ConfigError for a pattern that matches
// none.
std::unique_ptr<Optimizer> build_optimizer(const Json& optimizer, const Module& model);

// The length of a run, or of a schedule's part of it, in optimizer steps.
struct RunLength {
  int64_t steps_per_epoch, total_steps;
  std::string monitor_mode = "min";  // "max": a larger value of checkpoint.monitor is better
};
struct SchedulerRow {
  Component component;
  std::function<std::shared_ptr<Schedule>(const Json& self, Optimizer& optimizer, const RunLength& run)> make;
  // The schedule counts steps for any interval, and warms up by itself. Else `run` is in units of the interval and without the
  // warm-up.
  bool own_clock = false;
};
Catalog<SchedulerRow>& scheduler_catalog();
inline const Family& scheduler_family() { return scheduler_catalog().family(); }

// Makes the row of a class whose constructor takes the optimizer and then the values of its fields.
template <class S, class... Ts>
SchedulerRow scheduler_row(std::string type, std::string doc, Arg<Ts>... args) {
  return {{std::move(type), std::move(doc), {args.field...}},
          [args...](const Json& self, Optimizer& optimizer, const RunLength&) -> std::shared_ptr<Schedule> {
            return std::make_shared<S>(optimizer, value_of(self, args)...);
          }};
}

// Constructs one schedule, or a list of schedules that follow one another. `optimizer` must outlive the result. Null for a null
// config.
std::shared_ptr<Schedule> build_scheduler(const Json& scheduler, Optimizer& optimizer, const RunLength& run);

}  // namespace halfstep::app

// Register classes derived from Optimizer and Schedule, as HALFSTEP_REGISTER_MODULE does.
#define HALFSTEP_REGISTER_OPTIMIZER(Class, ...) HALFSTEP_REGISTER(optimizer, Class __VA_OPT__(, ) __VA_ARGS__)
#define HALFSTEP_REGISTER_SCHEDULER(Class, ...) HALFSTEP_REGISTER(scheduler, Class __VA_OPT__(, ) __VA_ARGS__)
