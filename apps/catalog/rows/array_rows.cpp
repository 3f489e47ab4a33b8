// SPDX-License-Identifier: Apache-2.0
// Rows of data sets that are arrays in files.
#include <algorithm>
#include <optional>
#include <variant>

#include "apps/catalog/rows/dataset_rows.h"
#include "framework/data/loading/far_values.h"
#include "framework/data/sets/arrays.h"
#include "framework/data/transforms/data_form.h"

namespace halfstep::app {
namespace {

using Make = std::function<ArrayDataset(const SplitRequest& r, const ArrayOptions& options)>;

// Adds a warning if numbers are far outside of the training data's.
void warn_of_far_arrays(ArrayDataset& data, const DataForm& trained) {
  const auto* const known = std::get_if<TensorForm>(&trained.source);
  if (!known || known->low > known->high || data.input_dtype() != DType::f32) return;
  const DataForm form = data.form();
  const auto& own = std::get<TensorForm>(form.source);
  for (const double value : {own.low, own.high}) {
    if (!is_far(value, known->low, known->high)) continue;
    data.add_warning(joined("inputs go from ", own.low, " to ", own.high, ", far outside of the training data's, which go from ",
                            known->low, " to ", known->high, ": answers may mean nothing"));
    return;
  }
}

std::shared_ptr<ArrayDataset> make_arrays(const SplitRequest& r, const Make& make) {
  const Json& self = r.self();
  ArrayOptions o;
  read_options(self, o);
  o.ignored = ignored_class(r);
  const SplitRequest train = train_of(r);
  std::optional<DataForm> trained;  // whose range is compared
  if (r.form) {
    trained = *r.form;
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
    trained = data->form();
  }
  auto out = std::make_shared<ArrayDataset>(make(r, o));
  if (trained) warn_of_far_arrays(*out, *trained);
  const auto by_channel = [](const Json& t) { return t["type"] == "Normalize" && t["from"] == "data"; };
  const Json& transforms = self["transforms"];
  if (!o.channels_last && looks_channels_last(out->input_shape()) && std::any_of(transforms.begin(), transforms.end(), by_channel))
    out->add_warning(joined("Normalize goes by dimension 1, and inputs ", with_batch(out->size(), out->input_shape()),
                            " seem to have their channels last: \"channels_last\": true puts them there"));
  return out;
}

// Makes a row of files that begins with the fields `files`, of which one is called `file`.
DatasetRow array_row(const char* type, const char* doc, std::vector<Field> files, const char* file, const Make& make) {
  std::vector<Field> options = fields_of<ArrayOptions>();  // first input and target
  if (files.size() == 1) files.insert(files.end(), options.begin(), options.begin() + 2);
  options.erase(options.begin(), options.begin() + 2);
  return {{type, doc, joined_fields({files, {root_field("folder of the files")}, options})},
          [make](const SplitRequest& r) { return make_arrays(r, make); },
          [make, file](const SplitRequest& r) { return facts_of_file(data_path(r, file), [&] { return make_arrays(r, make); }); },
          file_at(file)};
}

}  // namespace

void add_array_rows(Catalog<DatasetRow>& catalog) {
  catalog.add(array_row("NPY", "two arrays of NumPy, with a row for each sample; float32, uint8 and int64 are mapped, not read",
                        {text("input", nullptr, "file of the inputs, relative to data.root").required(),
                         text("target", nullptr, "file of the targets, relative to data.root").required()},
                        "input", [](const SplitRequest& r, const ArrayOptions& o) {
                          return ArrayDataset::npy(data_path(r, "input"), data_path(r, "target"), o);
                        }));
  catalog.add(array_row("NPZ", "two arrays of an archive of NumPy", {path_field("the file")}, "path",
                        [](const SplitRequest& r, const ArrayOptions& o) { return ArrayDataset::npz(data_path(r), o); }));
  catalog.add(array_row("Safetensors", "two tensors of a safetensors file, which is mapped", {path_field("the file")}, "path",
                        [](const SplitRequest& r, const ArrayOptions& o) { return ArrayDataset::safetensors(data_path(r), o); }));
}

}  // namespace halfstep::app
