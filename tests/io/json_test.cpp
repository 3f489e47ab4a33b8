// SPDX-License-Identifier: Apache-2.0
#include "framework/io/files/json.h"

#include <doctest/doctest.h>

#include <string>

using namespace halfstep;

namespace {

std::string fault(const std::string& text, bool comments = false) {
  try {
    read_json<nlohmann::ordered_json>(text, comments);
  } catch (const JsonError& e) { return std::to_string(e.line) + ":" + std::to_string(e.column) + " " + e.what(); }
  return {};
}
std::string nested(int levels) { return std::string(size_t(levels), '[') + std::string(size_t(levels), ']'); }

}  // namespace

TEST_CASE("read_json takes values that nest to its bound and refuses deeper ones, however deep") {
  CHECK(fault(nested(kMaxJsonDepth)) == "");
  const std::string deeper = "0:0 values nest more than 200 levels deep";
  CHECK(fault(nested(kMaxJsonDepth + 1)) == deeper);
  CHECK(fault(std::string(3'000'000, '[')) == deeper);
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += R"({"a":)";
  CHECK(fault(objects) == deeper);
}

TEST_CASE("read_json says in plain words what is wrong, and where") {
  CHECK(fault("{\"a\":\n x}") == R"(2:2 invalid literal; last read: '"a":<U+000A> x')");
  CHECK(fault("") == "1:1 unexpected end of input; expected '[', '{', or a literal");
  CHECK(fault("{\"a\":\n1e400}") == "2:1 the number 1e400 is too large for a double");
  CHECK(fault("[1e400, 1e400]") == "0:0 the number 1e400 is too large for a double");
  CHECK(fault("[\"\xff\"]") == R"(1:3 invalid string: ill-formed UTF-8 byte; last read: '"?')");
  CHECK(fault("// a remark\n[1]") != "");
  CHECK(fault("// a remark\n[1] /* another */", true) == "");
  for (const char* text : {"{", "[1,]", "{\"a\" 1}", "nul", "\"a\nb\"", "1e999", "\x01"}) {
    CAPTURE(text);
    CHECK(fault(text).find("json.exception") == std::string::npos);
    CHECK(fault(text).find("parse error at") == std::string::npos);
    CHECK(fault(text) != "");
  }
}

TEST_CASE("read_json refuses NUL characters, written out and as bytes, which the parser would take for the end") {
  const std::string held = "a string holds a NUL character";
  CHECK(fault(R"({"output_dir":
  "a\u0000b"})") == "2:5 " + held);
  CHECK(fault(R"({"a\u0000b": 1})") == "1:4 " + held);
  CHECK(fault(R"(["\\u0000"])") == "");
  CHECK(fault(R"(["\\u0000", "\\\u0000"])") == "1:16 " + held);
  CHECK(fault(std::string("{}\0garbage", 10)) == "1:3 a NUL byte");
  CHECK(fault(std::string("[\"a\0\"]", 6)) == "1:4 a NUL byte");
}

TEST_CASE("read_json's faults are short, however long the text is") {
  CHECK(fault('"' + std::string(1 << 20, 'x')).size() < 300);
  CHECK(fault(std::string(1 << 20, '9') + "e9").size() < 300);
}
