// SPDX-License-Identifier: Apache-2.0
#include "apps/report/record.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>

#include "apps/catalog/datasets.h"
#include "apps/report/observed.h"
#include "apps/terminal/terminal.h"
#include "framework/base/text_stream.h"
#include "framework/data/transforms/data_form.h"
#include "framework/io/checkpoint/checkpoint.h"

namespace halfstep::app {
namespace {

namespace fs = std::filesystem;

// Lists the values of nested objects by their dotted paths.
void flatten(const Json& value, const std::string& path, std::map<std::string, Json>& out) {
  if (!value.is_object() || value.empty()) {
    out[path] = value;
    return;
  }
  for (const auto& [key, inner] : value.items()) flatten(inner, path.empty() ? key : path + "." + key, out);
}

// Adds facts from the newest checkpoint; if it is damaged, the curves remain.
void add_checkpoint(RecordedRun& run, const fs::path& folder) {
  try {
    const auto newest = latest_checkpoint(folder);
    if (!newest) return;
    const CheckpointContents contents = load_checkpoint(*newest);
    if (const auto writer = contents.meta->find("written_by"); writer != contents.meta->end()) run.made_by = *writer;
    if (contents.data) run.classes = read_form((*contents.data)->at("form")).names;
  } catch (const IoError&) {}
}

void add_best(RecordedRun& run, const fs::path& folder) {
  try {
    if (const auto best = best_checkpoint(folder)) run.best_step = double(checkpoint_step(*best));
  } catch (const Error&) {}
}

void add_run_json(RecordedRun& run, const fs::path& file) {
  std::ifstream in(file);
  const Json json = in.good() ? Json::parse(in, nullptr, /*allow_exceptions=*/false) : Json();
  if (!json.is_object()) return;
  run.ending = text_at(json, "ending", "");
  const Json summary = json.value("summary", Json());
  for (const char* key : {"samples_per_second", "peak_bytes", "seconds"})
    if (summary.is_object() && summary.value(key, Json()).is_number()) run.last[key] = summary[key].get<double>();
  if (const auto starts = json.find("starts"); starts != json.end() && starts->is_array() && !starts->empty())
    run.made_by = starts->back();
}

// Adds a line of metrics.jsonl. skipped: the count of skipped steps so far, which it updates.
void add_line(RecordedRun& run, const Json& entry, double& skipped) {
  const double step = entry["step"].get<double>();
  for (const auto& [key, value] : entry.items()) {
    if (value.is_number() && key != "step") {
      run.values[key].push_back({step, value.get<double>()});
      run.last[key] = value.get<double>();
    } else if (value.is_array() || (value.is_object() && key.ends_with("/table"))) {
      run.tables[key] = value;
    }
  }
  if (const auto it = entry.find("skipped"); it != entry.end() && it->is_number()) {
    if (it->get<double>() > skipped) run.skips.push_back(step);
    skipped = it->get<double>();
  }
}

std::vector<Difference> differences_of(const std::vector<std::map<std::string, Json>>& flat) {
  std::set<std::string> keys;
  for (const auto& config : flat)
    for (const auto& [key, value] : config) keys.insert(key);
  std::vector<Difference> out;
  for (const std::string& key : keys) {
    if (key == "name" || key == "output_dir" || key == "$schema") continue;
    Difference d{key, {}};
    for (const auto& config : flat) d.values.push_back(config.contains(key) ? config.at(key) : Json());
    if (std::any_of(d.values.begin(), d.values.end(), [&](const Json& v) { return v != d.values[0]; })) out.push_back(std::move(d));
  }
  return out;
}

std::string types_of(const Json& list) {
  std::string out;
  for (const Json& e : list) out += (out.empty() ? "" : ", ") + text_at(e, "type", "?");
  return out;
}

// Returns, for lists with the same components, the keys in which these differ, "model.layers.0.out_features"; else the lists.
std::vector<Difference> expanded(const Difference& d) {
  for (const Json& v : d.values)
    if (!v.is_array() || v.empty() || types_of(v) != types_of(d.values[0])) return {d};
  std::vector<std::map<std::string, Json>> flat(d.values.size());
  for (size_t run = 0; run < d.values.size(); ++run)
    for (size_t i = 0; i < d.values[run].size(); ++i) flatten(d.values[run][i], d.key + "." + std::to_string(i), flat[run]);
  return differences_of(flat);
}

// Returns whether the value is the data set type's default.
bool is_default(const Json& config, const std::string& key, const Json& value) {
  std::vector<std::string> parts;
  TextReader in(key);
  for (std::string part; std::getline(in, part, '.');) parts.push_back(part);
  if (parts.size() != 3 || parts[0] != "data") return false;
  const Json& data = config.contains("data") ? config["data"] : Json::object();
  const std::string type = data.contains(parts[1]) ? text_at(data[parts[1]], "type", "") : "";
  const Component* component = dataset_family().find(type);
  if (!component || parts[2] == "type") return false;
  for (const std::vector<Field>* fields : {&component->fields, &dataset_family().common})
    for (const Field& f : *fields)
      if (f.key == parts[2]) return f.fallback == value || (f.kind == FieldKind::list && value.is_array() && value.empty());
  return false;
}

}  // namespace

std::string RecordedRun::precision() const {
  const auto amp = config.find("amp");
  if (amp == config.end() || !amp->is_object() || amp->value("enabled", Json()) != true) return "float32";
  return text_at(*amp, "dtype", "auto");
}

std::optional<RecordedRun::BestValue> RecordedRun::best() const {
  const auto checkpoint = config.find("checkpoint");
  if (checkpoint == config.end() || !checkpoint->is_object() || !checkpoint->value("monitor", Json()).is_string()) return {};
  BestValue out{(*checkpoint)["monitor"].get<std::string>(), {}, checkpoint->value("mode", Json()) == Json("max")};
  // Use the mean of an epoch if lines have it.
  const bool of_epochs = out.key == "train/loss" && values.contains("train/epoch_loss");
  const auto found = values.find(of_epochs ? "train/epoch_loss" : out.key);
  if (found == values.end() || found->second.empty()) return {};
  out.point = found->second[0];
  const auto at_best = [&](const Point& p) { return p.x == best_step; };
  if (const auto it = std::find_if(found->second.rbegin(), found->second.rend(), at_best); it != found->second.rend()) {
    out.point = *it;
    return out;
  }
  for (const Point& p : found->second)
    if (out.larger_is_better ? p.y >= out.point.y : p.y <= out.point.y) out.point = p;
  return out;
}

RecordedRun read_run(const fs::path& folder, bool with_checkpoints) {
  std::ifstream config(folder / "config.resolved.json");
  check<CheckpointError>(config.good(), "report", folder.string(), " is no run's folder: it has no config.resolved.json",
                         Help{"give the folder that `halfstep train` names"});
  RecordedRun out;
  out.config = Json::parse(config, nullptr, /*allow_exceptions=*/false);
  check<CheckpointError>(out.config.is_object(), "report", (folder / "config.resolved.json").string(), " is no JSON object");
  const fs::path path = folder.lexically_normal();
  out.name = (path.has_filename() ? path : path.parent_path()).filename().string();
  if (with_checkpoints) add_checkpoint(out, folder);
  add_best(out, folder);
  add_run_json(out, folder / "run.json");
  std::ifstream lines(folder / "metrics.jsonl");
  double skipped = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json entry = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (entry.is_object() && entry.contains("step") && entry["step"].is_number())
      add_line(out, entry, skipped);
    else
      ++out.lines_left_out;
  }
  add_observed(out, folder / "observed.jsonl");
  return out;
}

