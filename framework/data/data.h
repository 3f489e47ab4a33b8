// SPDX-License-Identifier: Apache-2.0
// torch.utils.data's names: data::DataLoader, data::TensorDataset. Each is the class of namespace halfstep.
#pragma once

#include "framework/data/dataset.h"
#include "framework/data/loader.h"
#include "framework/data/sampler.h"
#include "framework/data/tensor_dataset.h"

namespace halfstep::data {

using halfstep::DataLoader, halfstep::Dataset, halfstep::Sampler, halfstep::TensorDataset, halfstep::WeightedSampler;

}  // namespace halfstep::data
