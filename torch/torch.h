// SPDX-License-Identifier: Apache-2.0
// All of the room: programs for libtorch include <torch/torch.h>.
#pragma once

#include "torch/amp/amp.h"
#include "torch/c10d/process_group.h"
#include "torch/data/chunk.h"
#include "torch/data/loader.h"
#include "torch/nn/clip.h"
#include "torch/nn/init.h"
#include "torch/nn/modules/activation.h"
#include "torch/nn/modules/conv.h"
#include "torch/nn/modules/linear.h"
#include "torch/nn/modules/loss.h"
#include "torch/nn/modules/norm.h"
#include "torch/nn/modules/other.h"
#include "torch/nn/modules/pooling.h"
#include "torch/nn/modules/rnn.h"
#include "torch/nn/modules/transformer.h"
#include "torch/nn/traits.h"
#include "torch/optim/optim.h"
#include "torch/serialize/script.h"
#include "torch/serialize/serialize.h"
