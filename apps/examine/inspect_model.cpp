// SPDX-License-Identifier: Apache-2.0
#include "apps/examine/inspect_model.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <map>
#include <ostream>

#include "apps/terminal/cells.h"
#include "apps/terminal/quantity_text.h"
#include "apps/terminal/terminal.h"
#include "apps/use/model_file.h"
#include "framework/backend/kernel_log.h"
#include "framework/base/list_text.h"
#include "framework/data/transforms/data_form.h"
#include "framework/data/transforms/statistics.h"
#include "framework/io/checkpoint/checkpoint.h"
#include "framework/io/files/printable.h"
#include "framework/io/weights/safetensors.h"
#include "framework/io/weights/torch_file.h"
#include "framework/io/weights/weight_file.h"

namespace halfstep::app {
namespace {

namespace fs = std::filesystem;

uint64_t bytes_in(const fs::path& folder) {
  uint64_t bytes = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.is_regular_file()) bytes += entry.file_size();
  return bytes;
}

// Converts to JSON, with null for numbers that JSON lacks.
Json finite(double v) { return std::isfinite(v) ? Json(v) : Json(); }

// Describes tensors, with their values, or else with NaN and infinities if the tensors are not too large.
Json json_of(const TensorMap& tensors, bool values) {
  constexpr uint64_t kMostCountedBytes = uint64_t(4) << 30;  // larger files take long, and need --values
  Json out = Json::array();
  uint64_t bytes = 0;
  for (const auto& [name, t] : tensors) bytes += uint64_t(t.numel()) * size_of(t.dtype());
  const bool counts = bytes <= kMostCountedBytes;
  for (const auto& [name, t] : tensors) {
    Json entry{{"name", name}, {"shape", t.shape()}, {"dtype", halfstep::name(t.dtype())}, {"numbers", t.numel()}};
    if (values && t.numel() > 0) {
      ChannelSums sums;
      sums.add(t.reshape({t.numel()}));
      const ChannelStatistics s = sums.result().at(0);
      entry.update(Json{{"min", finite(s.low)},
                        {"max", finite(s.high)},
                        {"mean", finite(s.mean)},
                        {"std", finite(s.std)},
                        {"nan", s.nan},
                        {"inf", s.inf}});
    } else if (counts && t.is_floating_point() && !t.device().is_meta()) {
      if (const ValueCounts c = count_values(t); c.any_not_finite()) entry.update(Json{{"nan", c.nan}, {"inf", c.inf()}});
    }
    out.push_back(std::move(entry));
  }
  return out;
}

Json json_of(const DataForm& form) {
  Json out{{"kind", kind_of(form)}, {"input", form.input}, {"target", form.target}};
  if (form.vocabulary > 0) out["vocabulary"] = form.vocabulary;
  if (form.classes > 0) out["classes"] = form.classes;
  if (!form.names.empty()) out[form.classes > 0 ? "class_names" : "target_column"] = form.names;
  if (const auto* series = std::get_if<SeriesForm>(&form.source)) out["columns"] = series->options.columns;
  for (const ColumnScale& scale : form.scale.each) out["target_scales"].push_back({{"mean", scale.mean}, {"std", scale.std}});
  if (form.classes == 0 && form.scale != ColumnScale() && form.scale.each.empty())
    out["target_scale"] = {{"mean", form.scale.mean}, {"std", form.scale.std}};
  return out;
}

// Adds the parts that a checkpoint and an exported file share.
void add_model(Json& out, const StoredModel& model, bool values) {
  const JsonValue& meta = model.contents.meta;
  if (const auto config = meta->find("config"); config != meta->end()) {
    out["name"] = config->value("name", "");
    const nlohmann::json amp = config->value("amp", nlohmann::json());
    const bool is_mixed = amp.is_object() && amp.value("enabled", false);
    const std::string dtype =
        is_mixed && amp.contains("dtype") && amp["dtype"].is_string() ? amp["dtype"].get<std::string>() : "auto";
    out["precision"] = !is_mixed ? "float32" : dtype == "auto" ? "mixed: bfloat16 on a CPU, float16 on a GPU" : "mixed " + dtype;
  }
  if (model.averaged) out["averaged"] = true;
  out["metrics"] = model.metrics;
  if (model.contents.data) out["data"] = json_of(read_form((*model.contents.data)->at("form")));
  out["tensors"] = json_of(model.contents.model, values);
}

void add_checkpoint(Json& out, const fs::path& path, bool values) {
  const StoredModel model = load_model(path);
  const JsonValue& meta = model.contents.meta;
  out["checkpoint"] = path.string();
  out["step"] = checkpoint_step(path);
  if (const auto loader = meta->find("loader"); loader != meta->end()) out["epoch"] = loader->value("epoch", int64_t(0));
  if (const auto trainer = meta->find("trainer"); trainer != meta->end()) {
    out["skipped"] = trainer->value("skipped", int64_t(0));
    out["samples"] = trainer->value("samples", int64_t(0));
    out["seconds"] = trainer->value("seconds", 0.0);
  }
  if (const auto scaler = meta->find("scaler"); scaler != meta->end() && scaler->is_object() && scaler->contains("scale"))
    out["scale"] = (*scaler)["scale"];
  if (const auto writer = meta->find("written_by"); writer != meta->end()) out["written_by"] = *writer;
  add_model(out, model, values);
  out["state"] = Json{{"tensors", model.contents.state.size()}};
}

// Returns a file of tensors, or the checkpoint in use.
fs::path weights_at(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored) && (is_weight_index(path) || is_torch_file(path))) return path;
  const bool foreign = fs::is_directory(path, ignored) && checkpoint_step(path) < 0 && !fs::exists(path / "manifest.json", ignored);
  const fs::path inside = foreign ? weights_in_folder(path) : fs::path();
  return inside.empty() ? model_in_use(path) : inside;
}

