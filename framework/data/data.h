// SPDX-License-Identifier: Apache-2.0
// The names of torch.utils.data: data::DataLoader, data::TensorDataset, data::random_split. Each is the one of namespace halfstep;
// samples.h describes data sets.
#pragma once

#include "framework/data/dataset.h"
#include "framework/data/loader.h"
#include "framework/data/sampler.h"
#include "framework/data/samples.h"
#include "framework/data/subsets.h"
#include "framework/data/tensor_dataset.h"

namespace halfstep::data {

using halfstep::DataLoader, halfstep::Dataset, halfstep::Sampler, halfstep::TensorDataset, halfstep::WeightedSampler;
using halfstep::Subset, halfstep::ConcatDataset, halfstep::random_split, halfstep::default_collate;
using WeightedRandomSampler = halfstep::WeightedSampler;

}  // namespace halfstep::data
