#include "apps/config/merge.h"

#include <algorithm>
#include <cstdlib>

#include "framework/base/check.h"

namespace halfstep::app {
namespace {

void erase_below(Origins& origins, const std::string& path) {
  const std::string prefix = path + ".";
  auto it = origins.lower_bound(prefix);
  while (it != origins.end() && it->first.starts_with(prefix)) it = origins.erase(it);
}

void merge_value(Json& base, Origins& origins, const Json& over, const Origins& over_origins, const std::string& path) {
  const auto take_origin = [&](const std::string& p) {
    if (const auto it = over_origins.find(p); it != over_origins.end()) origins[p] = it->second;
  };
  take_origin(path);
  if (base.is_object() && over.is_object()) {
    for (const auto& [key, value] : over.items()) {
      const std::string below = join_path(path, key);
      if (value.is_null()) {
        base.erase(key);
        origins.erase(below);
        erase_below(origins, below);
      } else {
        merge_value(base[key], origins, value, over_origins, below);
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

ParsedJson load_chain(const std::filesystem::path& file, Issues& issues, std::vector<std::filesystem::path>& open) {
  const std::filesystem::path self = std::filesystem::weakly_canonical(file);
  if (std::find(open.begin(), open.end(), self) != open.end()) {
    std::string circle;
    for (const auto& p : open) circle += p.filename().string() + " -> ";
    fail<ConfigError>("config", "extends must not form a circle, got ", circle, self.filename().string());
  }
  open.push_back(self);
  ParsedJson own = parse_json_file(file, issues);
  ParsedJson out = own;
  if (own.json.is_object() && own.json.contains("extends") && own.json["extends"].is_string()) {
    out = load_chain(file.parent_path() / own.json["extends"].get<std::string>(), issues, open);
    merge_over(out, own);
  }
  open.pop_back();
  return out;
}

std::vector<std::string> split_path(const std::string& path) {
  std::vector<std::string> out;
  for (size_t begin = 0;;) {
    const size_t dot = path.find('.', begin);
    out.push_back(path.substr(begin, dot - begin));
    if (dot == std::string::npos) return out;
    begin = dot + 1;
  }
}

bool is_index(const std::string& s) {
  return !s.empty() && s.size() < 8 && std::all_of(s.begin(), s.end(), [](char c) { return c >= '0' && c <= '9'; });
}

class Expander {
 public:
  Expander(const Json& root, const std::filesystem::path& file, Issues& issues) : root_(root), file_(file), issues_(issues) {}

  void value(Json& v, const std::string& path) {
    if (v.is_string()) {
      v = expanded(v.get<std::string>(), path);
    } else if (v.is_object()) {
      for (const auto& [key, inner] : v.items()) value(v[key], join_path(path, key));
    } else if (v.is_array()) {
      for (size_t i = 0; i < v.size(); ++i) value(v[i], join_path(path, i));
    }
  }

 private:
  std::string expanded(const std::string& in, const std::string& path) {
    std::string out;
    for (size_t at = 0; at < in.size();) {
      const size_t open = in.find("${", at), close = open == std::string::npos ? open : in.find('}', open);
      out += in.substr(at, open - at);
      if (close == std::string::npos) {
        if (open != std::string::npos) out += in.substr(open);
        break;
      }
      out += variable(in.substr(open + 2, close - open - 2), path);
      at = close + 1;
    }
    return out;
  }
  std::string variable(const std::string& name, const std::string& path) {
    if (name == "name" && root_["name"].is_string()) return root_["name"];
    if (name == "seed") return root_.contains("seed") ? root_["seed"].dump() : "0";
    if (name == "config_dir") return file_.parent_path().empty() ? "." : file_.parent_path().string();
    if (name.starts_with("env:")) {
      if (const char* set = std::getenv(name.c_str() + 4)) return set;
      issues_.error(path, "the environment variable " + name.substr(4) + " is not set");
      return "";
    }
    issues_.error(path, "unknown variable ${" + name + "}; there are ${name}, ${seed}, ${config_dir} and ${env:X}");
    return "";
  }

  const Json root_;  // a copy: strings are replaced on the way
  const std::filesystem::path& file_;
  Issues& issues_;
};

}  // namespace

void merge_over(ParsedJson& base, const ParsedJson& over) { merge_value(base.json, base.origins, over.json, over.origins, ""); }

ParsedJson load_with_bases(const std::filesystem::path& file, Issues& issues) {
  std::vector<std::filesystem::path> open;
  return load_chain(file, issues, open);
}

void apply_set(ParsedJson& config, const std::string& assignment, Issues& issues) {
  const size_t equals = assignment.find('=');
  const std::string path = assignment.substr(0, equals), origin = "--set " + assignment;
  if (equals == std::string::npos || path.empty()) return issues.error("", origin + ": must have the form key.key=value");
  const std::string text = assignment.substr(equals + 1);
  Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) value = text;

  const std::vector<std::string> keys = split_path(path);
  Json* at = &config.json;
  std::string walked;
  for (size_t i = 0; i < keys.size(); ++i) {
    const std::string& key = keys[i];
    if (at->is_boolean()) *at = at->get<bool>() ? Json::object() : Json{{"enabled", false}};
    if (at->is_null()) *at = Json::object();
    if (at->is_string()) *at = Json{{"type", *at}};
    if (at->is_array()) {
      if (!is_index(key) || std::stoul(key) >= at->size()) {
        return issues.error("", origin + ": " + walked + " is a list of " + std::to_string(at->size()) +
                                    ", so it takes an index below that, got \"" + key + "\"");
      }
      at = &(*at)[std::stoul(key)];
    } else if (at->is_object()) {
      at = &(*at)[key];
    } else {
      return issues.error("", origin + ": " + walked + " is " + at->dump() + ", which has no keys");
    }
    walked = join_path(walked, key);
    config.origins.try_emplace(walked, Origin{origin, {}, {}});
  }
  *at = std::move(value);
  erase_below(config.origins, path);
  config.origins[path] = {origin, {}, {}};
}

void expand(ParsedJson& config, const std::filesystem::path& file, Issues& issues) {
  if (!config.json.is_object()) return;
  Json& name = config.json["name"];
  if (name.is_null()) name = file.stem().string();
  if (!config.json.contains("output_dir") || config.json["output_dir"].is_null()) config.json["output_dir"] = "runs/${name}";
  Expander(config.json, file, issues).value(config.json, "");
}

}  // namespace halfstep::app
