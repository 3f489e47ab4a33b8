// The catalogues of losses, optimizers and schedules.
#pragma once

#include <memory>

#include "apps/build/facts.h"
#include "apps/config/schema.h"
#include "layers/layers.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"

namespace halfstep::app {

const Family& loss_family();
const Family& optimizer_family();
const Family& scheduler_family();

std::unique_ptr<Loss> build_loss(const Json& loss);
// Does the loss fit what the model puts out and the data asks for? Paths "loss" and "model".
void check_loss(const Json& loss, const Shape& output, const DataFacts& facts, Issues& issues);

// Are the patterns of the optimizer's groups regular expressions? Paths "optimizer.groups.N.match".
void check_groups(const Json& groups, Issues& issues);
// Parameters fall into the first of `groups` whose pattern is found in their name. Throws ConfigError for a pattern that none has.
std::unique_ptr<Optimizer> build_optimizer(const Json& optimizer, const Module& model);

// `optimizer` must outlive the result. Null config: null. steps: optimizer steps.
std::unique_ptr<Schedule> build_scheduler(const Json& scheduler, Optimizer& optimizer, int64_t steps_per_epoch,
                                          int64_t total_steps);

}  // namespace halfstep::app