// Adds tensors of other programs' files; returns their metadata.
std::map<std::string, std::string> add_tensors(Json& out, const fs::path& path, const std::string& key, bool values) {
  const WeightFile file = read_weight_file(path, key);
  out["kind"] = "tensors";
  uint64_t bytes = 0;
  for (const fs::path& path_of_file : file.files) {
    bytes += fs::file_size(path_of_file);
    if (file.files.size() > 1) out["files"].push_back(path_of_file.string());
  }
  out["bytes"] = bytes;
  if (!file.key.empty()) out["key"] = file.key;
  if (!file.model.empty()) out["model"] = file.model;
  if (file.others > 0) out["others"] = file.others;
  TensorMap tensors;
  for (const WeightFile::Entry& entry : file.tensors) tensors[entry.name] = entry.tensor;
  out["tensors"] = json_of(tensors, values);
  for (const UnreadTensor& t : file.unread) {
    out["tensors"].push_back(Json{
        {"name", t.name}, {"shape", t.shape}, {"dtype", t.what}, {"numbers", t.is_tensor ? numel(t.shape) : 0}, {"unread", true}});
  }
  return file.metadata;
}

Json checkpoints_of(const fs::path& run, const fs::path& latest, const fs::path& best) {
  Json out = Json::array();
  for (const int64_t step : list_checkpoints(run)) {
    const fs::path path = run / checkpoint_name(step);
    Json entry{{"step", step}, {"bytes", bytes_in(path)}};
    if (path == latest) entry["latest"] = true;
    if (path == best) entry["best"] = true;
    try {
      verify_checkpoint(path);
    } catch (const IoError& e) { entry["fault"] = e.what(); }
    out.push_back(std::move(entry));
  }
  return out;
}

std::string shape_text(const Json& shape) {
  std::string out;
  for (const Json& d : shape) out += (out.empty() ? "" : " x ") + d.dump();
  return out.empty() ? "one number" : out;
}

