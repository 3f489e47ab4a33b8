// SPDX-License-Identifier: Apache-2.0
#include "apps/config/shared_samples.h"

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "apps/catalog/rows/dataset_rows.h"
#include "framework/base/check.h"
#include "framework/data/loading/fingerprint.h"
#include "framework/io/files/printable.h"

namespace halfstep::app {
namespace {

namespace fs = std::filesystem;

// Returns the value of a key; null if the type of the split has no such key.
Json value_of_key(const Json& self, const std::string& key) { return self.contains(key) ? self[key] : Json(); }
bool differs(const std::string& key, const SplitRequest& a, const SplitRequest& b) {
  return value_of_key(a.self(), key) != value_of_key(b.self(), key);
}
bool either_is(const std::string& key, const char* value, const SplitRequest& a, const SplitRequest& b) {
  return value_of_key(a.self(), key) == value || value_of_key(b.self(), key) == value;
}

// Returns whether both name the same file or folder, also by links, or would if it existed.
bool same_path(const fs::path& a, const fs::path& b) {
  std::error_code failed;
  if (fs::equivalent(a, b, failed)) return true;
  const auto plain = [](const fs::path& path) {
    std::error_code none;
    const fs::path out = fs::weakly_canonical(fs::absolute(path, none), none);
    return out.has_filename() ? out : out.parent_path();
  };
  return plain(a) == plain(b);
}
bool same_file(const fs::path& a, const fs::path& b) { return same_path(a, b) || have_same_content(a, b); }

std::vector<fs::path> files_of_split(const SplitRequest& r) {
  const DatasetRow& row = dataset_catalog().row(r.self());
  if (row.files) return row.files(r);
  const bool has_path = r.self().contains("path") && r.self()["path"].is_string();  // of a program's own row
  return has_path ? std::vector{data_path(r)} : std::vector<fs::path>();
}

// Returns the first file that both read, and its path in `b`; nothing if there is none.
std::optional<std::pair<fs::path, fs::path>> shared_file(const SplitRequest& a, const SplitRequest& b) {
  const std::vector<fs::path> others = files_of_split(b);
  for (const fs::path& file : files_of_split(a))
    for (const fs::path& other : others)
      if (same_file(file, other)) return std::pair(file, other);
  return {};
}

// Returns " (in/b.csv is a copy of in/a.csv)" if the path does not show that the files are the same; else "".
std::string copy_text(const fs::path& file, const fs::path& other) {
  if (same_path(file, other)) return "";
  return joined(" (", printable(file.string()), " is a copy of ", printable(other.string()), ')');
}

// Returns whether data that is in no known files is the same: drawn with the same seed and options, but perhaps another size.
bool same_draws(const SplitRequest& a, const SplitRequest& b) {
  if (a.self()["type"] == "Random" || a.config["seed"] != b.config["seed"]) return false;  // Random draws each split anew
  const bool has_split = a.self().contains("split");
  const auto split = [](const SplitRequest& r) {
    const Json& given = r.self()["split"];
    return given.is_null() ? Json(r.split == "train" ? "train" : "test") : given;
  };
  if (has_split && split(a) != split(b)) return false;
  const std::set<std::string> of_parts = {"range", "fold", "stratified", "transforms", "split"};
  for (const auto& [key, value] : a.self().items()) {
    if (of_parts.contains(key) || (has_split && key == "size")) continue;
    if (value != value_of_key(b.self(), key)) return false;
  }
  return true;
}

// Returns whether the data's own order, such as that of time, is cut, and not one that the seed shuffles.
bool keeps_order(const SplitRequest& r) {
  const DatasetRow& row = dataset_catalog().row(r.self());
  return row.takes_range && !row.takes_parts && r.self()["fold"].is_null() && r.self()["stratified"] != true;
}

// Returns the keys that decide, besides "missing", which samples there are before a part is cut, and in which order.
std::vector<std::string> keys_of_order(const SplitRequest& a, const SplitRequest& b) {
  const std::string type = a.self()["type"];
  std::vector<std::string> out = {"stratified"};
  const auto add = [&](std::initializer_list<const char*> keys) { out.insert(out.end(), keys.begin(), keys.end()); };
  if (type == "CSV" || type == "TimeSeries") add({"header", "skip_rows", "missing_words"});
  if (type == "CSV" && either_is("missing", "drop_row", a, b)) add({"features", "exclude", "texts", "dates", "unknown"});
  if (type == "TimeSeries") add({"time"});
  if (type == "TimeSeries" && either_is("missing", "drop", a, b)) add({"column", "columns"});
  if (type == "TimeSeries" && !keeps_order(a)) add({"window", "horizon", "stride"});
  if (type == "Text") add({"tokenizer", "encoding"});
  if (type == "Text" && !keeps_order(a)) add({"seq_len"});
  if (type == "ImageFolder") add({"on_error"});
  if (a.self().contains("split")) add({"size"});
  if (a.self()["stratified"] == true && type != "CSV") add({"target"});
  return out;
}

// Returns whether "missing" leaves other rows. A table that refuses missing values has none, or cannot be read.
bool leaves_other_rows(const SplitRequest& a, const SplitRequest& b) {
  const auto kind = [](const SplitRequest& r) {
    const Json rule = value_of_key(r.self(), "missing");
    return std::pair(rule == "drop_row", rule == "last" || rule == "interpolate");
  };
  const bool refuses_in_table = a.self()["type"] == "CSV" && either_is("missing", "refuse", a, b);
  return kind(a) != kind(b) && !refuses_in_table;
}

// Returns the key because of which parts of both are cut from different orders; "" if they are cut from one.
std::string key_of_other_order(const SplitRequest& held_out, const SplitRequest& trained) {
  if (keeps_order(held_out) != keeps_order(trained)) return "fold";
  if (!keeps_order(held_out) && held_out.config["seed"] != trained.config["seed"]) return "seed";
  if (leaves_other_rows(held_out, trained)) return "missing";
  for (const std::string& key : keys_of_order(held_out, trained))
    if (differs(key, held_out, trained)) return key;
  return "";
}

using Fractions = std::vector<std::pair<double, double>>;

Fractions fractions_of(const SplitRequest& r) {
  const SplitOptions part = split_options(r);
  if (!part.fold) return {{part.begin, part.end}};
  const auto folds = double(part.fold->folds), begin = double(part.fold->k) / folds, end = double(part.fold->k + 1) / folds;
  return part.fold->others ? Fractions{{0, begin}, {end, 1}} : Fractions{{begin, end}};
}

// Returns the first fractions of the order that both have; nothing if they have none in common.
std::optional<std::pair<double, double>> common_fractions(const SplitRequest& a, const SplitRequest& b) {
  constexpr double kRounding = 1e-9;
  for (const auto& [begin, end] : fractions_of(a))
    for (const auto& [other_begin, other_end] : fractions_of(b))
      if (const double from = std::max(begin, other_begin), to = std::min(end, other_end); from + kRounding < to)
        return std::pair(from, to);
  return {};
}

}  // namespace

bool have_same_source(const SplitRequest& held_out, const SplitRequest& trained) {
  if (held_out.self()["type"] != trained.self()["type"]) return false;
  const std::vector<fs::path> files = files_of_split(held_out), others = files_of_split(trained);
  if (files.empty()) return same_draws(held_out, trained);
  // An array of an archive.
  if (held_out.self().contains("path") && differs("input", held_out, trained)) return false;
  // The first of arrays, or of images and labels, is the inputs.
  const bool is_list = held_out.self().contains("files");
  return is_list ? std::equal(files.begin(), files.end(), others.begin(), others.end(), same_file) : same_file(files[0], others[0]);
}

SharedSamples shared_samples(const SplitRequest& held_out, const SplitRequest& trained, const std::string& name) {
  const Json &self = held_out.self(), &train = trained.self();
  const bool is_same = have_same_source(held_out, trained);
  if (!is_same && (self["type"] != train["type"] || !self.contains("files"))) return {};
  const auto file = shared_file(held_out, trained);
  if (!is_same && !file) return {};
  const std::string owner = name + (file ? copy_text(file->first, file->second) : "");
  if (!is_same)
    return {"files", joined("shares the samples of ", file->first.filename().string(), " with ", owner), "list each file once"};
  if (const auto common = common_fractions(held_out, trained)) {
    if (!self["fold"].is_null() || self["range"] != train["range"])
      return {self["fold"].is_null() ? "range" : "fold",
              joined("shares the samples of [", common->first, ", ", common->second, ") with ", owner), ""};
    const bool is_known = self.contains("split") || self.contains("path") || self.contains("input") || self.contains("files");
    if (!is_known) return {};  // a program's own row may draw other samples for each split
    return {"", joined("has samples of ", owner, ", which the model has seen"), "\"range\" or \"fold\" parts them"};
  }
  const std::string key = key_of_other_order(held_out, trained);
  if (key.empty()) return {};
  const bool is_seed = key == "seed";
  const Json own = is_seed ? held_out.config["seed"] : value_of_key(self, key),
             theirs = is_seed ? trained.config["seed"] : value_of_key(train, key);
  return {is_seed ? "" : key,
          joined(is_seed ? "is cut by seed " : "is ", own.dump(), ", but ", theirs.dump(), " for ", owner,
                 ": the two are cut from different orders of the samples, so that they share some"),
          "give both the same " + key};
}

bool are_shuffled_parts(const SplitRequest& held_out, const SplitRequest& trained) {
  return have_same_source(held_out, trained) && !files_of_split(held_out).empty() && !keeps_order(held_out) &&
         !common_fractions(held_out, trained);
}

}  // namespace halfstep::app
