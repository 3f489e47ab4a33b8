// SPDX-License-Identifier: Apache-2.0
// The catalogue of data sets.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

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

// A split that is wanted: "train", "val" or "test" of a resolved config.
struct SplitRequest {
  const Json& config;
  const std::string& split;
  Device device = Device::cpu;
  // What was learnt from the training data: classes, categories, scale, vocabulary. Null: it is read again.
  const DataForm* known = nullptr;
  const Json& self() const { return config["data"][split]; }
};
struct DatasetRow {
  Component component;
  std::function<std::shared_ptr<Dataset>(const SplitRequest&)> make;
  // What is known without reading the data, where that is anything; empty: the data set is made and asked.
  std::function<std::optional<DataFacts>(const SplitRequest&)> facts = {};
  bool takes_range = false;  // it takes the part that "range" names itself; of others the part is taken afterwards
  bool normalizes = false;   // it does what is no more than a Normalize itself, when that is the first of "transforms"
  bool streams = false;      // with data.loader.stateful it is read in streams, see Dataset::streams()
  bool takes_parts = false;  // it also handles "fold" and "stratified" itself, see split_options
};
Catalog<DatasetRow>& dataset_catalog();
inline const Family& dataset_family() { return dataset_catalog().family(); }

// The row of a class whose constructor takes the values of its fields, in order.
template <class D, class... Ts>
DatasetRow dataset_row(std::string type, std::string doc, Arg<Ts>... args) {
  return {{std::move(type), std::move(doc), {args.field...}}, [args...](const SplitRequest& r) -> std::shared_ptr<Dataset> {
            return std::make_shared<D>(value_of(r.self(), args)...);
          }};
}

// One split of a resolved config: `split` is "train", "val" or "test".
// Facts without reading the data; a CSV file is read if it is there. Nothing when they cannot be known.
std::optional<DataFacts> dataset_facts(const Json& config, const std::string& split);

// The bytes of files of tables and texts that this reads.
double bytes_to_read(const Json& config);

DataFacts facts_of(const Dataset& data);
// Those of the training data, behind its transforms in the config.
DataFacts facts_of(const DataForm& form, const Json& config);

// The tokens of the training data's text, for a run's config to hold, so that what is evaluated later agrees; null where there are
// none. Throws as build_dataset.
Json stored_vocabulary(const Json& config);

// The config, with the numbers that "from": "data" asks for written into the transforms of all splits, so that the training data
// need not be read again. note: gets one line where they are those of a sample. Throws as build_dataset.
Json with_statistics(const Json& config, std::string* note = nullptr);
// What is done to inputs when the model is used: the transforms of data.val, or without it those of data.train, without those that
// are random; a random crop is one in the middle.
Json transforms_in_use(const Json& config);

// While one lives, tables and texts that were read are kept, so that the same request does not read them again.
struct KeptData {
  Keep<CsvDataset> tables;
  Keep<const TextTokens> texts;
};

// Throws DataError for missing or malformed files. known: see SplitRequest.
std::shared_ptr<Dataset> build_dataset(const Json& config, const std::string& split, Device device = Device::cpu,
                                       const DataForm* known = nullptr);

}  // namespace halfstep::app

// As HALFSTEP_REGISTER_MODULE, for a class derived from Dataset.
#define HALFSTEP_REGISTER_DATASET(Class, ...) HALFSTEP_REGISTER(dataset, Class __VA_OPT__(, ) __VA_ARGS__)
