// Everything a program that trains needs. #include <halfstep.h>
#pragma once

#include "amp/autocast.h"
#include "amp/grad_scaler.h"
#include "amp/train_step.h"
#include "framework/autograd/autograd.h"
#include "framework/autograd/checkpoint.h"
#include "framework/autograd/function.h"
#include "framework/autograd/gradcheck.h"
#include "framework/backend/ledger.h"
#include "framework/ops/ops.h"
#include "framework/tensor/memory.h"
#include "layers/containers.h"
#include "layers/layers.h"
#include "layers/save.h"
#include "optim/clip.h"
#include "optim/optimizers.h"
#include "optim/schedule.h"
