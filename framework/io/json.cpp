#include "framework/io/json.h"

namespace halfstep {
namespace {

// "[json.exception.parse_error.101] parse error at line 3, column 2: syntax error while parsing value - unexpected ..." and the
// like: what follows the last of the library's own headings, in printable characters.
std::string in_plain_words(std::string why) {
  for (const char* heading : {"] ", ": ", " - "}) {
    if (const size_t at = why.find(heading); at != std::string::npos && at < 90) why.erase(0, at + std::string_view(heading).size());
  }
  for (char& c : why) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
  }
  return why;
}

}  // namespace

template <class Json>
Json read_json(std::string_view text, bool comments) {
  const auto bounded = [](int depth, typename Json::parse_event_t event, Json&) {
    using Event = typename Json::parse_event_t;
    if (depth >= kMaxJsonDepth && (event == Event::object_start || event == Event::array_start)) {
      throw JsonError("values nest more than " + std::to_string(kMaxJsonDepth) + " levels deep", 0, 0);
    }
    return true;
  };
  try {
    return Json::parse(text, bounded, true, comments);
  } catch (const typename Json::parse_error& e) {
    int line = 1, column = 1;
    for (size_t i = 0; i + 1 < e.byte && i < text.size(); ++i) {
      ++column;
      if (text[i] == '\n') ++line, column = 1;
    }
    throw JsonError(in_plain_words(e.what()), line, column);
  } catch (const typename Json::exception& e) { throw JsonError(in_plain_words(e.what()), 0, 0); }
}

template nlohmann::json read_json(std::string_view, bool);
template nlohmann::ordered_json read_json(std::string_view, bool);

}  // namespace halfstep
