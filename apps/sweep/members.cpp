// SPDX-License-Identifier: Apache-2.0
#include "apps/sweep/members.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "apps/catalog/infer.h"
#include "apps/report/comparable.h"
#include "apps/report/record.h"
#include "apps/terminal/quantity_text.h"
#include "framework/base/check.h"
#include "framework/base/number_text.h"
#include "framework/io/files/atomic_file.h"
#include "framework/io/files/json.h"

namespace halfstep::app {
namespace {

namespace fs = std::filesystem;
constexpr size_t kListedMembers = 3;      // most members with a wrong config to list
constexpr size_t kMostValueColumns = 24;  // of a value in a table
constexpr size_t kMostLabelLetters = 60;  // of a folder's name, behind its number
constexpr size_t kMostErrorBytes = 300;
constexpr size_t kMostJsonBytes = size_t(16) << 20, kMostOutputBytes = size_t(64) << 20;  // of files to read
constexpr int kNumberDigits = 4, kMostNumberDigits = 7;                                   // of a folder's number

bool has_only_digits(const std::string& word) { return !word.empty() && std::all_of(word.begin(), word.end(), is_digit); }

// Returns 7 for "0007-lr0.01"; 0 for a folder that is not a member's.
int64_t number_of_folder(const std::string& folder) {
  const std::string digits = folder.substr(0, folder.find('-'));
  return digits.size() >= kNumberDigits && digits.size() <= kMostNumberDigits && has_only_digits(digits) ? std::stoll(digits) : 0;
}

// Returns "-lr0.01-out_features64", of characters that are safe in shells and file systems.
std::string label_of(const Settings& values) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-";
  std::vector<std::string> keys;
  for (const Setting& s : values) keys.push_back(s.key);
  const std::vector<std::string> names = short_names(keys);
  std::string out;
  for (size_t i = 0; i < values.size(); ++i) {
    for (const char c : "-" + names[i] + value_text(values[i].value)) {
      if (kPlain.find(c) != std::string_view::npos) out += c;
      if (c == ',' || c == ':' || c == '/') out += '_';
    }
  }
  return out.substr(0, kMostLabelLetters);
}

std::string settings_text(const Settings& values) {
  std::string out;
  for (const Setting& s : values) out += (out.empty() ? "" : ", ") + s.key + "=" + value_text(s.value);
  return out;
}

// Returns the part of a config by which a sweep compares members.
std::string identity_of(Json config) {
  config.erase("output_dir");
  return nlohmann::json(config).dump();
}

Json json_in(const fs::path& file) {
  try {
    return read_json<Json>(read_file(file, kMostJsonBytes));
  } catch (const Error&) { return {}; }  // missing, or not written by a sweep
}

// Maps members' configs, with the defaults of a newer halfstep added, to their folders.
std::map<std::string, std::string> folders_by_config(const fs::path& output_dir, const std::set<std::string>& listed) {
  std::map<std::string, std::string> out;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(output_dir, ignored)) {
    const std::string name = entry.path().filename().string();
    if (number_of_folder(name) == 0 || !entry.is_directory(ignored)) continue;
    const Json config = json_in(entry.path() / "config.json");
    if (!config.is_object()) continue;
    std::string identity = identity_of(config);
    if (!listed.contains(identity)) {
      try {
        identity = identity_of(resolve_config(config, name).json);
      } catch (const Error&) {}  // not one of the file's members
    }
    const auto [at, is_new] = out.emplace(identity, name);
    if (!is_new) at->second = std::min(at->second, name);
  }
  return out;
}

// Returns the message without "[config] ".
std::string detail_of(const ConfigError& e) {
  const std::string text = e.what(), prefix = "[config] ";
  return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
}

// Adds a member, unless its config equals another's.
void add_member(const Settings& values, const Config& config, std::set<std::string>& identities, SweepMembers& out) {
  if (!identities.insert(identity_of(config.json)).second) {
    ++out.repeated;
    return;
  }
  const std::string &monitor = config.checkpoint.monitor, &mode = config.checkpoint.mode;
  if (out.all.empty()) out.monitor = monitor, out.mode = mode;
  check<ConfigError>(out.monitor == monitor && out.mode == mode, "sweep",
                     "all members must have one checkpoint.monitor and .mode, got ", out.monitor, ", ", out.mode, " and ", monitor,
                     ", ", mode, Help{"a sweep orders its members by one value: give both keys in \"set\""});
  out.all.push_back({.values = values, .config = config.json});
}

