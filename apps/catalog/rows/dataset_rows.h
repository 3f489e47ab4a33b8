// SPDX-License-Identifier: Apache-2.0
// The rows of apps/catalog/datasets.h, a file a kind, and what they share.
#pragma once

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "apps/catalog/datasets.h"
#include "apps/catalog/transforms.h"
#include "framework/data/formats/text_file.h"
#include "framework/data/sets/split.h"

namespace halfstep::app {

void add_image_rows(Catalog<DatasetRow>& all);
void add_table_rows(Catalog<DatasetRow>& all);
void add_array_rows(Catalog<DatasetRow>& all);
void add_text_rows(Catalog<DatasetRow>& all);
void add_generated_rows(Catalog<DatasetRow>& all);

// The folder that a split's files are looked for in, and its file "path", which is relative to it.
std::filesystem::path data_root(const SplitRequest& r);
std::filesystem::path data_path(const SplitRequest& r, const char* key = "path");
Field root_field(const char* doc);
Field path_field(const char* doc);

// The encoding of a file of text, "utf-8" and so on.
Field encoding_field();
TextEncoding encoding_of(const Json& self);

// The class that the config's loss leaves out; nothing for a loss that leaves none out.
std::optional<int64_t> ignored_class(const SplitRequest& r);

// What a data set of bytes does to its pixels: the first transform, if it can be done there.
std::optional<Normalize> normalize_of(const Json& self);

// "range" of data whose order means something: a part that is not shuffled.
Field part_field();
Field which_split();
Split split_of(const SplitRequest& r);

// The part of the data that "range" asks for: its end 0 or 1.
inline double range_at(const Json& self, size_t end) { return self["range"][end]; }
// What "range", "fold" and "stratified" ask for, by the config's seed.
SplitOptions split_options(const SplitRequest& r);
// The same split of another config, to learn from the training data how others are to be read.
SplitRequest train_of(const SplitRequest& r);

// The enumerator at the word's position in the list.
template <class E>
E place_in(const std::vector<std::string>& words, const Json& word) {
  return E(std::find(words.begin(), words.end(), word.get<std::string>()) - words.begin());
}

// The facts of data in a file; nothing if the file does not exist. `data` makes the data set.
template <class F>
std::optional<DataFacts> facts_of_file(const std::filesystem::path& path, const F& data) {
  std::error_code none;  // a file that cannot be accessed counts as missing
  if (!std::filesystem::exists(path, none)) return {};
  return facts_of(*data());
}

}  // namespace halfstep::app
