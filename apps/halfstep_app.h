// SPDX-License-Identifier: Apache-2.0
// The halfstep program as a library: run_program, trained models in use, and the macros that register a program's own layers,
// losses, metrics, optimizers, schedules, data sets and transforms. #include <halfstep_app.h>
#pragma once

#include "apps/catalog/datasets.h"
#include "apps/catalog/losses.h"
#include "apps/catalog/metrics.h"
#include "apps/catalog/modules.h"
#include "apps/catalog/optimizers.h"
#include "apps/catalog/transforms.h"
#include "apps/commands/program.h"
#include "apps/use/predictor.h"
