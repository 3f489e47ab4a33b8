// SPDX-License-Identifier: Apache-2.0
// torch.optim's names: optim::AdamW, optim::lr_scheduler::StepLR. Each is the class of namespace halfstep. nn::utils has the
// functions on gradients and parameters, as torch.nn.utils.
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

using halfstep::ASGD, halfstep::Adadelta, halfstep::Adafactor, halfstep::Adagrad, halfstep::Adam, halfstep::AdamW,
    halfstep::Adamax, halfstep::LBFGS, halfstep::Muon, halfstep::NAdam, halfstep::Optimizer, halfstep::RAdam, halfstep::RMSprop,
    halfstep::Rprop, halfstep::SGD;
using halfstep::ASGDOptions, halfstep::AdadeltaOptions, halfstep::AdafactorOptions, halfstep::AdagradOptions, halfstep::AdamOptions,
    halfstep::AdamWOptions, halfstep::AdamaxOptions, halfstep::LBFGSOptions, halfstep::MuonOptions, halfstep::NAdamOptions,
    halfstep::ParamGroup, halfstep::RAdamOptions, halfstep::RMSpropOptions, halfstep::RpropOptions, halfstep::SGDOptions;

namespace lr_scheduler {

using halfstep::ChainedScheduler, halfstep::ConstantLR, halfstep::CosineAnnealingLR, halfstep::CosineAnnealingWarmRestarts,
    halfstep::CyclicLR, halfstep::ExponentialLR, halfstep::LambdaLR, halfstep::LinearLR, halfstep::MultiStepLR,
    halfstep::MultiplicativeLR, halfstep::OneCycleLR, halfstep::PolynomialLR, halfstep::ReduceLROnPlateau, halfstep::SequentialLR,
    halfstep::StepLR;

}  // namespace lr_scheduler

}  // namespace optim

namespace nn::utils {

using halfstep::clip_grad_norm_, halfstep::clip_grad_value_, halfstep::parameters_to_vector, halfstep::vector_to_parameters;

}  // namespace nn::utils

}  // namespace halfstep
