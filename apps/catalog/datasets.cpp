// SPDX-License-Identifier: Apache-2.0
// The catalogue's part for all data sets: what a config says of a split, facts about it, where possible without reading it, and the
// data set itself with its range, fold, statistics and transforms.
#include "apps/catalog/datasets.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "apps/catalog/infer.h"
#include "apps/catalog/losses.h"
#include "apps/catalog/option_fields.h"
#include "apps/catalog/pictures.h"
#include "apps/catalog/pixel_range.h"
#include "apps/catalog/rows/dataset_rows.h"
#include "framework/data/sets/picture_statistics.h"
#include "framework/data/sets/split.h"

namespace halfstep::app {
namespace {

constexpr int kMaxTransforms = 64;

// Returns the transforms that the data set does not apply itself.
Transforms transforms_after(const DatasetRow& row, const Json& self) {
  Transforms transforms = build_transforms(self["transforms"]);
  if (row.normalizes && !transforms.empty() && transforms[0]->as_normalize()) transforms.erase(transforms.begin());
  return transforms;
}

// Returns whether the catalogue takes the requested part, because the data set does not.
bool cuts(const DatasetRow& row, const SplitRequest& wanted) {
  const SplitOptions part = split_options(wanted);
  return !row.takes_parts && (part.fold || (!part.is_whole() && (!row.takes_range || part.stratified)));
}

// Returns a line of help if a file is not below data.root but in the current folder.
std::string help_with_root(const SplitRequest& r) {
  if (data_root(r) != r.config["data"]["root"].get<std::string>()) return "";
  std::error_code none;
  for (const char* key : {"path", "input", "target"}) {
    if (!r.self().contains(key) || !r.self()[key].is_string()) continue;
    const std::filesystem::path file = r.self()[key].get<std::string>(), wanted = data_root(r) / file;
    if (file.is_absolute() || std::filesystem::exists(wanted, none) || !std::filesystem::exists(file, none)) continue;
    return "\nhelp: " + file.string() + " is in the current folder, and files are read from data.root: --set data.root=.";
  }
  return "";
}

// Constructs the data set, or the part of it that "range" or "fold" names, without transforms.
std::shared_ptr<Dataset> make_part(const DatasetRow& row, const SplitRequest& wanted) {
  try {
    if (!cuts(row, wanted)) return row.make(wanted);
    Json whole = wanted.config;
    whole["data"][wanted.split]["range"] = Json{0.0, 1.0};
    return split_dataset(row.make({whole, wanted.split, wanted.device, wanted.form}), split_options(wanted));
  } catch (const IoError& e) {
    throw DataError(e.what() + help_with_root(wanted));  // report a file of data that cannot be read as bad data
  }
}

// Returns what pixel_misfit says of a split's transforms, unless it does so of the training data's. Pictures and bytes are not read
// for that.
std::string misfit_of_pixels(const SplitRequest& r) {
  const Json &transforms = r.self()["transforms"], &type = r.self()["type"];
  if (!may_take_pixels(transforms) || type == "Random") return "";
  const DatasetRow& row = dataset_catalog().row(r.self());
  const bool are_pictures = row.normalizes || type == "ImageFolder";
  std::string out = pixel_misfit(transforms, are_pictures ? kPixelRange : input_range(*row.make(r)));
  return out.empty() || r.split == "train" || misfit_of_pixels(train_of(r)).empty() ? out : "";
}

// Returns the config with the numbers that "from": "data" requests filled into the split's transforms. found: statistics computed
// earlier; if there are none and the split needs them, measures the training data's pictures, with a line of progress, and sets it.
Json with_split_statistics(const Json& config, const std::string& split, std::optional<PictureStatistics>& found) {
  Json out = config;
  for (Json& t : out["data"][split]["transforms"]) {
    if (!t.contains("from") || t["from"] != "data") continue;
    if (!found) {
      Json raw = config;
      raw["data"]["train"]["transforms"] = Json::array();
      const std::string train = "train";
      PicturesLine line("measuring pictures");
      found = picture_statistics(*make_part(dataset_catalog().row(raw["data"][train]), {raw, train}),
                                 [&](int64_t done, int64_t total) { line.show(done, total); });
    }
    t["from"] = nullptr;
    t["mean"] = found->means(), t["std"] = found->deviations();
  }
  return out;
}

}  // namespace

Catalog<DatasetRow>& dataset_catalog() {
  static Catalog<DatasetRow>& catalog = *[] {
    auto* const made = new Catalog<DatasetRow>(
        "data set", joined_fields({fields_of<SplitOptions>(),
                                   {list("transforms", Json::array(), component("", transform_family(), "a transform"),
                                         "applied to each batch, in order")
                                        .items(0, kMaxTransforms)}}));
    add_image_rows(*made);
    add_table_rows(*made);
    add_array_rows(*made);
    add_text_rows(*made);
    add_generated_rows(*made);
    return made;
  }();
  return catalog;
}

std::optional<int64_t> ignored_class(const SplitRequest& r) { return ignored_class(r.config.value("loss", Json())); }

SplitOptions split_options(const SplitRequest& r) {
  SplitOptions out{.seed = r.config["seed"]};
  read_options(r.self(), out);
  if (out.fold) out.fold->others = r.split == "train";
  return out;
}

Json with_statistics(const Json& config, std::string* note) {
  Json out = config;
  std::optional<PictureStatistics> found;
  for (const char* split : {"train", "val", "test"})
    if (!config["data"][split].is_null()) out = with_split_statistics(out, split, found);
  if (note && found && found->examined < found->all)
    *note = joined("Normalize: mean and deviation of ", found->examined, " of the ", found->all, " pictures of data.train");
  return out;
}

Json prediction_transforms(const Json& config) {
  const Json& data = config["data"];
  Json out = Json::array();
  for (const Json& t : data[data["val"].is_null() ? "train" : "val"]["transforms"]) {
    if (t["type"] == "RandomCrop")
      out.push_back({{"type", "CenterCrop"}, {"size", t["size"]}});
    else if (!transform_catalog().row(t).make(t)->is_random())
      out.push_back(t);
  }
  return out;
}

DataFacts facts_of(const DataForm& form, const Json& config) {
  DataFacts out{.input = form.input,
                .target = form.target,
                .classes = form.classes,
                .size = {},
                .input_dtype = form.input_dtype,
                .vocabulary = form.vocabulary,
                .label_sequences = form.label_sequences};
  if (form.classes > 0) out.names = form.names;
  const Json& loader = config["data"]["loader"];
  if (loader["stateful"] == true) out.streams = loader["batch_size"];
  const SavedGenerator generator;  // random transforms draw numbers, which must not change those of the run
  const Json& transforms = config["data"]["train"]["transforms"];
  if (!transforms.empty()) out.input = transformed_shape(build_transforms(transforms), out.input, out.classes);
  return out;
}

DataFacts facts_of(const Dataset& data) {
  DataFacts out{data.input_shape(), data.target_shape(), data.classes(),         data.size(), data.input_dtype(),
                data.vocabulary(),  data.streams(),      data.label_sequences(), data.notes()};
  const DataForm form = data.form();
  if (const auto* table = std::get_if<TableForm>(&form.source); table && table->options.encoding && table->options.encoding->tokens)
    out.padding = table->options.encoding->tokens->padding();
  if (form.classes > 0) out.names = form.names;
  return out;
}

double bytes_to_read(const Json& config) {
  double out = 0;
  for (const std::string split : {"train", "val", "test"}) {
    const SplitRequest r{config, split};
    if (r.self().is_null() || !r.self().contains("path") || !r.self()["path"].is_string()) continue;
    std::error_code none;
    const auto bytes = std::filesystem::file_size(data_path(r), none);  // fails for a folder
    if (!none) out += double(bytes);
  }
  return out;
}

std::string fault_of_unread(const Json& config) {
  for (const std::string split : {"train", "val", "test"}) {
    if (config["data"][split].is_null()) continue;
    Json raw = config;
    raw["data"][split]["transforms"] = Json::array();
    const SplitRequest wanted{raw, split};
    const DatasetRow& row = dataset_catalog().row(wanted.self());
    if (!row.facts || !row.files || wanted.self().contains("path")) continue;  // the facts of a folder are read
    const std::vector<std::filesystem::path> files = row.files(wanted);
    std::error_code none;
    if (!std::all_of(files.begin(), files.end(), [&](const auto& file) { return std::filesystem::exists(file, none); })) continue;
    try {
      make_part(row, wanted);
    } catch (const DataError& e) { return e.what(); }
  }
  return "";
}

std::optional<DataFacts> dataset_facts(const Json& config, const std::string& split) {
  const SplitRequest wanted{config, split};
  const DatasetRow& row = dataset_catalog().row(wanted.self());
  const bool cut = cuts(row, wanted);
  Json whole = config;
  if (cut) whole["data"][split]["range"] = Json{0.0, 1.0};
  std::optional<DataFacts> facts = row.facts ? row.facts({whole, split}) : facts_of(*make_part(row, wanted));
  if (!facts) return facts;
  if (const Json loss = config.value("loss", Json()); facts->classes == 0 && limits_targets(loss)) {
    const std::string unfit = unfit_targets(loss, *make_part(row, wanted));
    if (!unfit.empty()) facts->notes.warnings.push_back(unfit);
  }
  if (row.facts && facts->size && cut) {
    SplitOptions part = split_options(wanted);
    part.stratified = false;  // a part of the same size
    facts->size = int64_t(split_indices(*facts->size, part).size());
  }
  if (wanted.self()["transforms"].empty()) return facts;
  check<ConfigError>(facts->input_dtype == DType::f32, joined("data.", split, ".transforms"), "are for numbers, but ",
                     row.component.type, " has tokens");
  try {
    const SavedGenerator generator;  // random transforms draw numbers, which must not change those of the run
    facts->input = transformed_shape(transforms_after(row, wanted.self()), facts->input, facts->classes);
    int64_t values = 1;
    for (const int64_t size : facts->input) {
      check<ValueError>(size <= kMaxSample / std::max<int64_t>(values, 1), "transforms", "a sample may have ", kMaxSample,
                        " values, got one of shape ", facts->input);
      values *= size;
    }
  } catch (const Error& e) { fail<ConfigError>(joined("data.", split, ".transforms"), one_line(e)); }
  const std::string misfit = misfit_of_pixels({whole, split});
  if (!misfit.empty()) facts->notes.warnings.push_back("transforms: " + misfit);
  return facts;
}

std::shared_ptr<Dataset> build_dataset(const Json& config, const std::string& split, Device device, const DataForm* known) {
  std::optional<PictureStatistics> found;
  const Json filled = with_split_statistics(config, split, found);
  const SplitRequest wanted{filled, split, device, known};
  const DatasetRow& row = dataset_catalog().row(wanted.self());
  auto data = make_part(row, wanted);
  Transforms after = transforms_after(row, wanted.self());
  return after.empty() ? data : transformed(std::move(data), std::move(after), config["seed"]);
}

}  // namespace halfstep::app
