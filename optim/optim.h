// SPDX-License-Identifier: Apache-2.0
// torch.optim's names: optim::AdamW, optim::lr_scheduler::LambdaLR, for the classes of namespace halfstep. nn::utils has the
// functions on gradients and parameters, as torch.nn.utils does.
#pragma once

#include "optim/averages.h"
#include "optim/clip.h"
#include "optim/lbfgs.h"
#include "optim/optimizers.h"
#include "optim/schedule.h"
#include "optim/schedule_parts.h"
#include "optim/two_pass.h"

namespace halfstep {

namespace optim {
using namespace halfstep;

namespace lr_scheduler {
using namespace halfstep;
}

}  // namespace optim

namespace nn::utils {
using namespace halfstep;
}

}  // namespace halfstep
