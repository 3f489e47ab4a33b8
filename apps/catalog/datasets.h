// SPDX-License-Identifier: Apache-2.0
// The catalogue of data sets.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/catalog/catalog.h"
#include "apps/catalog/facts.h"
#include "framework/data/formats/read_once.h"
#include "framework/data/sets/dataset.h"
#include "framework/data/transforms/data_form.h"

namespace halfstep {
class CsvDataset;
struct TextTokens;
}  // namespace halfstep

namespace halfstep::app {

// A requested split: "train", "val" or "test" of a resolved config.
struct SplitRequest {
  const Json& config;
  const std::string& split;
  Device device = Device::cpu;
  // Facts from the training data: classes, categories, scale, vocabulary. Null: read them again.
  const DataForm* form = nullptr;
  const Json& self() const { return config["data"][split]; }
};
struct DatasetRow {
  Component component;
  std::function<std::shared_ptr<Dataset>(const SplitRequest&)> make;
  // Returns facts that need no reading of the data; empty: construct the data set and ask it.
  std::function<std::optional<DataFacts>(const SplitRequest&)> facts = {};
  // Returns the files that hold the samples, in their order, whether they exist or not; empty: the file "path", or none.
  std::function<std::vector<std::filesystem::path>(const SplitRequest&)> files = {};
  bool takes_range = false;  // applies "range" itself; else the catalogue takes the part
  bool normalizes = false;   // applies a Normalize itself if it is the first of "transforms"
  bool streams = false;      // can be read in streams with data.loader.stateful, see Dataset::streams()
  bool takes_parts = false;  // applies "fold" and "stratified" itself, see split_options
};
Catalog<DatasetRow>& dataset_catalog();
inline const Family& dataset_family() { return dataset_catalog().family(); }

// Makes the row of a class whose constructor takes the values of its fields, in order.
template <class D, class... Ts>
DatasetRow dataset_row(std::string type, std::string doc, Arg<Ts>... args) {
  return {{std::move(type), std::move(doc), {args.field...}}, [args...](const SplitRequest& r) -> std::shared_ptr<Dataset> {
            return std::make_shared<D>(value_of(r.self(), args)...);
          }};
}

// Returns facts about the split "train", "val" or "test" of a resolved config without reading the data, except a CSV file if it
// exists. Nothing if they cannot be known.
std::optional<DataFacts> dataset_facts(const Json& config, const std::string& split);

// Reads the files of data sets whose facts are known without them, such as CIFAR10, if they are there. Returns why they cannot be
// trained with; "" if they can.
std::string fault_of_unread(const Json& config);

// Returns the bytes of tables and texts that dataset_facts reads.
double bytes_to_read(const Json& config);

DataFacts facts_of(const Dataset& data);
// Returns the facts of the training data, after its transforms in the config.
DataFacts facts_of(const DataForm& form, const Json& config);

// Returns the tokens of the training data's text, which the run's config stores so that later evaluations use the same; null if
// there are none. Throws as build_dataset.
Json stored_vocabulary(const Json& config);

// Returns the config with the numbers that "from": "data" requests filled into the transforms of all splits, so that the training
// data need not be read again. note: gets a line if they are those of a sample. Throws as build_dataset.
Json with_statistics(const Json& config, std::string* note = nullptr);
// Returns the transforms for the inputs of a trained model: those of data.val, or else of data.train, without random ones; a random
// crop becomes a centre crop.
Json prediction_transforms(const Json& config);

// Keeps tables and texts in memory while it lives, so that equal requests do not read them again.
struct KeptData {
  ReadCache<CsvDataset> tables;
  ReadCache<const TextTokens> texts;
};

// Throws DataError for missing or malformed files. known: see SplitRequest.
std::shared_ptr<Dataset> build_dataset(const Json& config, const std::string& split, Device device = Device::cpu,
                                       const DataForm* known = nullptr);

}  // namespace halfstep::app

// Registers a class derived from Dataset, as HALFSTEP_REGISTER_MODULE does.
#define HALFSTEP_REGISTER_DATASET(Class, ...) HALFSTEP_REGISTER(dataset, Class __VA_OPT__(, ) __VA_ARGS__)
