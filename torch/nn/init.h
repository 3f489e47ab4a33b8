// SPDX-License-Identifier: Apache-2.0
// torch::nn::init over halfstep's initialisers.
#pragma once

#include "torch/nn/enums.h"

namespace torch::nn::init {

using NonlinearityType = std::variant<enumtype::kLinear, enumtype::kConv1D, enumtype::kConv2D, enumtype::kConv3D,
                                      enumtype::kConvTranspose1D, enumtype::kConvTranspose2D, enumtype::kConvTranspose3D,
                                      enumtype::kSigmoid, enumtype::kTanh, enumtype::kReLU, enumtype::kLeakyReLU>;
using FanModeType = std::variant<enumtype::kFanIn, enumtype::kFanOut>;

double calculate_gain(NonlinearityType nonlinearity, double param = 0.01);
Tensor constant_(Tensor t, Scalar value);
Tensor ones_(Tensor t);
Tensor zeros_(Tensor t);
Tensor uniform_(Tensor t, double low = 0, double high = 1);
Tensor normal_(Tensor t, double mean = 0, double std = 1);
Tensor eye_(Tensor t);
Tensor dirac_(Tensor t);
Tensor orthogonal_(Tensor t, double gain = 1);
Tensor sparse_(Tensor t, double sparsity, double std = 0.01);
Tensor xavier_uniform_(Tensor t, double gain = 1);
Tensor xavier_normal_(Tensor t, double gain = 1);
Tensor kaiming_uniform_(Tensor t, double a = 0, FanModeType mode = kFanIn, NonlinearityType nonlinearity = kLeakyReLU);
Tensor kaiming_normal_(Tensor t, double a = 0, FanModeType mode = kFanIn, NonlinearityType nonlinearity = kLeakyReLU);
std::tuple<int64_t, int64_t> _calculate_fan_in_and_fan_out(const Tensor& t);

}  // namespace torch::nn::init
