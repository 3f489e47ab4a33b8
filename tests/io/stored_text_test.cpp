// SPDX-License-Identifier: Apache-2.0
// What is stored can be read again: all of Unicode, and all bytes, in strings of the JSON of checkpoints.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "framework/base/check.h"
#include "framework/data/sets/text.h"
#include "framework/data/tables/csv.h"
#include "framework/data/tokens/unicode.h"
#include "framework/data/transforms/data_form.h"
#include "framework/io/checkpoint/checkpoint.h"
#include "framework/io/files/json.h"
#include "framework/io/files/printable.h"
#include "tests/io/files.h"

using namespace halfstep;
using namespace halfstep::testing;
using Json = nlohmann::json;

namespace {

// All code points but NUL, in strings of a thousand.
std::vector<std::string> all_of_unicode() {
  std::vector<std::string> out(1);
  for (char32_t c = 1; c < 0x110000; ++c) {
    if (c >= 0xd800 && c < 0xe000) continue;
    if (c % 1000 == 0) out.emplace_back();
    append_utf8(out.back(), c);
  }
  return out;
}

std::string refused(const Json& json) {
  return message_of<ValueError>([&] { write_json(json, 1, "test"); });
}

}  // namespace

TEST_CASE("what write_json writes, read_json reads as the same: every code point, as a value and as a key") {
  const std::vector<std::string> all = all_of_unicode();
  Json json = {{"list", all}, {"keys", Json::object()}};
  for (const std::string& s : all) json["keys"][s] = s.substr(0, 8) == s ? 1 : 2;
  CHECK(read_json<Json>(write_json(json, 2, "test")) == json);
  CHECK(read_json<nlohmann::ordered_json>(write_json<nlohmann::ordered_json>(json["list"], -1, "test")).dump() ==
        json["list"].dump());
}

TEST_CASE("what cannot be read again is refused with its key") {
  CHECK(refused({{"config", {{"words", {"a", std::string("b\0c", 3)}}}}}) ==
        R"([test] config.words[1] must be UTF-8 without a NUL character, got "b\u0000c")");
  CHECK(refused({{"names", {{"K\xf6ln", 1}}}}) == R"([test] names.the key must be UTF-8 without a NUL character, got "K\xf6ln")");
  CHECK(refused("\xff") == R"([test] a string must be UTF-8 without a NUL character, got "\xff")");
  for (int byte = 0; byte < 256; ++byte) {
    const bool plain = byte > 0 && byte < 0x80;
    CHECK_MESSAGE(refused(Json{std::string(1, char(byte))}).empty() == plain, byte);
    CHECK_MESSAGE(!refused(Json{"\xc3" + std::string(1, char(byte))}).empty() == (byte < 0x80 || byte >= 0xc0), byte);
  }
  for (char32_t half = 0xd800; half < 0xe000; ++half) {
    std::string s;
    append_utf8(s, half);
    CHECK(!refused(s).empty());
    char escape[16];
    std::snprintf(escape, sizeof escape, "\"\\u%04x\"", unsigned(half));
    CHECK_THROWS_AS(read_json<Json>(escape), JsonError);
  }
}

TEST_CASE("a checkpoint holds every text that a table or a text can have, and others are refused before") {
  const TempDir dir;
  std::vector<std::string> all;  // labels: no blanks around them, no control characters that end cells
  for (const std::string& s : all_of_unicode()) all.push_back("<" + s + ">");
  CheckpointContents contents;
  contents.meta["texts"] = all;
  contents.data = JsonValue(Json{{"names", all}});
  const CheckpointContents back = load_checkpoint(save_checkpoint(dir.path(), 1, contents, 1, {}));
  CHECK(back.meta["texts"] == Json(all));
  CHECK((*back.data)["names"] == Json(all));
  contents.meta["texts"] = std::string("a\0", 2);
  CHECK(message_of<ValueError>([&] { save_checkpoint(dir.path(), 2, contents, 1, {}); }) ==
        R"([checkpoint] texts must be UTF-8 without a NUL character, got "a\u0000")");

  std::string table = "n,kind\n", text;
  for (size_t i = 0; i < 200; ++i) {
    std::string cell;
    for (const char c : all[i]) cell += c == '"' ? "\"\"" : std::string(1, c);
    table += std::to_string(i) + ",\"" + cell + "\"\n";
    text += all[i];
  }
  write_bytes(dir / "t.csv", table);
  write_bytes(dir / "t.txt", text);
  const DataForm form = CsvDataset(dir / "t.csv").form();
  CHECK(form.classes == 200);
  CHECK(read_form(read_json<Json>(write_json(*to_json(form), 1, "test"))).names == form.names);
  const DataForm tokens = TextDataset(dir / "t.txt").form();
  CHECK(tokens.vocabulary == 202'000 - 1 - 0x800);  // the first 202,000 code points, without NUL and halves of pairs
  CHECK(read_form(read_json<Json>(write_json(*to_json(tokens), 1, "test"))).names == tokens.names);
}

TEST_CASE("text of files in messages keeps its letters, and nothing that acts on a terminal") {
  const auto kept = [](const std::string& text) { CHECK_MESSAGE(printable(text) == text, text); };
  kept("layer.0"),
      kept(
          "pr\xc3\xbc"
          "fer"),
      kept("\xe6\xa8\xa1\xe5\x9e\x8b"), kept("\xf0\x9f\x98\x80"), kept("\xef\xac\x81");
  CHECK(printable("a\tb\x1b[2J\x7f\xc2\x9b") == "a?b?[2J??");
  CHECK(printable("a\xe2\x80\xae"
                  "b\xe2\x81\xa6\xef\xbb\xbf\xee\x80\x80\xf3\xa0\x81\x81") == "a?b????");
  CHECK(printable("a\xff\xc3\xe6\xa8z\xc0\xaf\xed\xa0\x80\xf5\x80\x80\x80") == "a????z?????????");
  CHECK(printable("\xc3\xbc\xc3\xbc\xc3\xbc", 3) == "\xc3\xbc\xc3\xbc...");
  CHECK(printable("abc", 3) == "abc");
}
