// SPDX-License-Identifier: Apache-2.0
#include "framework/io/files/json.h"

#include "framework/data/tokens/unicode.h"

namespace halfstep {
namespace {

constexpr size_t kMaxMessage = 200;  // characters
constexpr size_t kHeadingsEnd = 90;  // characters of a message in which the library's headings are

// Throws JsonError with the line and column of byte `at`.
[[noreturn]] void fail_at(std::string_view text, size_t at, const std::string& why, bool refused) {
  int line = 1, column = 1;
  for (size_t i = 0; i < at && i < text.size(); ++i) {
    ++column;
    if (text[i] == '\n') ++line, column = 1;
  }
  throw JsonError(why, line, column, refused);
}

// Returns the position of the first escape \u0000, which is not part of \\u0000.
size_t find_escaped_nul(std::string_view text) {
  size_t at = text.find("\\u0000");
  for (; at != std::string_view::npos; at = text.find("\\u0000", at + 1)) {
    size_t before = at;
    while (before > 0 && text[before - 1] == '\\') --before;
    if ((at - before) % 2 == 0) break;
  }
  return at;
}

}  // namespace

// Returns what follows the library's last heading, in printable characters. Messages look like "[json.exception.parse_error.101]
// parse error at line 3, column 2: syntax error while parsing value - unexpected ...".
std::string parser_message(const nlohmann::json::exception& e) {
  std::string why = e.what();
  for (const char* heading : {"] ", ": ", " - "}) {
    if (const size_t at = why.find(heading); at != std::string::npos && at < kHeadingsEnd)
      why.erase(0, at + std::string_view(heading).size());
  }
  for (char& c : why) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
  }
  if (why.size() > kMaxMessage) why = why.substr(0, kMaxMessage) + "...";  // ends with the last text read
  return why;
}

template <class Json>
Json read_json(std::string_view text, bool comments) {
  if (text.empty()) fail_at(text, 0, "unexpected end of input; expected '[', '{', or a literal", false);  // same for all versions
  // The parser would take a NUL byte as the end of the text.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) fail_at(text, nul, "a NUL byte", false);
  const auto check_event = [&](int depth, typename Json::parse_event_t event, Json& value) {
    using Event = typename Json::parse_event_t;
    if (depth >= kMaxJsonDepth && (event == Event::object_start || event == Event::array_start)) {
      throw JsonError("values nest more than " + std::to_string(kMaxJsonDepth) + " levels deep", 0, 0, true);
    }
    if ((event == Event::key || event == Event::value) && value.is_string() &&
        value.template get_ref<const std::string&>().find('\0') != std::string::npos) {
      fail_at(text, find_escaped_nul(text), "a string holds a NUL character", true);
    }
    return true;
  };
  try {
    return Json::parse(text, check_event, true, comments);
  } catch (const typename Json::parse_error& e) {
    fail_at(text, e.byte > 0 ? e.byte - 1 : 0, parser_message(e), false);
  } catch (const typename Json::out_of_range& e) {  // "...number overflow parsing '1e400'"
    const std::string why = e.what();
    const size_t open = why.find('\''), close = why.rfind('\'');
    const std::string number = open < close ? why.substr(open + 1, close - open - 1) : "";
    const size_t at = number.empty() ? std::string_view::npos : text.find(number);
    const std::string message = "the number " + number.substr(0, 40) + " is too large for a double";
    if (at == std::string_view::npos || text.find(number, at + 1) != std::string_view::npos) throw JsonError(message, 0, 0, true);
    fail_at(text, at, message, true);
  }
}

template <class Json>
std::string write_json(const Json& value, int indent, std::string_view where) {
  const auto is_text = [](const std::string& s) { return find_not_utf8(s) == s.npos && s.find('\0') == s.npos; };
  const auto refuse = [&](const std::string& at, const std::string& s) {
    fail<ValueError>(where, at.empty() ? "a string" : at.substr(1), " must be UTF-8 without a NUL character, got ",
                     spelled(s.substr(0, 80)));
  };
  const auto check_strings = [&](const auto& self, const Json& v, const std::string& at) -> void {
    if (v.is_string() && !is_text(v.template get_ref<const std::string&>())) refuse(at, v.template get_ref<const std::string&>());
    if (v.is_array())
      for (size_t i = 0; i < v.size(); ++i)
        if (v[i].is_structured() || v[i].is_string()) self(self, v[i], joined(at, '[', i, ']'));
    if (!v.is_object()) return;
    for (const auto& [key, member] : v.items()) {
      if (!is_text(key)) refuse(at + ".the key", key);
      self(self, member, at + '.' + key);
    }
  };
  check_strings(check_strings, value, "");
  return value.dump(indent);
}

template std::string write_json(const nlohmann::json&, int, std::string_view);
template std::string write_json(const nlohmann::ordered_json&, int, std::string_view);

template nlohmann::json read_json(std::string_view, bool);
template nlohmann::ordered_json read_json(std::string_view, bool);

}  // namespace halfstep
