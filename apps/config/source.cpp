#include "apps/config/source.h"

#include <fstream>
#include <sstream>

#include "framework/base/check.h"

namespace halfstep::app {
namespace {

// Walks text that is known to be JSON and notes where keys and values begin.
class Scanner {
 public:
  Scanner(std::string_view text, const std::string& file, Origins& origins, Issues& issues)
      : text_(text), file_(file), origins_(origins), issues_(issues) {}

  void value(const std::string& path, Mark key) {
    space();
    const bool repeated = origins_.contains(path);
    origins_[path] = {file_, key, here()};
    if (repeated) issues_.error(path, "given twice", true);
    if (peek() == '{') {
      members('}', [&](size_t) {
        const Mark at = here();
        const std::string name = string();
        space();
        ++at_;  // ':'
        value(join_path(path, name), at);
      });
    } else if (peek() == '[') {
      members(']', [&](size_t i) { value(join_path(path, i), here()); });
    } else if (peek() == '"') {
      string();
    } else {
      while (at_ < text_.size() && !strchr_any(",]} \t\r\n/")) ++at_;
    }
  }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool strchr_any(std::string_view set) const { return set.find(text_[at_]) != std::string_view::npos; }
  Mark here() {
    for (; counted_ < at_; ++counted_) {
      if (text_[counted_] == '\n') {
        ++line_;
        line_start_ = counted_ + 1;
      }
    }
    return {line_, int(at_ - line_start_) + 1};
  }
  void space() {
    while (at_ < text_.size()) {
      if (strchr_any(" \t\r\n")) {
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
  void members(char close, F&& member) {
    ++at_;
    for (size_t i = 0;; ++i) {
      space();
      if (peek() == close || at_ >= text_.size()) break;
      member(i);
      space();
      if (peek() == ',') ++at_;
    }
    ++at_;
  }
  std::string string() {
    const size_t begin = at_++;
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    ++at_;
    return Json::parse(text_.substr(begin, at_ - begin)).get<std::string>();
  }

  std::string_view text_;
  const std::string& file_;
  Origins& origins_;
  Issues& issues_;
  size_t at_ = 0, counted_ = 0, line_start_ = 0;
  int line_ = 1;
};

}  // namespace

ParsedJson parse_json(std::string_view text, const std::string& file, Issues& issues) {
  ParsedJson out;
  try {
    out.json = Json::parse(text, nullptr, true, /*ignore_comments=*/true);
  } catch (const Json::parse_error& e) {
    int line = 1, column = 1;
    for (size_t i = 0; i + 1 < e.byte && i < text.size(); ++i) {
      ++column;
      if (text[i] == '\n') ++line, column = 1;
    }
    std::string why = e.what();  // "[json.exception.parse_error.101] parse error at line 3, column 2: syntax error while ..."
    if (const size_t cut = why.find(": "); cut != std::string::npos) why = why.substr(cut + 2);
    fail<ConfigError>("config", file, ":", line, ":", column, ": ", why);
  }
  Scanner(text, file, out.origins, issues).value("", {});
  return out;
}

ParsedJson parse_json_file(const std::filesystem::path& path, Issues& issues) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  check<ConfigError>(in.is_open() && !in.bad() && !std::filesystem::is_directory(path), "config",
                     "a config must be a readable file, got \"", path.string(), "\"");
  return parse_json(text.str(), path.string(), issues);
}

}  // namespace halfstep::app
