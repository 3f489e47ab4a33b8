// SPDX-License-Identifier: Apache-2.0
#include "apps/catalog/weights.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <utility>

#include "apps/catalog/modules.h"
#include "apps/catalog/weights_help.h"
#include "apps/schema/pattern.h"
#include "framework/io/checkpoint.h"
#include "framework/io/torch_file.h"
#include "framework/ops/ops.h"
#include "layers/save.h"

namespace halfstep::app {
namespace {

namespace fs = std::filesystem;

const Section& rename_section() {
  static const Section made{"rename",
                            {pattern("match", nullptr, "pattern to find in a name of the file").required(),
                             text("replace", "", "its replacement in the model's name; \\1 is the first group")}};
  return made;
}

Field name_patterns(const char* key, const char* doc) {
  return list(key, Json::array(), pattern("", nullptr, "found in a name"), doc).items(0, 100).or_one();
}

const Section& weights_section() {
  static const Section made{
      "weights",
      {text("path", nullptr, "a file of safetensors or PyTorch, a folder with model.safetensors, or a halfstep run or checkpoint")
           .required(),
       boolean("strict", true, "file and layer must have the same names"),
       text("prefix", "", "use only names that begin with it, and remove it from them"),
       list("rename", Json::array(), optional_section("", rename_section(), "a change of name"),
            "changes of the file's names, one after the other")
           .items(0, 100),
       name_patterns("skip", "tensors of the file that are not read, and tensors of the model that keep their first values"),
       name_patterns("transpose", "matrices that are [in, out] in the file")}};
  return made;
}

std::function<bool(const std::string&)> finder(const Json& patterns) {
  const auto all = std::make_shared<std::vector<Pattern>>();
  for (const Json& text : patterns.is_array() ? patterns : Json::array({patterns})) all->emplace_back(text.get<std::string>());
  if (all->empty()) return {};
  return [all](const std::string& name) {
    return std::any_of(all->begin(), all->end(), [&](const Pattern& p) { return p.found_in(name); });
  };
}

LoadOptions load_options_of(const Json& weights) {
  const auto rules = std::make_shared<std::vector<std::pair<Pattern, std::string>>>();
  for (const Json& rule : weights["rename"])
    rules->emplace_back(Pattern(rule["match"].get<std::string>()), rule["replace"].get<std::string>());
  const auto renamed = [rules](std::string name) {
    for (const auto& [match, replace] : *rules) name = match.replaced(std::move(name), replace);
    return name;
  };
  return {.strict = weights["strict"],
          .prefix = weights["prefix"],
          .rename = renamed,
          .skip = finder(weights["skip"]),
          .transpose = finder(weights["transpose"])};
}

// Tensors that are one in the model must be one in the file, too: else the value of the last would silently win.
void check_tied(const Module& module, const StateDict& state) {
  const StateDict mine = module.state_dict();
  const auto find = [&](const std::string& name) {
    return std::find_if(state.begin(), state.end(), [&](const NamedTensor& n) { return n.name == name; });
  };
  for (size_t i = 0; i < mine.size(); ++i) {
    const auto first = find(mine[i].name);
    if (first == state.end()) continue;
    for (size_t k = i + 1; k < mine.size(); ++k) {
      if (!mine[k].tensor.shares_memory_with(mine[i].tensor)) continue;
      const auto second = find(mine[k].name);
      if (second == state.end() || first->tensor.shape() != second->tensor.shape()) continue;
      if (second->tensor.device().is_meta() || second->tensor.data_ptr() == first->tensor.data_ptr()) continue;
      check<ValueError>(equal(first->tensor, second->tensor), "load", mine[i].name, " and ", mine[k].name,
                        " are one tensor in the model, but differ in the file",
                        Help{"without \"tie\" the model has a tensor for each"});
    }
  }
}

std::string summary(const std::string& path, size_t tensors, const std::vector<std::string>& skipped) {
  std::string line = joined("weights: ", path, ": ", tensors, " tensors");
  for (size_t i = 0; i < std::min<size_t>(skipped.size(), 4); ++i) line += (i ? ", " : "; ") + skipped[i];
  if (skipped.size() > 4) line += joined(" and ", skipped.size() - 4, " more");
  return skipped.empty() ? line : line + (skipped.size() > 1 ? " keep their first values" : " keeps its first values");
}

// The file with the tensors: `path` itself, that of a checkpoint or of a run's, or model.safetensors in a folder of Hugging Face.
fs::path file_of(const fs::path& path) {
  if (path.extension() == ".safetensors" || is_torch_file(path)) return path;
  const std::string name = path.filename().string();
  check<DataError>(!fs::is_regular_file(path) || name == "latest" || name == "best", "weights", path.string(),
                   " must be a file of safetensors, named so, or of torch.save, or a halfstep run or checkpoint",
                   Help{name.ends_with(".index.json") ? "the weights are in several files: save_pretrained(folder, "
                                                        "max_shard_size=\"100GB\") of transformers writes one"
                                                      : "docs/fine_tuning.md says how such files are made"});
  const bool of_halfstep = fs::exists(path / "manifest.json") || fs::exists(path / "state.json");
  if (!of_halfstep && fs::exists(path / "model.safetensors")) return path / "model.safetensors";
  const fs::path checkpoint = resolve_checkpoint(path);
  verify_checkpoint(checkpoint);
  return checkpoint / "model.safetensors";
}

bool contains_help(const std::string& message) { return message.find("\nhelp: ") != std::string::npos; }

std::string load_file(Module& module, const Json& weights, const std::string& place) {
  fs::path file = weights["path"].get<std::string>();
  try {
    file = file_of(file);
    const LoadOptions options = load_options_of(weights);
    const StateForModule read = read_state(module, file, options);
    std::vector<std::string> kept = read.skipped;
    size_t loaded = read.state.size() - read.skipped.size(), ignored = 0;
    try {
      check_tied(module, read.state);
      const LoadReport report = module.load_state_dict(read.state, options.strict);
      kept.insert(kept.end(), report.missing.begin(), report.missing.end());
      loaded -= report.unexpected.size();
      check<ValueError>(loaded > 0, "load", "no name of the file is one of the model, so nothing would be read");
      ignored = report.unexpected.size();
    } catch (const ValueError& e) {
      const std::string what = e.what(), help = contains_help(what) ? "" : weights_help(module, file, weights, read.state);
      fail<ConfigError>(place, file.string(), ": ", what, help.empty() ? "" : "\nhelp: " + help);
    }
    return summary(weights["path"], loaded, kept) + (ignored ? joined("; ", ignored, " of the file are not in the model") : "");
  } catch (const ConfigError&) { throw; } catch (const Error& e) {
    fail<ConfigError>(place, e.what());
  }
}

// absent_too: a file that is not there is an error.
void load_all(Module& module, const Json& model, const std::string& path, bool absent_too, std::vector<std::string>& lines) {
  if (model.contains("weights") && !model["weights"].is_null()) {
    std::error_code none;
    const std::string file = model["weights"]["path"];
    if (absent_too || fs::exists(file, none))
      lines.push_back(load_file(module, model["weights"], join_path(path, "weights")));
    else
      lines.push_back("weights: " + file + " is not there, and was not checked");
  }
  const ModuleRow& row = module_catalog().row(model);
  if (!row.parts) return;
  const auto below = module.named_modules();
  Json self = model;
  for (const LayerPart& part : row.parts(self)) {
    for (const auto& [name, child] : below) {
      if (name == part.name) load_all(*child, *part.config, join_path(path, part.key), absent_too, lines);
    }
  }
}

}  // namespace

Field weights_field() { return optional_section("weights", weights_section(), "values from a file").or_text("path"); }

std::vector<std::string> load_weights(Module& module, const Json& model, const std::string& path) {
  std::vector<std::string> lines;
  load_all(module, model, path, true, lines);
  return lines;
}

std::vector<std::string> check_weights(const Json& model, const std::string& path) {
  const DefaultDevice on(Device::meta);
  std::vector<std::string> lines;
  load_all(*build_model(model), model, path, false, lines);
  return lines;
}

}  // namespace halfstep::app
