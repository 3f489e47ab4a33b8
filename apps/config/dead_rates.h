// SPDX-License-Identifier: Apache-2.0
// Finds schedules whose learning rate is 0, or next to it, in much of the run.
#pragma once

#include <string>

#include "apps/catalog/optimizers.h"

namespace halfstep::app {

// Describes the fault of a schedule whose rate, once above it, is below a millionth of its largest in more than a tenth of the
// steps of a run; with a change of `scheduler` that helps, if there is one. Empty: the rates are fine. steps_are_known: those of an
// epoch.
std::string dead_rates(const Json& scheduler, Optimizer& optimizer, const Schedule& schedule, const RunLength& run,
                       bool steps_are_known);

}  // namespace halfstep::app
