// SPDX-License-Identifier: Apache-2.0
// Parses JSON from outside the process; no other code may. Bounds how deeply values nest, so that no reader of the result runs out
// of stack, and refuses NUL characters, at which C interfaces cut off names and paths.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "framework/base/check.h"

namespace halfstep {

inline constexpr int kMaxJsonDepth = 200;  // objects and lists inside one another

// Text that is not JSON, or exceeds a reader's limits. what() is a phrase without place and full stop, to which the caller adds
// its file and error type: "unexpected end of input; expected string literal".
struct JsonError : Error {
  JsonError(const std::string& why, int line_, int column_, bool refused_ = false)
      : Error(why), line(line_), column(column_), refused(refused_) {}
  int line, column;  // from 1; 0: unknown
  bool refused;      // valid JSON, but it nests too deeply, has a NUL character, or a number too large for a double
};

// Parses `text` as nlohmann::json or, if the order of keys matters, nlohmann::ordered_json, which takes time quadratic in the
// number of an object's keys. comments: allows // and /* */. Throws JsonError.
template <class Json>
Json read_json(std::string_view text, bool comments = false);

// Writes JSON for a file, indented by `indent` blanks, from which read_json makes the same value again. Throws ValueError "[where]
// ...", which names the key, for a string that is not UTF-8 or contains a NUL character.
template <class Json>
std::string write_json(const Json& value, int indent, std::string_view where);

// Returns the message of a parser exception without the library's headings, in printable ASCII, with at most 200 characters.
std::string parser_message(const nlohmann::json::exception& e);

extern template nlohmann::json read_json(std::string_view, bool);
extern template nlohmann::ordered_json read_json(std::string_view, bool);
extern template std::string write_json(const nlohmann::json&, int, std::string_view);
extern template std::string write_json(const nlohmann::ordered_json&, int, std::string_view);

}  // namespace halfstep
