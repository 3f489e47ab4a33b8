// SPDX-License-Identifier: Apache-2.0
// Rows of data sets that are arrays in files.
#include <algorithm>

#include "apps/catalog/rows/dataset_rows.h"
#include "framework/data/sets/arrays.h"

namespace halfstep::app {
namespace {

using Make = std::function<ArrayDataset(const SplitRequest& r, const ArrayOptions& options)>;

// Returns a static list, since other files may build the catalogue before this file's variables are initialised.
const std::vector<std::string>& byte_meanings() {
  static const std::vector<std::string> all = {"auto", "pixels", "numbers"};  // in the order of ByteMeaning
  return all;
}

std::vector<Field> array_fields(std::vector<Field> first) {
  for (Field f :
       {root_field("folder of the files"), boolean("tokens", false, "integer inputs are tokens, for Embedding"),
        choice("task", "auto", {"auto", "classification", "regression"},
               "\"auto\": whole numbers, booleans and one-hot rows are classes"),
        choice(
            "bytes", "auto", byte_meanings(),
            "of uint8 inputs: \"pixels\": 0 to 255 become 0 to 1; \"numbers\": they stay what they are; \"auto\": pixels where a "
            "sample has two dimensions or more and some byte is above 1, which a line says"),
        boolean("channels_last", false,
                "inputs [N, H, W, C] or [N, T, C] are read, into memory, as [N, C, H, W] and [N, C, T], which layers and "
                "transforms take"),
        integer("classes", nullptr, "left out: one more than the largest of the training data, without loss.ignore_index")
            .at_least(1)
            .at_most(kMaxSample),
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
  o.bytes = place_in<ByteMeaning>(byte_meanings(), self["bytes"]);
  o.channels_last = self["channels_last"];
  o.ignored = ignored_class(r);
  const SplitRequest train = train_of(r);
  if (r.form) {
    if (!o.classification) o.classification = r.form->classes > 0;
    if (const auto* form = std::get_if<TensorForm>(&r.form->source); form && o.bytes == ByteMeaning::automatic)
      o.bytes = form->bytes;
    if (o.classes == 0) o.classes = r.form->classes;
    if (o.tokens && o.vocabulary == 0) o.vocabulary = r.form->vocabulary;
  } else if (r.split != "train" && train.self()["type"] == self["type"]) {
    // Held-out data takes classes, tokens and the meaning of bytes from the training data.
    const auto data = make_arrays(train, make);
    if (!o.classification) o.classification = data->classes() > 0;
    if (o.classes == 0) o.classes = data->classes();
    if (o.tokens && o.vocabulary == 0) o.vocabulary = data->vocabulary();
    if (o.bytes == ByteMeaning::automatic) o.bytes = data->bytes();
  }
  auto out = std::make_shared<ArrayDataset>(make(r, o));
  const auto by_channel = [](const Json& t) { return t["type"] == "Normalize" && t["from"] == "data"; };
  const Json& transforms = self["transforms"];
  if (!o.channels_last && looks_channels_last(out->input_shape()) && std::any_of(transforms.begin(), transforms.end(), by_channel))
    out->add_warning(joined("Normalize goes by dimension 1, and inputs ", with_batch(out->size(), out->input_shape()),
                            " seem to have their channels last: \"channels_last\": true puts them there"));
  return out;
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
