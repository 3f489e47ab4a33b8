// SPDX-License-Identifier: Apache-2.0
// The files that a config extends.
#include "apps/config/merge.h"

#include <algorithm>

#include "framework/base/check.h"

namespace halfstep::app {
namespace {

constexpr size_t kMaxChain = 32;  // longest chain of "extends"

// Reports the first key for a section that the base has switched off, where it would have no effect.
void check_switched_on(const Tree& base, const Tree& over, const std::string& path, Issues& issues) {
  if (!is_off(base) || over.contains("enabled")) return;
  const auto given = std::find_if(over.begin(), over.end(), [](const Tree& value) { return !value.is_null(); });
  if (given == over.end()) return;
  issues.error(join_path(path, given.key()),
               "has no effect: the config that this one extends has " + path + " switched off; add \"enabled\": true");
}

void merge_value(Tree& base, Origins& origins, const Tree& over, const Origins& over_origins, const std::string& path,
                 Issues& issues) {
  const auto take_origin = [&](const std::string& p) {
    if (const auto it = over_origins.find(p); it != over_origins.end()) origins[p] = it->second;
  };
  take_origin(path);
  if (base.is_object() && over.is_object()) {
    check_switched_on(base, over, path, issues);
    for (const auto& [key, value] : over.items()) {
      const std::string below = join_path(path, key);
      if (value.is_null()) {
        base.erase(key);
        origins.erase(below);
        erase_below(origins, below);
      } else {
        merge_value(base[key], origins, value, over_origins, below, issues);
      }
    }
    return;
  }
  erase_below(origins, path);
  for (auto it = over_origins.lower_bound(path + "."); it != over_origins.end() && it->first.starts_with(path + "."); ++it) {
    origins[it->first] = it->second;
  }
  base = over;
}

ParsedJson load_chain(const std::filesystem::path& file, Issues& issues, std::vector<std::filesystem::path>& open,
                      size_t& bytes_left) {
  ParsedJson own = parse_json_file(file, bytes_left, issues);
  std::error_code error;  // never set: the file was just read
  const std::filesystem::path self = std::filesystem::weakly_canonical(file, error);
  if (std::find(open.begin(), open.end(), self) != open.end()) {
    std::string circle;
    for (const auto& p : open) circle += p.filename().string() + " -> ";
    fail<ConfigError>("config", "extends must not form a circle, got ", circle, self.filename().string());
  }
  open.push_back(self);
  check<ConfigError>(open.size() <= kMaxChain, "config", "extends must not lead over more than ", kMaxChain,
                     " files, got one more at ", file.string());
  if (!own.json.is_object() || !own.json.contains("extends") || !own.json["extends"].is_string()) return own;
  ParsedJson out = load_chain(file.parent_path() / own.json["extends"].get<std::string>(), issues, open, bytes_left);
  merge_over(out, own, issues);
  return out;
}

}  // namespace

void merge_over(ParsedJson& base, const ParsedJson& over, Issues& issues) {
  merge_value(base.json, base.origins, over.json, over.origins, "", issues);
}

ParsedJson load_with_bases(const std::filesystem::path& file, Issues& issues) {
  std::vector<std::filesystem::path> open;
  size_t bytes_left = kMaxConfigBytes;
  return load_chain(file, issues, open, bytes_left);
}

}  // namespace halfstep::app