// Warns if the members' values are not of one kind, by their configs.
void warn_of_other_values(SweepMembers& members) {
  std::vector<RecordedRun> runs;
  for (const SweepMember& m : members.all) {
    RecordedRun run;
    run.config = m.config;
    runs.push_back(std::move(run));
  }
  if (runs.size() < 2) return;
  const std::string end = joined(", so ", members.monitor, " does not say which is better");
  if (const std::string keys = keys_of_other_scale(runs); !keys.empty() && members.monitor.ends_with("/loss"))
    members.warnings.push_back("members differ in " + keys + ", and losses of different scales are not comparable" + end +
                               R"(: order classifiers by --set checkpoint.monitor=val/accuracy, and numbers by --set )"
                               R"('metrics=["rmse"]' --set checkpoint.monitor=val/rmse)");
  if (const std::string keys = keys_of_other_samples(runs); !keys.empty() && members.monitor.starts_with("val/"))
    members.warnings.push_back("members differ in " + keys + ", and are measured on other samples" + end);
}

void check_sets(const SweepFile& sweep, const std::vector<std::string>& sets) {
  for (const std::string& set : sets) {
    const std::string key = set.substr(0, set.find('='));
    check<ConfigError>(std::find(sweep.keys.begin(), sweep.keys.end(), key) == sweep.keys.end(), "sweep", "--set ", set,
                       " gives all members one value of a key that ", sweep.path.string(), " sweeps");
    check<ConfigError>(key != "output_dir" && key != "checkpoint.resume", "sweep", "--set ", key,
                       " is for one run: each member has its own folder, and continues by itself");
  }
}

}  // namespace

std::vector<std::string> short_names(const std::vector<std::string>& keys) {
  const auto last_part = [](const std::string& key) { return key.substr(key.rfind('.') + 1); };
  std::vector<std::string> out;
  for (const std::string& key : keys) {
    const auto same = [&](const std::string& other) { return last_part(other) == last_part(key); };
    out.push_back(std::count_if(keys.begin(), keys.end(), same) > 1 || has_only_digits(last_part(key)) ? key : last_part(key));
  }
  return out;
}

std::string value_text(const Json& value) {
  if (value.is_number_float()) return number_text(value.get<double>(), 6);
  if (value.is_object() && value.contains("type") && value["type"].is_string()) return value["type"].get<std::string>();
  std::string out = value.is_string() ? value.get<std::string>() : line_of(value);
  size_t end = kMostValueColumns;
  if (out.size() <= end) return out;
  while (end > 0 && (out[end] & 0xc0) == 0x80) --end;  // do not split a character
  return out.substr(0, end) + "...";
}

SweepMembers check_members(const SweepFile& sweep, const std::vector<std::string>& sets) {
  check_sets(sweep, sets);
  SweepMembers out;
  std::set<std::string> identities, warnings;
  std::string wrong;
  size_t faults = 0;
  for (size_t i = 0; i < sweep.members.size(); ++i) {
    const std::string member = joined("member ", i + 1, " (", settings_text(sweep.members[i]), ")");
    try {
      const Config config = sweep_config(sweep, sweep.members[i], sets);
      if (!config.data_fault.empty()) throw DataError(config.data_fault + "\nin " + member + " of " + sweep.path.string());
      for (const std::string& w : config.warnings)  // a warning about a swept key in every member is printed once
        if (warnings.insert(w.starts_with("--set ") ? w.substr(w.find(": ")) : w).second) out.warnings.push_back(w);
      add_member(sweep.members[i], config, identities, out);
    } catch (const ConfigError& e) {
      if (++faults <= kListedMembers) wrong += "\n" + member + ": " + detail_of(e);
    }
  }
  if (faults > kListedMembers) wrong += joined("\nand ", faults - kListedMembers, " more");
  warn_of_other_values(out);
  check<ConfigError>(faults == 0, "sweep", faults, " of the ", sweep.members.size(), " members of ", sweep.path.string(),
                     faults == 1 ? " has" : " have", " a wrong config; none was started", wrong);
  return out;
}

