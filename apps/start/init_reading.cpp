// SPDX-License-Identifier: Apache-2.0
#include "apps/start/init_reading.h"

#include <algorithm>

#include "apps/schema/json.h"
#include "apps/schema/shell_word.h"
#include "framework/base/check.h"
#include "framework/base/list_text.h"
#include "framework/io/files/json.h"

namespace halfstep::app {
namespace {

constexpr const char* kKeys[] = {"encoding", "delimiter", "skip_rows", "header", "on_error"};

// Parses a value, which may be a text without quotes.
Json value_of(const std::string& text) {
  try {
    return read_json<Json>(text);
  } catch (const JsonError&) { return Json(text); }
}

// Sets the value of a key. Returns false for a value that the key does not take.
bool set_value(InitReading& out, const std::string& key, const Json& value) {
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  if (key == "on_error") return out.skips_pictures = text == "skip";
  if (key == "header") {
    if (value.is_boolean()) out.header = value.get<bool>();
    return value.is_boolean();
  }
  if (key == "encoding") {
    return OptionMember<TextEncoding>::put(out.format.encoding, text);
  }
  if (key == "delimiter") {
    out.format.delimiter = text == "blanks" ? kCsvBlanks : text.size() == 1 ? text[0] : '\0';
    return out.format.delimiter != '\0';
  }
  const bool are_lines = value.is_array() && !value.empty() && std::all_of(value.begin(), value.end(), [](const Json& line) {
                           return line.is_number_integer() && line.get<int64_t>() >= 1;
                         });
  if (are_lines) out.format.skip_rows = value.get<std::vector<int64_t>>();
  return are_lines;
}

}  // namespace

InitReading reading_of(const InitWishes& wishes, const std::string& kind, const std::vector<std::string>& keys) {
  InitReading out;
  std::vector<std::string> all;
  for (const std::string& key : keys) all.push_back("data." + key);
  for (const std::string& set : wishes.sets) {
    const size_t equals = std::min(set.find('='), set.size());
    const std::string path = set.substr(0, equals), key = path.starts_with("data.") ? path.substr(5) : path;
    check<ConfigError>(std::find(keys.begin(), keys.end(), key) != keys.end(), "init", "--set ", set, ": of ", kind, " init takes ",
                       all.empty() ? "no keys" : list_text(all), Help{"other keys are changed in the config that it writes"});
    const Json value = value_of(set.substr(std::min(equals + 1, set.size())));
    check<ConfigError>(set_value(out, key, value), "init", "--set ", set, ": ", key, " does not take this value",
                       Help{"halfstep explain " + key});
    if (key != "skip_rows") out.lines.push_back({joined('"', key, "\": ", value.dump()), "as asked"});
  }
  return out;
}

InitReading table_reading(const InitWishes& wishes) {
  return reading_of(wishes, "a table", {"encoding", "delimiter", "skip_rows", "header"});
}

void add_skip_rows(InitParts& out, const InitReading& reading) {
  if (!reading.format.skip_rows.empty())
    out.data.push_back({"\"skip_rows\": " + Json(reading.format.skip_rows).dump(), "as asked"});
}

std::string with_option(const std::string& message) {
  const size_t help = message.find("\nhelp: ");
  for (const char* key : kKeys) {
    const std::string name = joined('"', key, "\": ");
    const size_t at = help == message.npos ? help : message.find(name, help);
    if (at == message.npos) continue;
    const size_t from = at + name.size();
    const char first = message[std::min(from, message.size() - 1)];
    const size_t end = first == '"'   ? message.find('"', from + 1)
                       : first == '[' ? message.find(']', from)
                                      : std::min(message.find_first_of(" ,;)\n", from), message.size()) - 1;
    if (end >= message.size()) continue;
    const Json value = value_of(message.substr(from, end + 1 - from));
    const std::string word = joined("data.", key, '=', value.is_string() ? value.get<std::string>() : value.dump());
    return joined(message, "; with init: --set ", shell_word(word));
  }
  return message;
}

}  // namespace halfstep::app
