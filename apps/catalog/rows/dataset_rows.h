// SPDX-License-Identifier: Apache-2.0
// The rows of apps/catalog/datasets.h, one file for each kind, and their common functions.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/catalog/datasets.h"
#include "apps/catalog/option_fields.h"
#include "apps/catalog/transforms.h"
#include "framework/data/sets/split.h"

namespace halfstep {
class BpeTokenizer;  // framework/data/tokens/bpe.h
}

namespace halfstep::app {

void add_image_rows(Catalog<DatasetRow>& catalog);
void add_table_rows(Catalog<DatasetRow>& catalog);
void add_array_rows(Catalog<DatasetRow>& catalog);
void add_text_rows(Catalog<DatasetRow>& catalog);
void add_generated_rows(Catalog<DatasetRow>& catalog);

// Returns the folder to which the paths of a split's files are relative; and its file "path".
std::filesystem::path data_root(const SplitRequest& r);
std::filesystem::path data_path(const SplitRequest& r, const char* key = "path");
// Returns DatasetRow::files of data in the one file that a key names.
inline auto file_at(const char* key = "path") {
  return [key](const SplitRequest& r) { return std::vector{data_path(r, key)}; };
}
Field root_field(const char* doc);
Field path_field(const char* doc);

// Returns the field of a tokenizer's file. Reads that of the split; throws ConfigError if the config names none.
Field tokenizer_field(const char* if_left_out = "");
std::shared_ptr<const BpeTokenizer> own_tokenizer(const SplitRequest& r);

// Returns the class that the config's loss leaves out; nothing for a loss that leaves none out.
std::optional<int64_t> ignored_class(const SplitRequest& r);

// Returns the first transform, if it is a Normalize that a data set of bytes can apply itself.
std::optional<Normalize> normalize_of(const Json& self);

Field which_split();
Split split_of(const SplitRequest& r);

// Returns the part that "range", "fold" and "stratified" request, with the config's seed.
SplitOptions split_options(const SplitRequest& r);
// Returns the request for the training split, whose facts decide how other splits are read.
SplitRequest train_of(const SplitRequest& r);

// Returns the facts of data in a file; nothing if the file does not exist. `data` constructs the data set.
template <class F>
std::optional<DataFacts> facts_of_file(const std::filesystem::path& path, const F& data) {
  std::error_code none;  // a file that cannot be accessed counts as missing
  if (!std::filesystem::exists(path, none)) return {};
  return facts_of(*data());
}

}  // namespace halfstep::app