std::string text_at(const Json& object, const char* key, const std::string& otherwise) {
  const auto it = object.is_object() ? object.find(key) : object.end();
  return it != object.end() && it->is_string() ? it->get<std::string>() : otherwise;
}

Points thinned(const Points& points, double low, double high, int pixels) {
  if (int64_t(points.size()) <= 2 * int64_t(pixels)) return points;
  const auto pixel = [&](const Point& p) { return int((p.x - low) / (high - low) * pixels); };
  Points out;
  for (size_t i = 0; i < points.size();) {
    size_t least = i, largest = i, end = i;
    for (; end < points.size() && pixel(points[end]) == pixel(points[i]); ++end) {
      if (points[end].y < points[least].y) least = end;
      if (points[end].y > points[largest].y) largest = end;
    }
    out.push_back(points[std::min(least, largest)]);
    if (least != largest) out.push_back(points[std::max(least, largest)]);
    i = end;
  }
  return out;
}

Points smoothed(const Points& points, double fade) {
  Points out;
  double sum = 0, weight = 0;
  for (const Point& p : points) {
    if (!std::isfinite(p.y)) continue;
    sum = fade * sum + p.y, weight = fade * weight + 1;
    out.push_back({p.x, sum / weight});
  }
  return out;
}

std::vector<Difference> differences(const std::vector<RecordedRun>& runs) {
  std::vector<std::map<std::string, Json>> flat(runs.size());
  for (size_t i = 0; i < runs.size(); ++i) flatten(runs[i].config, "", flat[i]);
  return differences_of(flat);
}

std::string value_words(const Json& v, size_t most_columns) {
  if (v.is_null()) return "";
  const auto is_component = [](const Json& e) { return !text_at(e, "type", "").empty(); };
  if (!v.is_array() || v.empty() || !std::all_of(v.begin(), v.end(), is_component)) return shortened(v.dump(), most_columns);
  return shortened(types_of(v), most_columns);
}

FoldedDifferences folded(const std::vector<Difference>& given, const std::vector<RecordedRun>& runs) {
  const std::string train = "data.train.";
  FoldedDifferences out;
  std::vector<Difference> all;
  for (const Difference& d : given)
    for (Difference& part : expanded(d)) all.push_back(std::move(part));
  for (const Difference& d : all) {
    bool is_repeated = false;
    std::string parts = "train";
    for (const std::string part : {"val", "test"}) {
      const std::string prefix = "data." + part + ".";
      const auto same = [&](const std::string& key) {
        return std::any_of(all.begin(), all.end(), [&](const Difference& o) { return o.key == key && o.values == d.values; });
      };
      if (d.key.starts_with(prefix)) is_repeated = is_repeated || same(train + d.key.substr(prefix.size()));
      if (d.key.starts_with(train) && same(prefix + d.key.substr(train.size()))) parts += ", " + part;
    }
    if (is_repeated) continue;
    Difference shown = d;
    if (d.key.starts_with(train)) shown.key = "data." + parts + "." + d.key.substr(train.size());
    bool has_defaults = true;
    for (size_t i = 0; i < runs.size(); ++i)
      has_defaults = has_defaults && (d.values[i].is_null() || is_default(runs[i].config, d.key, d.values[i]));
    (has_defaults ? out.defaults : out.shown).push_back(std::move(shown));
  }
  return out;
}

}  // namespace halfstep::app
