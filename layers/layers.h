// SPDX-License-Identifier: Apache-2.0
// Every layer and loss. Constructor arguments, defaults, initialisation, names in the state_dict and printed text are PyTorch's;
// docs/layers.md lists them. What is optional comes as a struct: Conv2d(3, 16, 5, {.stride = 2, .padding = 2}).
#pragma once

#include "layers/activations.h"
#include "layers/adaptive_softmax.h"
#include "layers/attention.h"
#include "layers/containers.h"
#include "layers/convolution.h"
#include "layers/decode.h"
#include "layers/dropout.h"
#include "layers/embedding.h"
#include "layers/export.h"
#include "layers/functional_call.h"
#include "layers/graph.h"
#include "layers/init.h"
#include "layers/lazy.h"
#include "layers/linear.h"
#include "layers/losses.h"
#include "layers/normalization.h"
#include "layers/packed_sequence.h"
#include "layers/parametrize.h"
#include "layers/pooling.h"
#include "layers/positions.h"
#include "layers/recurrent.h"
#include "layers/sequential.h"
#include "layers/shape.h"
#include "layers/transformer.h"