std::string with_commas(int64_t number) {
  std::string out = std::to_string(number);
  for (auto at = int64_t(out.size()) - 3; at > 0; at -= 3) out.insert(size_t(at), ",");
  return out;
}

void print_tensors(std::ostream& out, const Json& tensors, size_t width) {
  int64_t numbers = 0, unread = 0;
  std::vector<std::string> not_finite;
  constexpr size_t kName = 0, kDType = 2, kMin = 3, kMax = 4, kMean = 5, kStd = 6;  // columns
  const bool has_values = !tensors.empty() && tensors[0].contains("mean");
  Cells cells{{"tensor", "shape", "dtype"}};
  if (has_values) cells[0].insert(cells[0].end(), {"min", "max", "mean", "std", ""});
  const auto number = [](const Json& v) { return v.is_number() ? number_text(v.get<double>(), 4) : std::string("-"); };
  for (const Json& t : tensors) {
    numbers += t["numbers"].get<int64_t>();
    unread += t.contains("unread");
    if (t.contains("nan") && (t["nan"] != 0 || t["inf"] != 0)) not_finite.push_back(printable(t["name"].get<std::string>()));
    cells.push_back({t["name"].get<std::string>(), shape_text(t["shape"]), t["dtype"].get<std::string>()});
    if (!t.contains("mean")) continue;
    for (const char* key : {"min", "max", "mean", "std"}) cells.back().push_back(number(t[key]));
    std::string bad = t["nan"] != 0 ? t["nan"].dump() + " NaN" : "";
    if (t["inf"] != 0) bad += (bad.empty() ? "" : ", ") + t["inf"].dump() + " infinite";
    cells.back().push_back(bad);
  }
  print_cells(out, cells, {.width = width, .left_out = {kStd, kDType}, .shortened = {kName}, .right = {kMin, kMax, kMean, kStd}});
  out << tensors.size() << (tensors.size() == 1 ? " tensor, " : " tensors, ") << with_commas(numbers) << " numbers\n";
  if (unread > 0) out << unread << (unread == 1 ? " of them is" : " of them are") << " of a kind that halfstep does not have\n";
  if (!not_finite.empty())
    out << "warning: " << not_finite.size() << (not_finite.size() == 1 ? " tensor holds" : " tensors hold")
        << " values that are NaN or infinite: " << list_text(not_finite) << '\n';
}

void print_data(std::ostream& out, const Json& data) {
  out << "data: " << data["kind"].get<std::string>() << ", input " << data["input"].dump();
  if (data.contains("vocabulary")) out << ", " << data["vocabulary"] << " tokens";
  if (!data.contains("classes")) {
    out << ", target " << data["target"].dump();
    if (data.contains("target_column"))
      for (const Json& name : data["target_column"])
        out << (&name == &data["target_column"].front() ? " (" : ", ") << name.get<std::string>();
    if (data.contains("target_column")) out << ')';
  } else if (!data.contains("vocabulary")) {
    out << ", " << data["classes"] << " classes";
    if (data.contains("class_names")) {
      constexpr size_t kShown = 10;
      const Json& names = data["class_names"];
      for (size_t i = 0; i < names.size() && i < kShown; ++i) out << (i ? ", " : ": ") << in_line(names[i]);
      if (names.size() > kShown) out << ", ... (--json has all)";
    }
  }
  out << '\n';
}

}  // namespace

