// SPDX-License-Identifier: Apache-2.0
// torch.utils.data's names: data::DataLoader, data::TensorDataset, data::random_split. Each is that of namespace halfstep, and
// samples.h says what a data set must have.
#pragma once

#include "framework/data/loading/loader.h"
#include "framework/data/loading/sampler.h"
#include "framework/data/loading/samples.h"
#include "framework/data/loading/subsets.h"
#include "framework/data/sets/dataset.h"
#include "framework/data/sets/split.h"
#include "framework/data/sets/tensor_dataset.h"

namespace halfstep::data {

using halfstep::DataLoader, halfstep::Dataset, halfstep::Sampler, halfstep::TensorDataset, halfstep::WeightedSampler;
using halfstep::Subset, halfstep::ConcatDataset, halfstep::random_split, halfstep::split_dataset, halfstep::default_collate;
using WeightedRandomSampler = halfstep::WeightedSampler;

}  // namespace halfstep::data
