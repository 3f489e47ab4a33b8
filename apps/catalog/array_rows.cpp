// SPDX-License-Identifier: Apache-2.0
// Data sets of arrays in files.
#include "apps/catalog/dataset_rows.h"
#include "framework/data/arrays.h"

namespace halfstep::app {
namespace {

using Make = std::function<ArrayDataset(const SplitRequest& r, const ArrayOptions& options)>;

std::vector<Field> array_fields(std::vector<Field> first) {
  for (Field f :
       {root_field("folder of the files"), boolean("tokens", false, "integer inputs are tokens, for Embedding"),
        choice("task", "auto", {"auto", "classification", "regression"}, "\"auto\": integer targets are classes"),
        integer("classes", nullptr, "left out: one more than the largest of the training data").at_least(1).at_most(kMaxSample),
        integer("vocab_size", nullptr, "of tokens; left out: one more than the largest of the training data")
            .at_least(1)
            .at_most(kMaxSample)})
    first.push_back(std::move(f));
  return first;
}

std::shared_ptr<ArrayDataset> make_arrays(const SplitRequest& r, const Make& make) {
  const Json& self = r.self();
  ArrayOptions o;
  if (self.contains("input") && self.contains("path")) o.input = self["input"], o.target = self["target"];
  o.tokens = self["tokens"];
  if (self["task"] != "auto") o.classification = self["task"] == "classification";
  if (!self["classes"].is_null()) o.classes = self["classes"];
  if (!self["vocab_size"].is_null()) o.vocabulary = self["vocab_size"];
  const SplitRequest train = train_of(r);
  if (r.known) {
    if (o.classes == 0) o.classes = r.known->classes;
    if (o.tokens && o.vocabulary == 0) o.vocabulary = r.known->vocabulary;
  } else if (r.split != "train" &&
      train.self()["type"] == self["type"]) {  // held-out data has the classes and tokens of the training data
    const auto known = [&](const char* key, int64_t& value, const auto& of_data) {
      if (value == 0) value = train.self()[key].is_null() ? of_data(*make_arrays(train, make)) : train.self()[key].get<int64_t>();
    };
    known("classes", o.classes, [](const Dataset& d) { return d.classes(); });
    if (o.tokens) known("vocab_size", o.vocabulary, [](const Dataset& d) { return d.vocabulary(); });
  }
  return std::make_shared<ArrayDataset>(make(r, o));
}

DatasetRow array_row(const char* type, const char* doc, std::vector<Field> files, const char* file, const Make& make) {
  return {{type, doc, array_fields(std::move(files))},
          [make](const SplitRequest& r) { return make_arrays(r, make); },
          [make, file](const SplitRequest& r) { return facts_of_file(data_path(r, file), [&] { return make_arrays(r, make); }); }};
}

std::vector<Field> named_arrays() {
  return {path_field("the file"), text("input", "x", "name of the array of inputs"),
          text("target", "y", "name of the array of targets")};
}

}  // namespace

void add_array_rows(Catalog<DatasetRow>& all) {
  all.add(array_row("NPY", "two arrays of NumPy, with a row for each sample; float32, uint8 and int64 are mapped, not read",
                    {text("input", nullptr, "file of the inputs, relative to data.root").required(),
                     text("target", nullptr, "file of the targets, relative to data.root").required()},
                    "input", [](const SplitRequest& r, const ArrayOptions& o) {
                      return ArrayDataset::npy(data_path(r, "input"), data_path(r, "target"), o);
                    }));
  all.add(array_row("NPZ", "two arrays of an archive of NumPy", named_arrays(), "path",
                    [](const SplitRequest& r, const ArrayOptions& o) { return ArrayDataset::npz(data_path(r), o); }));
  all.add(array_row("Safetensors", "two tensors of a safetensors file, which is mapped", named_arrays(), "path",
                    [](const SplitRequest& r, const ArrayOptions& o) { return ArrayDataset::safetensors(data_path(r), o); }));
}

}  // namespace halfstep::app
