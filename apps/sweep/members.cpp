// SPDX-License-Identifier: Apache-2.0
#include "apps/sweep/members.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "apps/catalog/infer.h"
#include "apps/report/record.h"
#include "apps/terminal/progress.h"
#include "framework/base/check.h"
#include "framework/io/files/atomic_file.h"
#include "framework/io/files/json.h"

namespace halfstep::app {
namespace {

namespace fs = std::filesystem;
constexpr size_t kListedMembers = 3;  // most members with a wrong config to list
constexpr size_t kLongestValue = 24;  // columns of a value in a table
constexpr size_t kLongestLabel = 60;  // characters of a folder's name
constexpr size_t kLongestError = 300;
constexpr int kNumberDigits = 4;

bool is_index_word(const std::string& s) {
  return !s.empty() && std::all_of(s.begin(), s.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Returns 7 for "0007-lr0.01"; 0 for a folder that is not a member's.
int64_t number_of_folder(const std::string& folder) {
  const std::string digits = folder.substr(0, folder.find('-'));
  return digits.size() >= kNumberDigits && digits.size() < 8 && is_index_word(digits) ? std::stoll(digits) : 0;
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
  return out.substr(0, kLongestLabel);
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
    return read_json<Json>(read_file(file, size_t(16) << 20));
  } catch (const Error&) { return {}; }  // missing, or not written by a sweep
}

// Maps members' configs, with the defaults of a newer halfstep added, to their folders.
std::map<std::string, std::string> folders_by_config(const fs::path& output_dir, const std::set<std::string>& listed) {
  std::map<std::string, std::string> out;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(output_dir, none)) {
    const std::string name = entry.path().filename().string();
    if (number_of_folder(name) == 0 || !entry.is_directory(none)) continue;
    const Json config = json_in(entry.path() / "config.json");
    if (!config.is_object()) continue;
    std::string identity = identity_of(config);
    if (!listed.contains(identity)) {
      try {
        identity = identity_of(resolve_config(config, name).json);
      } catch (const Error&) {}  // not one of the file's members
    }
    const auto [at, added] = out.emplace(identity, name);
    if (!added) at->second = std::min(at->second, name);
  }
  return out;
}

std::string detail_of(const ConfigError& e) {
  const std::string text = e.what();
  return text.starts_with("[config] ") ? text.substr(9) : text;
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
  const auto last = [](const std::string& key) { return key.substr(key.rfind('.') + 1); };
  std::vector<std::string> out;
  for (const std::string& key : keys) {
    const auto same = [&](const std::string& other) { return last(other) == last(key); };
    out.push_back(std::count_if(keys.begin(), keys.end(), same) > 1 || is_index_word(last(key)) ? key : last(key));
  }
  return out;
}

std::string value_text(const Json& value) {
  if (value.is_number_float()) return number_text(value.get<double>(), 6);
  if (value.is_object() && value.contains("type") && value["type"].is_string()) return value["type"].get<std::string>();
  std::string out = value.is_string() ? value.get<std::string>() : line_of(value);
  size_t end = kLongestValue;
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
    const std::string who = joined("member ", i + 1, " (", settings_text(sweep.members[i]), ")");
    try {
      const Config config = sweep_config(sweep, sweep.members[i], sets);
      if (!config.data_fault.empty()) throw DataError(config.data_fault + "\nin " + who + " of " + sweep.path.string());
      for (const std::string& w : config.warnings)  // a warning about a swept key in every member is printed once
        if (warnings.insert(w.starts_with("--set ") ? w.substr(w.find(": ")) : w).second) out.warnings.push_back(w);
      add_member(sweep.members[i], config, identities, out);
    } catch (const ConfigError& e) {
      if (++faults <= kListedMembers) wrong += "\n" + who + ": " + detail_of(e);
    }
  }
  if (faults > kListedMembers) wrong += joined("\nand ", faults - kListedMembers, " more");
  check<ConfigError>(faults == 0, "sweep", faults, " of the ", sweep.members.size(), " members of ", sweep.path.string(),
                     faults == 1 ? " has" : " have", " a wrong config; none was started", wrong);
  return out;
}

void find_folders(const SweepFile& sweep, SweepMembers& members) {
  std::set<std::string> identities;
  for (const SweepMember& m : members.all) identities.insert(identity_of(m.config));
  std::map<std::string, std::string> folders = folders_by_config(sweep.output_dir, identities);
  int64_t number = 0;
  for (const auto& [identity, name] : folders) number = std::max(number, number_of_folder(name));
  for (SweepMember& m : members.all) {
    if (const auto found = folders.find(identity_of(m.config)); found != folders.end()) {
      m.is_there = true;
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
    if (m.is_there) continue;
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
    text = read_file(output, size_t(64) << 20);
  } catch (const IoError&) { return ""; }
  const size_t line = text.rfind("\n[");
  size_t at = line == std::string::npos ? 0 : line + 1;
  if (at >= text.size() || text[at] != '[') return "";
  size_t end = std::min(text.find('\n', at), text.size());
  std::string out = text.substr(at, end - at);
  if (text.compare(end, 3, "\n  ") == 0) out += ": " + text.substr(end + 3, text.find('\n', end + 3) - end - 3);
  if (out.size() > kLongestError) out = out.substr(0, kLongestError) + "...";
  return out;
}

}  // namespace

MemberState state_of(const SweepMember& member) {
  MemberState out;
  const Json own = json_in(member.folder / "member.json");
  if (own.is_object() && own.value("exit_code", Json()).is_number_integer()) out.exit_code = own["exit_code"].get<int>();
  if (out.failed()) out.error = error_in(member.folder / "output.txt");
  std::error_code none;
  if (!fs::exists(member.folder / "config.resolved.json", none)) return out;
  try {
    const RecordedRun run = read_run(member.folder, /*with_checkpoints=*/false);
    out.ending = run.ending;
    const auto last = [&](const char* key) { return run.last.contains(key) ? run.last.at(key) : 0.0; };
    for (const auto& [key, points] : run.values)
      if (!points.empty()) out.steps = std::max(out.steps, int64_t(points.back().x));
    out.seconds = last("seconds");
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
  if (failed()) return joined(finished() ? "finished, " : "", "exit code ", *exit_code);
  if (ending.empty()) return "not begun";
  return finished() ? "finished" : ending == "failed" ? "failed" : "stopped";
}

}  // namespace halfstep::app
