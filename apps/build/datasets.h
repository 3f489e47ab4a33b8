// The catalogue of data sets.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "apps/build/facts.h"
#include "apps/config/schema.h"
#include "framework/data/dataset.h"

namespace halfstep::app {

const Family& dataset_family();

// One split of a resolved config: `split` is "train", "val" or "test".
// Facts without reading the data; a CSV file is read if it is there. Nothing when they cannot be known.
std::optional<DataFacts> dataset_facts(const Json& config, const std::string& split);

// Throws DataError for missing or malformed files.
std::shared_ptr<Dataset> build_dataset(const Json& config, const std::string& split, Device device = Device::cpu);

// The folder a split's files are looked for in.
std::filesystem::path data_root(const Json& config, const std::string& split);

}  // namespace halfstep::app
