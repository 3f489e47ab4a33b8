// SPDX-License-Identifier: Apache-2.0
// Everything a program that trains needs. #include <halfstep.h>
#pragma once

#include "amp/amp.h"
#include "framework/autograd/autograd.h"
#include "framework/autograd/function.h"
#include "framework/autograd/functional.h"
#include "framework/autograd/gradcheck.h"
#include "framework/autograd/recompute.h"
#include "framework/backend/op_log.h"
#include "framework/data/data.h"
#include "framework/distributions/distributions.h"
#include "framework/io/io.h"
#include "framework/ops/ops.h"
#include "framework/tensor/memory.h"
#include "layers/nn.h"
#include "optim/optim.h"
