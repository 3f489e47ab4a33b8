// SPDX-License-Identifier: Apache-2.0
// Variables in strings: ${name}, ${env:X}.
#include <cstdlib>

#include "apps/config/merge.h"

namespace halfstep::app {
namespace {

constexpr size_t kMaxExpanded = size_t(1) << 20;  // most bytes that ${...} may expand to, in all

// Returns whether a string can be written as JSON and passed to C interfaces. Strings of files were checked when they were read;
// the command line, the environment and file names may contain anything.
bool is_text(const std::string& s) {
  try {
    return s.find('\0') == std::string::npos && !Tree(s).dump().empty();
  } catch (const Tree::type_error&) { return false; }  // not UTF-8
}

// Replaces the variables in strings.
class Expander {
 public:
  Expander(const Tree& root, const std::filesystem::path& file, Issues& issues)
      : name_(root.value("name", Tree())), seed_(root.value("seed", Tree(0))), file_(file), issues_(issues) {}

  void expand_value(Tree& v, const std::string& path) {
    if (v.is_string()) {
      std::string& s = v.get_ref<std::string&>();
      if (s.find("${") != std::string::npos) s = expanded(s, path);
      if (!is_text(s)) issues_.error(path, "must be UTF-8 without NUL characters"), v = "";
    } else if (v.is_object()) {
      for (auto it = v.begin(); it != v.end(); ++it) {
        if (!is_text(it.key())) {
          issues_.error(path, "keys must be UTF-8 without NUL characters");
          v = nullptr;
          return;
        }
        if (it.key() != "vocabulary") expand_value(*it, join_path(path, it.key()));  // a text's tokens are literal
      }
    } else if (v.is_array()) {
      for (size_t i = 0; i < v.size(); ++i) expand_value(v[i], join_path(path, i));
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
      const std::string text = value_of(in.substr(open + 2, close - open - 2), path);
      if (text.size() > bytes_left_) {
        issues_.error(path, "all ${...} together must not come to more than " + std::to_string(kMaxExpanded) + " bytes");
        return "";
      }
      bytes_left_ -= text.size();
      out += text;
      at = close + 1;
    }
    return out;
  }
  std::string value_of(const std::string& name, const std::string& path) {
    if (name == "name" && name_.is_string()) return name_.get<std::string>();
    if (name == "seed") return seed_.is_number() ? seed_.dump() : "0";
    if (name == "config_dir") return file_.parent_path().empty() ? "." : file_.parent_path().string();
    if (name.starts_with("env:")) {
      if (const char* set = std::getenv(name.c_str() + 4)) return set;
      issues_.error(path, "the environment variable " + name.substr(4) + " is not set");
      return "";
    }
    issues_.error(path, "unknown variable ${" + name + "}; there are ${name}, ${seed}, ${config_dir} and ${env:X}");
    return "";
  }

  const Tree name_, seed_;  // copies: strings are replaced during the walk
  const std::filesystem::path& file_;
  Issues& issues_;
  size_t bytes_left_ = kMaxExpanded;
};

}  // namespace

void expand(ParsedJson& config, const std::filesystem::path& file, Issues& issues) {
  if (!config.json.is_object()) return;
  Tree& name = config.json["name"];
  if (name.is_null()) name = file.stem().string();
  if (!config.json.contains("output_dir") || config.json["output_dir"].is_null()) config.json["output_dir"] = "runs/${name}";
  Expander(config.json, file, issues).expand_value(config.json, "");
}

}  // namespace halfstep::app