Json inspect_model(const fs::path& path, bool values, const std::string& key) {
  std::error_code ignored;
  Json out{{"path", path.string()}};
  if (fs::is_directory(path, ignored) && checkpoint_step(path) < 0 && !list_checkpoints(path).empty()) {
    out["kind"] = "run";
    const auto best = best_checkpoint(path);
    const fs::path latest = resolve_checkpoint(path), used = best.value_or(latest);
    out["checkpoints"] = checkpoints_of(path, latest, best.value_or(fs::path()));
    add_checkpoint(out, used, values);
    return out;
  }
  const fs::path used = weights_at(path);
  if (!fs::is_regular_file(used, ignored)) {
    check<DataError>(key.empty(), "inspect", path.string(), ": a key is for files of torch.save, and this is a checkpoint");
    out["kind"] = "checkpoint";
    add_checkpoint(out, used, values);
    return out;
  }
  std::map<std::string, std::string> metadata;
  if (!is_weight_index(used) && !is_torch_file(used)) metadata = read_safetensors_header(used).metadata;
  if (metadata.contains("halfstep.config")) {
    check<DataError>(key.empty(), "inspect", path.string(), ": a key is for files of torch.save, and this is an exported model");
    out["kind"] = "exported";
    out["bytes"] = fs::file_size(used);
    if (metadata.contains("halfstep.step")) out["step"] = std::stoll(metadata.at("halfstep.step"));
    add_model(out, load_model(used), values);
  } else {
    metadata = add_tensors(out, used, key, values);
  }
  if (is_torch_file(used)) return out;
  out["metadata"] = Json::object();
  for (const auto& [name, value] : metadata)
    if (!name.starts_with("halfstep.")) out["metadata"][name] = value;
  return out;
}

void print_model_report(std::ostream& out, const Json& r, size_t width) {
  out << r["path"].get<std::string>() << ": ";
  if (r["kind"] == "tensors") {
    const size_t files = r.contains("files") ? r["files"].size() : 1;
    out << (files > 1 ? joined(files, " files") : std::string("a file")) << " of tensors, " << bytes_text(r["bytes"].get<double>());
    if (r.contains("key")) out << ", those of the key \"" << r["key"].get<std::string>() << '"';
    if (r.contains("model")) out << ", those of the pickled model " << r["model"].get<std::string>();
    if (r.contains("others")) out << "; " << r["others"] << " that are no tensors are left out";
    out << '\n';
  } else {
    out << (r["kind"] == "exported" ? "an exported model" : "a " + r["kind"].get<std::string>());
    if (r.contains("name")) out << " of " << r["name"].get<std::string>() << ", " << r["precision"].get<std::string>();
    out << '\n';
  }
  if (r.contains("checkpoints")) {
    for (const Json& c : r["checkpoints"]) {
      out << "  step " << std::left << std::setw(10) << c["step"].get<int64_t>() << std::setw(10)
          << bytes_text(c["bytes"].get<double>());
      out << (c.contains("best") ? " best" : "") << (c.contains("latest") ? " latest" : "")
          << (c.contains("fault") ? " damaged: " : "");
      if (c.contains("fault")) out << c["fault"].get<std::string>();
      out << '\n';
    }
  }
  if (r.contains("checkpoint")) {
    out << "model of step " << r["step"] << ": ";
    if (r.contains("epoch")) out << "epoch " << r["epoch"] << ", ";
    out << r.value("samples", int64_t(0)) << " samples in " << number_text(r.value("seconds", 0.0), 3) << " s, "
        << r.value("skipped", int64_t(0)) << " steps skipped";
    if (r.contains("scale")) out << ", loss scale " << number_text(r["scale"].get<double>(), 6);
    out << "; all digests hold\n";
  }
  if (r.contains("metrics") && !r["metrics"].empty()) {
    out << "metrics:";
    for (const auto& [key, value] : r["metrics"].items())
      if (!key.ends_with("confusion_matrix")) out << ' ' << key << ' ' << number_text(value.get<double>(), 4);
    out << '\n';
  }
  if (r.contains("data")) print_data(out, r["data"]);
  if (r.contains("written_by"))
    out << "written by halfstep " << r["written_by"].value("halfstep", "?") << " on " << r["written_by"].value("device", "?")
        << '\n';
  if (r.contains("metadata"))
    for (const auto& [key, value] : r["metadata"].items()) out << "metadata " << key << ": " << value.get<std::string>() << '\n';
  out << '\n';
  print_tensors(out, r["tensors"], width);
}

}  // namespace halfstep::app
