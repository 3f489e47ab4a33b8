// SPDX-License-Identifier: Apache-2.0
#include "apps/config/source.h"

#include <algorithm>

#include "framework/base/check.h"
#include "framework/io/files/atomic_file.h"
#include "framework/io/files/json.h"

namespace halfstep::app {
namespace {

constexpr size_t kMaxOriginBytes = size_t(64) << 20;  // memory for the places of values

// Walks valid JSON text and notes where keys and values begin.
class Scanner {
 public:
  Scanner(std::string_view text, const std::string& file, Origins& origins, Issues& issues)
      : text_(text), file_(file), origins_(origins), issues_(issues) {}

  void scan_value(const std::string& path, Mark key) {
    skip_space();
    bytes_ += path.size() + file_.size() + sizeof(SourceLocation);
    if (bytes_ > kMaxOriginBytes) {
      const Mark at = here();
      fail<ConfigError>("config", file_, ":", at.line, ":", at.column, ": too many values for a config, or too long keys");
    }
    const bool repeated = origins_.contains(path);
    origins_[path] = {file_, key, here()};
    if (repeated) issues_.error(path, "given twice", true);
    if (peek() == '{') {
      scan_members('}', [&](size_t) {
        const Mark at = here();
        const std::string name = scan_string();
        skip_space();
        ++at_;  // ':'
        scan_value(join_path(path, name), at);
      });
    } else if (peek() == '[') {
      scan_members(']', [&](size_t i) { scan_value(join_path(path, i), here()); });
    } else if (peek() == '"') {
      scan_string();
    } else {
      while (at_ < text_.size() && !is_any_of(",]} \t\r\n/")) ++at_;
    }
  }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool is_any_of(std::string_view set) const { return set.find(text_[at_]) != std::string_view::npos; }
  Mark here() {
    for (; counted_ < at_; ++counted_) {
      if (text_[counted_] == '\n') {
        ++line_;
        line_start_ = counted_ + 1;
      }
    }
    return {line_, int(at_ - line_start_) + 1};
  }
  void skip_space() {
    while (at_ < text_.size()) {
      if (is_any_of(" \t\r\n")) {
        ++at_;
      } else if (text_.substr(at_, 2) == "//") {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (text_.substr(at_, 2) == "/*") {
        at_ = std::min(text_.find("*/", at_), text_.size() - 2) + 2;
      } else {
        return;
      }
    }
  }
  template <class F>
  void scan_members(char close, F&& member) {
    ++at_;
    for (size_t i = 0;; ++i) {
      skip_space();
      if (peek() == close || at_ >= text_.size()) break;
      member(i);
      skip_space();
      if (peek() == ',') ++at_;
    }
    ++at_;
  }
  std::string scan_string() {
    const size_t begin = at_++;
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    ++at_;
    return read_json<nlohmann::json>(text_.substr(begin, at_ - begin)).get<std::string>();
  }

  std::string_view text_;
  const std::string& file_;
  Origins& origins_;
  Issues& issues_;
  size_t at_ = 0, counted_ = 0, line_start_ = 0, bytes_ = 0;
  int line_ = 1;
};

}  // namespace

ParsedJson parse_json(std::string_view text, const std::string& file, Issues& issues) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // a byte order mark
  ParsedJson out;
  try {
    out.json = read_json<nlohmann::json>(text, /*comments=*/true);
  } catch (const JsonError& e) {
    const std::string place = e.line ? ":" + std::to_string(e.line) + ":" + std::to_string(e.column) : "";
    fail<ConfigError>("config", file, place, ": ", e.what());
  }
  Scanner(text, file, out.origins, issues).scan_value("", {});
  return out;
}

ParsedJson parse_json_file(const std::filesystem::path& path, size_t& bytes_left, Issues& issues) {
  std::string text;
  try {
    text = read_file(path, bytes_left);
  } catch (const IoError& e) {
    const std::string_view why = e.what();
    fail<ConfigError>("config", "a config must be a readable file of at most ", kMaxConfigBytes >> 20,
                      " MiB, with all that it extends; ", why.substr(why.find(']') + 2));
  }
  bytes_left -= text.size();
  return parse_json(text, path.string(), issues);
}

void erase_below(Origins& origins, const std::string& path) {
  const std::string prefix = path + ".";
  auto it = origins.lower_bound(prefix);
  while (it != origins.end() && it->first.starts_with(prefix)) it = origins.erase(it);
}

}  // namespace halfstep::app
