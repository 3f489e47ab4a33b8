// SPDX-License-Identifier: Apache-2.0
// The names of torch.utils.data: data::DataLoader, data::TensorDataset, data::random_split. Each is the one of namespace halfstep;
// samples.h describes data sets.
#pragma once

#include "framework/data/loading/loader.h"
#include "framework/data/loading/sampler.h"
#include "framework/data/loading/samples.h"
#include "framework/data/loading/subsets.h"
#include "framework/data/sets/arrays.h"
#include "framework/data/sets/cifar.h"
#include "framework/data/sets/dataset.h"
#include "framework/data/sets/digits.h"
#include "framework/data/sets/generators.h"
#include "framework/data/sets/image_folder.h"
#include "framework/data/sets/mnist.h"
#include "framework/data/sets/synthetic.h"
#include "framework/data/sets/picture_statistics.h"
#include "framework/data/sets/split.h"
#include "framework/data/sets/tensor_dataset.h"
#include "framework/data/sets/text.h"
#include "framework/data/tables/csv.h"
#include "framework/data/tables/time_series.h"
#include "framework/data/transforms/image_transforms.h"
#include "framework/data/transforms/statistics.h"

namespace halfstep::data {

using namespace halfstep;
using WeightedRandomSampler = halfstep::WeightedSampler;

}  // namespace halfstep::data
