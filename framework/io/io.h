// SPDX-License-Identifier: Apache-2.0
// Files of weights and of runs: safetensors, files of torch.save, checkpoints.
#pragma once

#include "framework/io/checkpoint/checkpoint.h"
#include "framework/io/weights/safetensors.h"
#include "framework/io/weights/torch_file.h"
