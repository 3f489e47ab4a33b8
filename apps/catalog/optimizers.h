// The catalogues of optimizers and schedules.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/catalog/catalog.h"
#include "layers/module.h"
#include "optim/optimizers.h"
#include "optim/schedule.h"

namespace halfstep::app {

struct OptimizerRow {
  Component component;
  std::function<std::unique_ptr<Optimizer>(const Json& self, std::vector<ParamGroup> groups)> make;
};
Catalog<OptimizerRow>& optimizer_catalog();
inline const Family& optimizer_family() { return optimizer_catalog().family(); }

// Of a class whose constructor takes the parameter groups and then the values of its fields.
template <class O, class... Ts>
OptimizerRow optimizer_row(std::string type, std::string doc, Arg<Ts>... args) {
  return {{std::move(type), std::move(doc), {args.field...}},
          [args...](const Json& self, std::vector<ParamGroup> groups) -> std::unique_ptr<Optimizer> {
            return std::make_unique<O>(std::move(groups), value_of(self, args)...);
          }};
}

// Parameters fall into the first of `groups` whose pattern is found in their name. Throws ConfigError for a pattern that none has.
std::unique_ptr<Optimizer> build_optimizer(const Json& optimizer, const Module& model);

// How long a run is, in optimizer steps.
struct RunLength {
  int64_t steps_per_epoch, total_steps;
};
struct SchedulerRow {
  Component component;
  std::function<std::unique_ptr<Schedule>(const Json& self, Optimizer& optimizer, const RunLength& run)> make;
};
Catalog<SchedulerRow>& scheduler_catalog();
inline const Family& scheduler_family() { return scheduler_catalog().family(); }

// Of a class whose constructor takes the optimizer and then the values of its fields.
template <class S, class... Ts>
SchedulerRow scheduler_row(std::string type, std::string doc, Arg<Ts>... args) {
  return {{std::move(type), std::move(doc), {args.field...}},
          [args...](const Json& self, Optimizer& optimizer, const RunLength&) -> std::unique_ptr<Schedule> {
            return std::make_unique<S>(optimizer, value_of(self, args)...);
          }};
}

// `optimizer` must outlive the result. Null config: null.
std::unique_ptr<Schedule> build_scheduler(const Json& scheduler, Optimizer& optimizer, const RunLength& run);

}  // namespace halfstep::app

// As HALFSTEP_REGISTER_MODULE, for classes derived from Optimizer and Schedule.
#define HALFSTEP_REGISTER_OPTIMIZER(Class, ...) HALFSTEP_REGISTER(optimizer, Class __VA_OPT__(, ) __VA_ARGS__)
#define HALFSTEP_REGISTER_SCHEDULER(Class, ...) HALFSTEP_REGISTER(scheduler, Class __VA_OPT__(, ) __VA_ARGS__)
