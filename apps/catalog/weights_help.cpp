// SPDX-License-Identifier: Apache-2.0
// Finds the line of a config with which a file of weights would fit the model. Here "mine" are the model's tensors, and "theirs"
// the file's.
#include <algorithm>
#include <set>
#include <vector>

#include "apps/catalog/weights.h"
#include "apps/schema/pattern.h"
#include "framework/base/number_text.h"
#include "layers/module/save.h"
#include "layers/sequences/embedding.h"

namespace halfstep::app {
namespace {

constexpr size_t kPatterns = 3;  // most patterns in a line of advice; a model with more differences is another one

using Strings = std::vector<std::string>;

// Differences of a file from a model.
struct Misfit {
  StateDict missing, unexpected;  // tensors of the model alone, of the file alone
  Strings misshapen, turned;      // names of both, with other shapes; turned: matrices that fit when transposed
};

const Tensor* find_tensor(const StateDict& state, const std::string& name) {
  const auto at = std::find_if(state.begin(), state.end(), [&](const NamedTensor& n) { return n.name == name; });
  return at == state.end() ? nullptr : &at->tensor;
}

Misfit misfit_of(const StateDict& mine, const StateDict& theirs) {
  Misfit out;
  for (const NamedTensor& n : mine) {
    const Tensor* const from = find_tensor(theirs, n.name);
    const auto same_in_file = [&](const NamedTensor& other) {
      return other.tensor.shares_memory_with(n.tensor) && find_tensor(theirs, other.name);
    };
    if (!from) {
      if (std::none_of(mine.begin(), mine.end(), same_in_file)) out.missing.push_back(n);
    } else if (from->shape() != n.tensor.shape()) {
      const bool turned = from->dim() == 2 && n.tensor.dim() == 2 && from->t().shape() == n.tensor.shape();
      (turned ? out.turned : out.misshapen).push_back(n.name);
    }
  }
  for (const NamedTensor& n : theirs) {
    if (!find_tensor(mine, n.name)) out.unexpected.push_back(n);
  }
  return out;
}

std::string escaped(const std::string& name) {
  std::string out;
  for (const char c : name)
    out += std::isalnum(static_cast<unsigned char>(c)) || c == '_' ? std::string(1, c) : std::string{'\\', c};
  return out;
}

Strings components(const std::string& name) {
  Strings out(1);
  for (const char c : name) c == '.' ? out.emplace_back() : out.back() += c;
  return out;
}

std::string joined_name(const Strings& parts, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += (i ? "." : "") + parts[i];
  return out;
}

bool is_number(const std::string& text) { return !text.empty() && std::all_of(text.begin(), text.end(), is_digit); }

// Generalises names to patterns with any number in place of theirs: "^h\.\d+\.attn\.bias$". layers: to the names of their layers,
// with their numbers: "^h\.0\.attn\.".
Json patterns_of(const Strings& names, bool layers) {
  std::set<std::string> seen;
  for (const std::string& name : names) {
    const Strings parts = components(name);
    const size_t count = layers && parts.size() > 1 ? parts.size() - 1 : parts.size();
    std::string text = "^";
    for (size_t i = 0; i < count; ++i) text += (i ? "\\." : "") + (!layers && is_number(parts[i]) ? "\\d+" : escaped(parts[i]));
    seen.insert(text + (count < parts.size() ? "\\." : "$"));
  }
  return Json(Strings(seen.begin(), seen.end()));
}

// Returns patterns of the matrices to turn, with any number in place of theirs where that finds no other tensor of the model.
Json patterns_of_turned(const Strings& turned, const StateDict& mine) {
  std::set<std::string> out;
  for (const std::string& name : turned) {
    const std::string any_number = patterns_of({name}, false)[0];
    const Pattern pattern(any_number);
    const bool finds_others = std::any_of(mine.begin(), mine.end(), [&](const NamedTensor& n) {
      return pattern.found_in(n.name) && std::find(turned.begin(), turned.end(), n.name) == turned.end();
    });
    out.insert(finds_others ? "^" + escaped(name) + "$" : any_number);
  }
  return Json(Strings(out.begin(), out.end()));
}

// Returns what in Python makes weights of tensors from which PyTorch computes them; empty if the file has none.
std::string computed_help(const Misfit& m) {
  const auto other_of = [](std::string name, const std::string& end) {
    return name.replace(name.size() - std::string("_orig").size(), std::string::npos, end);
  };
  const auto has = [&](const std::string& name) {
    return std::any_of(m.unexpected.begin(), m.unexpected.end(), [&](const NamedTensor& n) { return n.name == name; });
  };
  const auto text = [](const std::string& name, const std::string& what, const std::string& call) {
    return "in the file " + name + ' ' + what + "; in Python, " + call + " for each such layer makes its weight, before torch.save";
  };
  for (const NamedTensor& n : m.unexpected) {
    const std::string part = ".parametrizations.";
    if (const size_t at = ("." + n.name).find(part); at != std::string::npos) {
      const Strings parts = components(n.name.substr(at + part.size() - 1));
      return text(n.name, "is a value from which a weight is computed",
                  "torch.nn.utils.parametrize.remove_parametrizations(layer, \"" + parts[0] + "\")");
    }
    if (!n.name.ends_with("_orig")) continue;
    const std::string whole = components(n.name).back(), tensor = whole.substr(0, whole.size() - std::string("_orig").size());
    if (has(other_of(n.name, "_mask")))
      return text(n.name, "is pruned by a mask", "torch.nn.utils.prune.remove(layer, \"" + tensor + "\")");
    return text(n.name, "is divided by its spectral norm", "torch.nn.utils.remove_spectral_norm(layer, \"" + tensor + "\")");
  }
  return {};
}

// Returns the JSON to write: all of `weights` if it is only a path, else the key to set in it.
std::string line_with(const Json& weights, const std::string& key, const Json& value) {
  bool only_path = true;
  for (const auto& [name, given] : weights.items())
    only_path &= name == "path" || given.is_null() || given == true || given == "" || (given.is_array() && given.empty());
  if (only_path) return "\"weights\": " + Json{{"path", weights["path"]}, {key, value}}.dump();
  Json list = weights[key].is_array() ? weights[key] : Json::array();
  if (weights[key].is_string() && value.is_array()) list.push_back(weights[key]);
  for (const Json& item : value) list.push_back(item);
  return "\"" + key + "\": " + (value.is_array() ? list : value).dump() + " in \"weights\"";
}

// Counts the names of `mine` that `theirs` has after the exchange of the prefix.
size_t count_matches(const StateDict& mine, const StateDict& theirs, const std::string& mine_prefix,
                     const std::string& their_prefix) {
  std::set<std::string> there;
  for (const NamedTensor& n : theirs) there.insert(n.name);
  return size_t(std::count_if(mine.begin(), mine.end(), [&](const NamedTensor& n) {
    return n.name.starts_with(mine_prefix) && there.contains(their_prefix + n.name.substr(mine_prefix.size()));
  }));
}

// Returns "model." if adding it to the names of one side gives those of the other; empty if no prefix makes more names equal.
std::string prefix_of(const StateDict& longer, const StateDict& shorter, const std::string& example) {
  const Strings parts = components(example);
  std::string best;
  size_t most = count_matches(shorter, longer, "", "");
  for (size_t count = 1; count < parts.size(); ++count) {
    const std::string prefix = joined_name(parts, count) + ".";
    if (const size_t found = count_matches(shorter, longer, "", prefix); found > most) most = found, best = prefix;
  }
  return best;
}

// Returns a rename rule for a pair of names, without their common end.
Json rename_rule(const std::string& theirs, const std::string& mine) {
  Strings from = components(theirs), to = components(mine);
  while (from.size() > 1 && to.size() > 1 && from.back() == to.back()) from.pop_back(), to.pop_back();
  const bool whole = from.size() == components(theirs).size();
  return {{"match", "^" + escaped(joined_name(from, from.size())) + (whole ? "$" : "\\.")},
          {"replace", joined_name(to, to.size()) + (whole ? "" : ".")}};
}

Strings names_of(const StateDict& tensors) {
  Strings out;
  for (const NamedTensor& n : tensors) out.push_back(n.name);
  return out;
}

std::string new_layer(const Json& weights, const Json& layers) {
  return "a layer that is new, such as a head for other classes, keeps its first values with " + line_with(weights, "skip", layers);
}

// Returns the advice for a file that lacks names and has others.
std::string names_help(const Misfit& m, const StateDict& mine, const StateDict& theirs, const Json& weights) {
  if (weights["rename"].empty()) {
    if (const std::string prefix = prefix_of(theirs, mine, m.unexpected.front().name); !prefix.empty())
      return "the file's names begin with \"" + prefix + "\": " + line_with(weights, "prefix", prefix);
    if (const std::string prefix = prefix_of(mine, theirs, m.missing.front().name); !prefix.empty())
      return "the model's names begin with \"" + prefix +
             "\": " + line_with(weights, "rename", Json::array({{{"match", "^"}, {"replace", prefix}}}));
  }
  for (const NamedTensor& from : m.unexpected) {
    for (const NamedTensor& to : m.missing) {
      if (from.tensor.shape() != to.tensor.shape() || components(from.name).back() != components(to.name).back()) continue;
      return "the file's names differ from the model's; \"rename\" changes them, such as " + from.name + ": " +
             line_with(weights, "rename", Json::array({rename_rule(from.name, to.name)}));
    }
  }
  Strings both = names_of(m.missing);
  for (const NamedTensor& n : m.unexpected) both.push_back(n.name);
  if (const Json layers = patterns_of(both, true); layers.size() <= kPatterns) return new_layer(weights, layers);
  return "halfstep train --dry-run lists the model's layers; the file is of another model, or needs \"rename\"";
}

// Returns the embedding whose matrix may be the only missing one's, and the layer of the missing one; empty: none.
Strings tied_layers(Module& module, const Misfit& m) {
  if (m.missing.size() != 1) return {};
  for (const auto& [name, layer] : module.named_modules()) {
    const auto* const embedding = dynamic_cast<const Embedding*>(layer);
    if (!embedding || name + ".weight" == m.missing[0].name || embedding->weight.shape() != m.missing[0].tensor.shape()) continue;
    const Strings head = components(m.missing[0].name);
    return {name, joined_name(head, head.size() - 1)};
  }
  return {};
}

// Explains an embedding whose number of rows differs from the file's: another tokenizer, or spare rows in the model.
std::string tokens_help(Module& module, const Misfit& m, const StateDict& state) {
  for (const auto& [name, layer] : module.named_modules()) {
    const auto* const embedding = dynamic_cast<const Embedding*>(layer);
    if (!embedding || std::find(m.misshapen.begin(), m.misshapen.end(), name + ".weight") == m.misshapen.end()) continue;
    const Tensor& theirs = *find_tensor(state, name + ".weight");
    if (theirs.dim() != 2 || theirs.size(1) != embedding->weight.size(1)) continue;
    return joined("the file has ", theirs.size(0), " tokens, and ", name, " has ", embedding->weight.size(0),
                  ": take the tokenizer of the file's model; where that one has fewer tokens than its model, \"vocab_size\": ",
                  theirs.size(0), " in data");
  }
  return {};
}

// Returns the file's tensors under its own names.
StateDict names_in(const WeightFile& file) {
  StateDict out;
  for (const WeightFile::Entry& entry : file.tensors) out.push_back({entry.name, entry.tensor});
  for (const UnreadTensor& t : file.unread)
    if (t.is_tensor) out.push_back({t.name, Tensor::empty(t.shape, {.device = Device::meta})});
  return out;
}

// Returns whether the file has keys of fewer heads than the model's attention, which has one for each query's.
bool has_grouped_heads(const Misfit& m) {
  return std::any_of(m.missing.begin(), m.missing.end(), [&](const NamedTensor& whole) {
    const std::string end = "in_proj_weight";
    if (!whole.name.ends_with(end)) return false;
    const std::string before = whole.name.substr(0, whole.name.size() - end.size());
    return std::any_of(m.unexpected.begin(), m.unexpected.end(), [&](const NamedTensor& part) {
      const bool is_key = part.name.starts_with(before + "k") || part.name.starts_with(before + "wk");
      return is_key && part.name.ends_with(".weight") && part.tensor.dim() == 2 && part.tensor.size(1) == whole.tensor.size(1) &&
             part.tensor.size(0) < part.tensor.size(1);
    });
  });
}

// Returns whether the name is that of one of several files: model-00001-of-00002.safetensors.
bool is_shard(const std::filesystem::path& path) {
  static const Pattern shard("-\\d{5}-of-\\d{5}\\.[a-z]+$");
  return shard.found_in(path.filename().string());
}

}  // namespace

std::string weights_help(Module& module, const WeightFile& file, const Json& weights, const StateDict& state) {
  if (state.empty()) return "";  // the error is about the rules, not about names
  const StateDict mine = module.state_tensors(), raw = names_in(file);
  const Misfit m = misfit_of(mine, state);
  const bool strict = weights["strict"] == true, lacks = strict && !m.missing.empty(), has_more = strict && !m.unexpected.empty();
  if (lacks && file.files.size() == 1 && is_shard(file.files[0]))
    return "the file is one of several: the path of their folder, or of the .index.json beside them, reads all";
  const bool gpt2 = std::any_of(raw.begin(), raw.end(),
                                [](const NamedTensor& n) { return n.name.find(".attn.c_attn.weight") != std::string::npos; });
  if (lacks && has_more) {
    if (const std::string computed = computed_help(m); !computed.empty()) return computed;
    if (has_grouped_heads(m))
      return "the file's attention has fewer heads for keys and values than for queries, which MultiheadAttention does not have";
    if (gpt2)
      return "the file is GPT-2 as Hugging Face saves it: configs/fine_tune/gpt2.json has the lines for its names, and for its "
             "matrices, which are [in, out]";
    return names_help(m, mine, weights["prefix"] == "" ? raw : state, weights);
  }
  if (!m.turned.empty()) {
    const Json patterns = gpt2 ? Json::array({"\\.c_(attn|proj|fc)\\.weight$"}) : patterns_of_turned(m.turned, mine);
    return "the file has matrices as [in, out]: " + line_with(weights, "transpose", patterns) +
           (gpt2 ? "" : "; add square ones, which fit either way, if they are [in, out], too");
  }
  if (const Strings tied = lacks ? tied_layers(module, m) : Strings(); !tied.empty())
    return "if the model has one matrix for both: \"tie\": " + Json(tied).dump() +
           " beside \"weights\"; if the layer is new: " + line_with(weights, "skip", patterns_of(names_of(m.missing), true));
  Strings rest = m.misshapen;
  if (lacks) {
    const Strings missing = names_of(m.missing);
    rest.insert(rest.end(), missing.begin(), missing.end());
  }
  if (const std::string tokens = tokens_help(module, m, state); !tokens.empty()) return tokens;
  if (!rest.empty()) {
    const Json layers = patterns_of(rest, true);
    if (layers.size() > kPatterns) return "the file is of a model with other layers or widths";
    return new_layer(weights, layers);
  }
  if (!has_more) return "";
  const Json more = patterns_of(names_of(m.unexpected), false);
  if (more.size() > kPatterns) return "\"strict\": false reads what fits, and ignores names that the model does not have";
  return "what the model does not have is left out with " + line_with(weights, "skip", more);
}

}  // namespace halfstep::app
