// SPDX-License-Identifier: Apache-2.0
#include "apps/catalog/weights.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "apps/catalog/averages.h"
#include "apps/catalog/modules.h"
#include "apps/schema/pattern.h"
#include "framework/base/list_text.h"
#include "framework/io/checkpoint/checkpoint.h"
#include "framework/io/files/atomic_file.h"
#include "framework/io/files/json.h"
#include "framework/io/files/other_file.h"
#include "framework/io/files/printable.h"
#include "framework/io/weights/safetensors.h"
#include "framework/io/weights/torch_file.h"
#include "framework/io/weights/torch_state.h"
#include "framework/ops/ops.h"
#include "layers/module/save.h"

namespace halfstep::app {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxWeightRules = 100;  // in one list

const Section& rename_section() {
  static const Section made{"rename",
                            {pattern("match", nullptr, "pattern to find in a name of the file").required(),
                             text("replace", "", "its replacement in the model's name; \\1 is the first group")}};
  return made;
}

Field name_patterns(const char* key, const char* doc) {
  return list(key, Json::array(), pattern("", nullptr, "found in a name"), doc).items(0, kMaxWeightRules).or_one();
}

const Section& part_section() {
  static const Section made{"part",
                            {pattern("match", nullptr, "pattern to find in a name of the file, or in the model's").required(),
                             integer("start", 0, "first index").at_least(0),
                             integer("end", nullptr, "index after the last; left out: to the end").at_least(1),
                             integer("dim", 0, "dimension").at_least(-kMaxDims).at_most(kMaxDims)}};
  return made;
}

const Section& join_section() {
  static const Section made{"join",
                            {list("match", nullptr, pattern("", nullptr, "a pattern"),
                                  "a pattern for each part, in their order, to find in a name after \"rename\"")
                                 .items(2, kMaxWeightRules)
                                 .required(),
                             text("to", "", "replacement of the match, which gives the parts one name; \\1 is the first group"),
                             choice("combine", "concat", {"concat", "add"}, "the parts follow each other along dim, or are added"),
                             integer("dim", 0, "of concat").at_least(-kMaxDims).at_most(kMaxDims)}};
  return made;
}

const Section& weights_section() {
  static const Section made{
      "weights",
      {text("path", nullptr,
            "a file of safetensors or PyTorch, an index of such files, a folder of Hugging Face, or a halfstep run or checkpoint")
           .required(),
       text("key", "", "which dictionary of tensors, if a file of PyTorch has several: \"ema/state_dict\"; \"/\" is the top"),
       boolean("strict", true, "file and layer must have the same names"),
       text("prefix", "", "use only names that begin with it, and remove it from them"),
       list("rename", Json::array(), optional_section("", rename_section(), "a change of name"),
            "changes of the file's names, one after the other")
           .items(0, kMaxWeightRules),
       name_patterns("skip", "tensors of the file that are not read, and tensors of the model that keep their first values"),
       name_patterns("transpose", "matrices that are [in, out] in the file"),
       list("part", Json::array(), optional_section("", part_section(), "a part"),
            "tensors of the file of which only a part is used")
           .items(0, kMaxWeightRules),
       list("join", Json::array(), optional_section("", join_section(), "parts of one tensor"),
            "tensors of the file that are one in the model; queries, keys and values under usual names are joined without it")
           .items(0, kMaxWeightRules)}};
  return made;
}

// Returns a function that says whether a pattern is found in a name; empty without patterns.
std::function<bool(const std::string&)> finder(const Json& patterns) {
  const auto compiled = std::make_shared<std::vector<Pattern>>();
  for (const Json& text : patterns.is_array() ? patterns : Json::array({patterns})) compiled->emplace_back(text.get<std::string>());
  if (compiled->empty()) return {};
  return [compiled](const std::string& name) {
    return std::any_of(compiled->begin(), compiled->end(), [&](const Pattern& p) { return p.found_in(name); });
  };
}

// Returns a function from a name to the part of its tensor that is used; empty without rules.
std::function<std::optional<TensorPart>(const std::string&)> part_taker(const Json& rules) {
  const auto parts = std::make_shared<std::vector<std::pair<Pattern, TensorPart>>>();
  for (const Json& rule : rules)
    parts->emplace_back(Pattern(rule["match"].get<std::string>()),
                        TensorPart{rule["start"], ReadArg<std::optional<int64_t>>::from(rule["end"]), rule["dim"]});
  if (parts->empty()) return {};
  return [parts](const std::string& name) -> std::optional<TensorPart> {
    for (const auto& [match, part] : *parts)
      if (match.found_in(name)) return part;
    return {};
  };
}

// Returns a function from a name to its place in a joined tensor; empty without rules.
std::function<std::optional<JoinedPart>(const std::string&)> joiner(const Json& rules) {
  struct Rule {
    std::vector<Pattern> match;
    std::string to;
    JoinedPart part;
  };
  const auto joins = std::make_shared<std::vector<Rule>>();
  for (const Json& rule : rules) {
    Rule& made = joins->emplace_back();
    for (const Json& match : rule["match"]) made.match.emplace_back(match.get<std::string>());
    made.to = rule["to"];
    made.part = {"", 0, std::ssize(made.match), rule["combine"] == "add", rule["dim"]};
  }
  if (joins->empty()) return {};
  return [joins](const std::string& name) -> std::optional<JoinedPart> {
    for (const Rule& rule : *joins) {
      for (size_t i = 0; i < rule.match.size(); ++i) {
        if (!rule.match[i].found_in(name)) continue;
        JoinedPart out = rule.part;
        out.name = rule.match[i].replaced(name, rule.to);
        out.place = int64_t(i);
        return out;
      }
    }
    return {};
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
          .transpose = finder(weights["transpose"]),
          .part = part_taker(weights["part"]),
          .join = joiner(weights["join"]),
          .key = weights["key"]};
}

// Checks that tensors shared in the model are equal in the file; else the last one's value would win silently.
void check_tied(const Module& module, const StateDict& state) {
  const StateDict own = module.state_tensors();
  const auto find = [&](const std::string& name) {
    return std::find_if(state.begin(), state.end(), [&](const NamedTensor& n) { return n.name == name; });
  };
  for (size_t i = 0; i < own.size(); ++i) {
    const auto first = find(own[i].name);
    if (first == state.end()) continue;
    for (size_t k = i + 1; k < own.size(); ++k) {
      if (!own[k].tensor.shares_memory_with(own[i].tensor)) continue;
      const auto second = find(own[k].name);
      if (second == state.end() || first->tensor.shape() != second->tensor.shape()) continue;
      if (second->tensor.device().is_meta() || second->tensor.const_data_ptr() == first->tensor.const_data_ptr()) continue;
      check<ValueError>(equal(first->tensor, second->tensor), "load", own[i].name, " and ", own[k].name,
                        " are one tensor in the model, but differ in the file",
                        Help{"without \"tie\" the model has a tensor for each"});
    }
  }
}

// Describes what was read in one line.
std::string summary(const std::string& place, const WeightFile& file, const StateForModule& read, size_t tensors,
                    const std::vector<std::string>& kept, size_t ignored) {
  std::string line = joined("weights: ", place, ": ", tensors, " tensors");
  if (!file.key.empty()) line += joined(" of \"", printable(file.key), '"');
  if (!file.model.empty()) line += joined(" of the pickled model ", file.model);
  if (file.files.size() > 1) line += joined(" in ", file.files.size(), " files");
  if (!kept.empty()) line += "; " + list_text(kept, 4) + (kept.size() > 1 ? " keep their first values" : " keeps its first values");
  if (!read.joined.empty())
    line += joined("; ", read.joined.size(), read.joined.size() > 1 ? " are" : " is", " joined: ", read.joined[0]);
  if (read.joined.size() > 1) line += joined(", and ", read.joined.size() - 1, " more");
  if (ignored > 0) line += joined("; ", ignored, " of the file are not in the model");
  if (read.others > 0) line += joined("; ", read.others, " of the file that are no tensors are left out");
  return line;
}

// Throws DataError for files of arrays that other programs write, with the line that makes safetensors of them, and for others.
void refuse_other_weights(const fs::path& path) {
  const std::string head = head_of_file(path);
  const std::optional<OtherFile> other = other_file(head, path);
  const bool is_plain = path.string().find_first_of("'\"\\$`") == std::string::npos;
  const std::string name = is_plain ? path.string() : "FILE", to = fs::path(name).replace_extension(".safetensors").string();
  const auto line = [&](const std::string& arrays, const std::string& import, bool is_expression = true) {
    return "with the package safetensors on PyPI, python3 -c \"import " + import + ", safetensors.numpy as s; " +
           (is_expression ? "s.save_file(" + arrays : arrays + "; s.save_file(d") + ", '" + to + "')\" converts it";
  };
  std::string help;
  if (other && other->kind == "an HDF5 file")
    help = line("d = {}; h5py.File('" + name +
                    "').visititems(lambda n, x: d.update({n: x[()]}) if isinstance(x, h5py.Dataset) else None)",
                "h5py", false);
  if (other && other->kind.find(".npz") != std::string::npos) help = line("dict(numpy.load('" + name + "'))", "numpy");
  if (other && other->kind.find(".npy") != std::string::npos) help = line("{'weight': numpy.load('" + name + "')}", "numpy");
  if (other && other->kind == "a MATLAB file")
    help = line("{k: v.copy() for k, v in scipy.io.loadmat('" + name + "').items() if k[0] != '_'}", "scipy.io");
  if (!help.empty()) fail<DataError>("weights", path.string(), ": the file is ", other->kind, Help{help});
  refuse_other_file<DataError>("weights", path, head);
}

// Returns whether the file is an archive of NumPy's arrays, which begins as one of torch.save does.
bool is_npz(const fs::path& path) {
  const std::optional<OtherFile> other = other_file(head_of_file(path), path);
  return other && other->kind.find(".npz") != std::string::npos;
}

// What a path names.
struct FoundWeights {
  fs::path file;                     // the file or folder with the tensors
  std::string shown = {};            // the path, of a run that of its checkpoint
  fs::path checkpoint = {};          // of a run; empty: the tensors are of another program, or one file was named
  std::vector<std::string> kinds{};  // "best" or "latest" of a run; "averaged"
};

// Finds the tensors: `path` itself, a checkpoint or, in a run, the best one as eval and predict do, else the latest.
FoundWeights find_weights(const fs::path& path) {
  std::error_code none;
  const bool folder = fs::is_directory(path, none);
  if (folder && checkpoint_step(path) < 0 && !fs::exists(path / "manifest.json") && !fs::exists(path / "state.json") &&
      list_checkpoints(path).empty())
    return {path, path.string()};
  const bool file = fs::is_regular_file(path, none);
  const auto is_of_torch = [&] { return is_torch_file(path) && !is_npz(path); };
  if (path.extension() == ".safetensors" || (file && (is_weight_index(path) || is_of_torch() || is_safetensors(path))))
    return {path, path.string()};
  const std::string name = path.filename().string();
  if (file && name != "latest" && name != "best") {
    refuse_other_weights(path);
    fail<DataError>("weights", path.string(),
                    " must be a file of safetensors or of torch.save, the index of several, or a halfstep run or checkpoint",
                    Help{"docs/fine_tuning.md says how such files are made"});
  }
  const bool is_run = folder && checkpoint_step(path) < 0 && !fs::exists(path / "manifest.json", none);
  const std::optional<fs::path> best = is_run ? best_checkpoint(path) : std::nullopt;
  const fs::path checkpoint = best ? *best : resolve_checkpoint(path);
  verify_checkpoint(checkpoint);
  FoundWeights out{checkpoint / "model.safetensors", checkpoint.string(), checkpoint};
  if (is_run || file) out.kinds.push_back(best || (file && name == "best") ? "best" : "latest");
  return out;
}

// Replaces tensors by the averages that the checkpoint has of them. Returns whether it has any.
bool take_averages(WeightFile& held, const fs::path& checkpoint) {
  CheckpointContents contents;
  contents.state = map_safetensors(checkpoint / "state.safetensors").tensors;
  StateDict state;
  for (const WeightFile::Entry& entry : held.tensors) state.push_back({entry.name, entry.tensor});
  if (use_averages(contents, state) == 0) return false;
  for (size_t i = 0; i < held.tensors.size(); ++i) held.tensors[i].tensor = state[i].tensor;
  return true;
}

bool contains_help(const std::string& message) { return message.find("\nhelp: ") != std::string::npos; }

// Counts the model's tensors that the file has with their names and shapes.
size_t count_fitting(const Module& module, const WeightFile& file, const LoadOptions& options) {
  std::map<std::string, Shape> held;
  try {
    for (const NamedTensor& n : state_for(module, file, options).state) held.emplace(n.name, n.tensor.shape());
  } catch (const Error&) { return 0; }
  size_t out = 0;
  for (const NamedTensor& n : module.state_tensors()) {
    const auto found = held.find(n.name);
    out += found != held.end() && found->second == n.tensor.shape();
  }
  return out;
}

// Reads the file's tensors. If it has several dictionaries, the error names the one that fits the model.
WeightFile read_chosen(const Module& module, const fs::path& file, const LoadOptions& options, const std::string& place) {
  try {
    return read_weight_file(file, options.key);
  } catch (const SeveralStates& e) {
    std::vector<std::string> best;
    size_t most_fitting = 0;
    for (const std::string& key : e.keys) {
      const size_t fits = count_fitting(module, read_weight_file(file, key), options);
      if (fits > most_fitting) best.clear(), most_fitting = fits;
      if (fits == most_fitting) best.push_back(joined("\"key\": \"", printable(key), '"'));
    }
    if (most_fitting == 0) throw;
    const std::string what = e.what();
    const bool is_one = best.size() == 1;
    fail<ConfigError>(place, what.substr(0, what.find("\nhelp: ")),
                      Help{joined(list_text(best, 8, " and "), is_one ? " fits this model: it has " : " fit this model: each has ",
                                  most_fitting, " of its ", module.state_tensors().size(), " tensors")});
  }
}

constexpr uint64_t kMostChecked = uint64_t(4) << 30;  // largest file whose values `validate` reads too

uint64_t bytes_of(const StateDict& state) {
  uint64_t out = 0;
  for (const NamedTensor& n : state)
    if (!n.tensor.device().is_meta()) out += uint64_t(n.tensor.numel()) * size_of(n.tensor.dtype());
  return out;
}

// Returns facts about the data of the run that wrote the file; nothing for other files.
std::optional<StoredData> data_of_run(const fs::path& file, const WeightFile& held) {
  const auto exported = held.metadata.find("halfstep.data");
  const fs::path beside = file.parent_path() / "data.json";
  std::error_code none;
  if (exported == held.metadata.end() && (checkpoint_step(file.parent_path()) < 0 || !fs::exists(beside, none))) return {};
  const std::string text = exported != held.metadata.end() ? exported->second : read_file(beside);
  return read_stored_data(read_json<nlohmann::json>(text));
}

// Returns the pattern of the tensors of this one's layer, as JSON has it: "^encoder\\.0\\." of "encoder.0.weight".
std::string pattern_of_layer(const std::string& tensor) {
  const size_t end = tensor.rfind('.');
  std::string out = "^";
  for (const char c : tensor.substr(0, end)) out += c == '.' ? "\\\\." : std::string(1, c);
  return out + (end == std::string::npos ? "$" : "\\\\.");
}

// Compares the data of the file's run with that of the model, as far as loaded tensors depend on it. Throws ValueError if names
// have other numbers, and the file is for the whole model. Returns lines about other names and scales.
std::vector<std::string> compare_data(const StoredData& then, const StoredData& now, const StateDict& own,
                                      const std::vector<std::string>& kept, bool is_whole, const std::string& path) {
  std::vector<std::string> lines;
  for (const OtherName& other : other_names(then.form, now.form)) {
    std::vector<std::string> counting;  // tensors that count these names; answers come last
    for (const NamedTensor& n : own)
      if (const Shape& shape = n.tensor.shape(); std::find(shape.begin(), shape.end(), other.width) != shape.end())
        counting.push_back(n.name);
    if (counting.empty()) continue;
    const std::string name = other.what == "class" || other.what == "target" ? counting.back() : counting.front();
    if (std::find(kept.begin(), kept.end(), name) != kept.end()) continue;
    const std::string help = "with \"skip\": [\"" + pattern_of_layer(name) + "\"] in \"weights\" that layer keeps its first values";
    check<ValueError>(!other.is_moved || !is_whole, "load",
                      "the names of data.train must have the numbers that they have in the file's run, got other ones: ",
                      other.text(), Help{help + ", or train on data with the same names"});
    lines.push_back(joined("weights: ", path, ": ", other.text(), "; ", help));
  }
  if (const std::string scale = other_scale(then, now); is_whole && !scale.empty())
    lines.push_back(joined("weights: ", path, ": ", scale, ": the weights were trained on the former scale"));
  return lines;
}

// Copies a file's values into the module, or, on Device::meta, only compares names and shapes. Warns of values that are not finite.
// Appends the lines about the file.
void load_file(Module& module, const Json& weights, const std::string& place, const DataOfModel& data,
               std::vector<std::string>& lines) {
  try {
    FoundWeights found = find_weights(weights["path"].get<std::string>());
    const fs::path& file = found.file;
    const LoadOptions options = load_options_of(weights);
    WeightFile held = read_chosen(module, file, options, place);
    if (!found.checkpoint.empty() && take_averages(held, found.checkpoint)) found.kinds.emplace_back("averaged");
    StateForModule read;
    std::vector<std::string> kept, others;
    LoadReport report;
    const StateDict own = module.state_tensors();
    const bool loads = std::none_of(own.begin(), own.end(), [](const NamedTensor& n) { return n.tensor.device().is_meta(); });
    bool checked = true;
    size_t loaded = 0;
    try {
      read = state_for(module, held, options);
      kept = read.skipped;
      check_tied(module, read.state);
      report = module.load_state_dict(read.state, options.strict);
      kept.insert(kept.end(), report.missing.begin(), report.missing.end());
      loaded = read.state.size() - read.skipped.size() - report.unexpected.size();
      check<ValueError>(loaded > 0, "load", "no name of the file is one of the model, so nothing would be read");
      checked = loads || bytes_of(read.state) <= kMostChecked;
      if (checked) warn_of_bad_values(read.state, file.string());
      if (const auto then = data ? data_of_run(file, held) : std::nullopt)
        others = compare_data(*then, data(), own, kept, place == "model.weights", weights["path"]);
    } catch (const ValueError& e) {
      const std::string what = e.what(), help = contains_help(what) ? "" : weights_help(module, held, weights, read.state);
      fail<ConfigError>(place, file.string(), ": ", what, help.empty() ? "" : "\nhelp: " + help);
    }
    if (!found.kinds.empty()) found.shown += " (" + list_text(found.kinds, 2) + ")";
    lines.push_back(summary(found.shown, held, read, loaded, kept, report.unexpected.size()) +
                    (checked ? "" : "; its values are not looked at, since they are more than 4 GiB"));
    lines.insert(lines.end(), others.begin(), others.end());
  } catch (const ConfigError&) { throw; } catch (const Error& e) {
    fail<ConfigError>(place, e.what());
  }
}

// Loads all files, and appends their lines. must_exist: a missing file is an error.
void load_all(Module& module, const Json& model, const std::string& path, bool must_exist, const DataOfModel& data,
              std::vector<std::string>& lines) {
  if (model.contains("weights") && !model["weights"].is_null()) {
    std::error_code none;
    const std::string file = model["weights"]["path"];
    if (must_exist || fs::exists(file, none))
      load_file(module, model["weights"], join_path(path, "weights"), data, lines);
    else
      lines.push_back("weights: " + file + " is not there, and was not checked");
  }
  const ModuleRow& row = module_catalog().row(model);
  if (!row.parts) return;
  const auto below = module.named_modules();
  Json self = model;
  for (const LayerPart& part : row.parts(self)) {
    for (const auto& [name, child] : below) {
      if (name == part.name) load_all(*child, *part.config, join_path(path, part.key), must_exist, data, lines);
    }
  }
}

}  // namespace

Field weights_field() { return optional_section("weights", weights_section(), "values from a file").or_text("path"); }

std::vector<std::string> load_weights(Module& module, const Json& model, const std::string& path, const DataOfModel& data) {
  std::vector<std::string> lines;
  load_all(module, model, path, true, data, lines);
  return lines;
}

std::vector<std::string> check_weights(const Json& model, const std::string& path, const DataOfModel& data) {
  const DefaultDevice on(Device::meta);
  std::vector<std::string> lines;
  load_all(*build_model(model), model, path, false, data, lines);
  return lines;
}

}  // namespace halfstep::app