void assign_folders(const SweepFile& sweep, SweepMembers& members) {
  std::set<std::string> identities;
  for (const SweepMember& m : members.all) identities.insert(identity_of(m.config));
  std::map<std::string, std::string> folders = folders_by_config(sweep.output_dir, identities);
  int64_t number = 0;
  for (const auto& [identity, name] : folders) number = std::max(number, number_of_folder(name));
  for (SweepMember& m : members.all) {
    if (const auto found = folders.find(identity_of(m.config)); found != folders.end()) {
      m.has_folder = true;
      m.name = found->second;
      folders.erase(found);
    } else {
      const std::string digits = std::to_string(++number);
      m.name = std::string(kNumberDigits - std::min<size_t>(kNumberDigits, digits.size()), '0') + digits + label_of(m.values);
    }
    m.folder = sweep.output_dir / m.name;
  }
  for (const auto& [identity, name] : folders) members.others.push_back(name);
  std::sort(members.others.begin(), members.others.end());
}

void record_exit(const SweepMember& member, const std::optional<int>& code) {
  Json values = Json::object();
  for (const Setting& s : member.values) values[s.key] = s.value;
  atomic_write(member.folder / "member.json", Json{{"values", values}, {"exit_code", code ? Json(*code) : Json()}}.dump(2) + "\n");
}

void make_folders(const SweepMembers& members) {
  for (const SweepMember& m : members.all) {
    if (m.has_folder) continue;
    std::error_code error;
    fs::create_directories(m.folder, error);
    check<IoError>(!error, "sweep", "output_dir must be a folder that can be written, got ", m.folder.parent_path().string(), " (",
                   error.message(), ")");
    record_exit(m, {});
    Json config = m.config;
    config.erase("output_dir");
    atomic_write(m.folder / "config.json", config.dump(2) + "\n");  // written last: it marks the folder as the member's
  }
}

namespace {

// Returns the last message of a failed run, without its help.
std::string error_in(const fs::path& output) {
  std::string text;
  try {
    text = read_file(output, kMostOutputBytes);
  } catch (const IoError&) { return ""; }
  const size_t line = text.rfind("\n[");
  size_t at = line == std::string::npos ? 0 : line + 1;
  if (at >= text.size() || text[at] != '[') return "";
  size_t end = std::min(text.find('\n', at), text.size());
  std::string out = text.substr(at, end - at);
  if (text.compare(end, 3, "\n  ") == 0) out += ": " + text.substr(end + 3, text.find('\n', end + 3) - end - 3);
  if (out.size() > kMostErrorBytes) out = out.substr(0, kMostErrorBytes) + "...";
  return out;
}

}  // namespace

MemberState state_of(const SweepMember& member) {
  MemberState out;
  const Json own = json_in(member.folder / "member.json");
  if (own.is_object() && own.value("exit_code", Json()).is_number_integer()) out.exit_code = own["exit_code"].get<int>();
  if (out.has_failed()) out.error = error_in(member.folder / "output.txt");
  std::error_code ignored;
  if (!fs::exists(member.folder / "config.resolved.json", ignored)) return out;
  try {
    const RecordedRun run = read_run(member.folder, /*with_checkpoints=*/false);
    out.ending = run.ending, out.made_by = run.made_by;
    const auto last_value = [&](const char* key) { return run.last.contains(key) ? run.last.at(key) : 0.0; };
    for (const auto& [key, points] : run.values)
      if (!points.empty()) out.steps = std::max(out.steps, int64_t(points.back().x));
    out.seconds = last_value("seconds");
    if (const auto best = run.best()) out.value = best->point.y, out.value_step = int64_t(best->point.x);
  } catch (const Error&) { return out; }  // the file is not a run's: the member starts again
  const Json record = json_in(member.folder / "run.json");
  const Json summary = record.is_object() ? record.value("summary", Json()) : Json();
  if (!summary.is_object()) return out;
  if (summary.value("steps_applied", Json()).is_number()) out.steps = summary["steps_applied"].get<int64_t>();
  if (summary.value("seconds", Json()).is_number()) out.seconds = summary["seconds"].get<double>();
  return out;
}

std::string MemberState::text() const {
  if (has_failed()) return joined(is_finished() ? "finished, " : "", "exit code ", *exit_code);
  if (ending.empty()) return "not begun";
  return is_finished() ? "finished" : ending == "failed" ? "failed" : "stopped";
}

}  // namespace halfstep::app
