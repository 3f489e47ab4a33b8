// SPDX-License-Identifier: Apache-2.0
// JSON from outside the process: the one road by which text becomes a value. It bounds how deeply values nest, so that no reader
// of the result can run out of stack; it refuses NUL characters, at which C interfaces cut names and paths off; and it says in its
// own words what is wrong.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "framework/base/check.h"

namespace halfstep {

inline constexpr int kMaxJsonDepth = 200;  // objects and lists inside one another

// Text that is not JSON, or more than a reader takes. what() is a phrase without a place or a full stop, for the caller to put
// its file and its own type around: "unexpected end of input; expected string literal".
struct JsonError : Error {
  JsonError(const std::string& why, int line_, int column_, bool refused_ = false)
      : Error(why), line(line_), column(column_), refused(refused_) {}
  int line, column;  // from 1; 0 where it is not known
  bool refused;      // it is JSON, but nests too deeply, holds a NUL character or a number that no double can
};

// `text` as nlohmann::json or, where the order of keys matters, nlohmann::ordered_json, which takes time quadratic in the number of
// an object's keys. comments: // and /* */ are allowed. Throws JsonError.
template <class Json>
Json read_json(std::string_view text, bool comments = false);

// JSON for a file, indented by so many blanks, from which read_json makes the same value again. Throws ValueError "[where] ...",
// which names the key, for a string that is not UTF-8 or holds a NUL character.
template <class Json>
std::string write_json(const Json& value, int indent, std::string_view where);

// What an exception of the library's parser says, without the library's headings.
std::string in_plain_words(const nlohmann::json::exception& e);

extern template nlohmann::json read_json(std::string_view, bool);
extern template nlohmann::ordered_json read_json(std::string_view, bool);
extern template std::string write_json(const nlohmann::json&, int, std::string_view);
extern template std::string write_json(const nlohmann::ordered_json&, int, std::string_view);

}  // namespace halfstep
