// SPDX-License-Identifier: Apache-2.0
#include "apps/report/comparable.h"

#include <algorithm>
#include <map>

#include "framework/base/check.h"
#include "framework/base/list_text.h"

namespace halfstep::app {
namespace {

constexpr size_t kMostShown = 5;  // names of a list

// Returns the keys that `is_one` accepts, and that differ in more than a default that one run does not have.
std::string differing_keys(const std::vector<RecordedRun>& runs, bool (*is_one)(const std::string& key)) {
  std::vector<std::string> out;
  for (const Difference& d : differences(runs)) {
    const auto is_unset = [](const Json& v) { return v.is_null() || v == Json(false); };
    if (is_one(d.key) && !std::all_of(d.values.begin(), d.values.end(), is_unset)) out.push_back(d.key);
  }
  const auto type = std::find_if(out.begin(), out.end(), [](const std::string& key) { return key.ends_with(".type"); });
  if (type != out.end()) out = {*type};  // other keys differ by it
  return list_text(out, kMostShown);
}

}  // namespace

std::vector<std::string> changed_files(const std::vector<RecordedRun>& runs) {
  std::map<std::string, std::map<std::string, std::vector<std::string>>> found;  // file, content, runs
  for (const RecordedRun& run : runs) {
    const Json files = run.made_by.is_object() ? run.made_by.value("files_sha256", Json()) : Json();
    if (!files.is_object()) continue;
    for (const auto& [file, content] : files.items())
      if (content.is_string()) found[file][content.get<std::string>()].push_back(run.name);
  }
  std::vector<std::string> out;
  for (const auto& [file, contents] : found) {
    if (contents.size() < 2) continue;
    std::vector<std::string> groups;
    for (const auto& [content, names] : contents) groups.push_back(list_text(names, kMostShown));
    std::sort(groups.begin(), groups.end());
    out.push_back(joined(file, " has changed between these runs, so their values are of other data: one content in ",
                         list_text(groups, kMostShown, "; another in ")));
  }
  return out;
}

std::string keys_of_other_scale(const std::vector<RecordedRun>& runs) {
  return differing_keys(runs, [](const std::string& key) {
    return key == "loss" || key.starts_with("loss.") || key == "data.train.standardize_target";
  });
}

std::string keys_of_other_samples(const std::vector<RecordedRun>& runs) {
  return differing_keys(runs, [](const std::string& key) {
    return key == "data.val.path" || key == "data.val.input" || key == "data.val.target" || key == "data.val.range";
  });
}

std::vector<std::string> comparison_warnings(const std::vector<RecordedRun>& runs) {
  std::vector<std::string> out = changed_files(runs);
  if (const std::string keys = keys_of_other_scale(runs); !keys.empty())
    out.push_back("the losses are not on one scale, since the runs differ in " + keys + ": compare them by another metric");
  if (const std::string keys = keys_of_other_samples(runs); !keys.empty())
    out.push_back("the values of data.val are of other samples, since the runs differ in " + keys +
                  ": halfstep eval RUN --set data.val... measures each on the same");
  return out;
}

}  // namespace halfstep::app
