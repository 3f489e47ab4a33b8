// SPDX-License-Identifier: Apache-2.0
#include "framework/data/tokens/bpe_split.h"

#include <array>
#include <utility>

#include "framework/base/list_text.h"
#include "framework/data/tokens/unicode.h"

namespace halfstep {
namespace {

// tiktoken spells the same expressions differently: possessive, because the text behind a match cannot match it; and \s*[\r\n]
// without a plus, because \s* takes all line ends but the last one.
constexpr std::array<std::pair<std::string_view, SplitRule>, 5> kPatterns = {{
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", SplitRule::gpt2},
    {R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", SplitRule::gpt2},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     SplitRule::llama3},
    {R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)",
     SplitRule::llama3},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     SplitRule::qwen2},
}};

// Returns the class of the code point at `at`, and its end in `end`; `other` at the end of the text.
PointClass class_at(std::string_view text, size_t at, size_t& end) {
  if (at >= text.size()) return PointClass::other;
  const size_t bytes = uint8_t(text[at]) < 0x80 ? 1 : utf8_length(text, at);
  end = at + bytes;
  return class_of(utf8_at(text, at, bytes));
}

// Returns the end of the run of code points of class `point_class` that begins at `at`; at most `most` of them.
size_t run_end(std::string_view text, size_t at, PointClass point_class, size_t most = size_t(-1)) {
  for (size_t end = at; most > 0 && at < text.size() && class_at(text, at, end) == point_class; --most) at = end;
  return at;
}

bool is_line_end(char c) { return c == '\n' || c == '\r'; }

// Returns the end of 's, 't, 're, 've, 'm, 'll or 'd at `at`, or `at` if there is none. any_case: also capitals, and the long s,
// which equals s when case does not matter.
size_t contraction_end(std::string_view text, size_t at, bool any_case) {
  if (text[at] != '\'') return at;
  const auto lower = [&](size_t i) {
    const char c = i < text.size() ? text[i] : '\0';
    return any_case ? lower_case(c) : c;
  };
  const char first = lower(at + 1), second = lower(at + 2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
  if (((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l')) return at + 3;
  return any_case && text.substr(at + 1).starts_with("\xc5\xbf") ? at + 3 : at;
}

// Matches \s+(?!\S)|\s+ at white space: the run, without its last code point if something follows and there are two or more.
size_t space_end(std::string_view text, size_t at) {
  size_t last = at, next = at, end = at;
  while (next < text.size() && class_at(text, next, end) == PointClass::space) last = next, next = end;
  return next == text.size() || last == at ? next : last;
}

// Returns the end of the match of SplitRule::gpt2 at `at`.
size_t gpt2_end(std::string_view text, size_t at) {
  if (const size_t end = contraction_end(text, at, false); end > at) return end;
  const size_t word = text[at] == ' ' && at + 1 < text.size() ? at + 1 : at;
  size_t end = at;
  const PointClass point_class = class_at(text, word, end);
  return point_class == PointClass::space ? space_end(text, at) : run_end(text, word, point_class);
}

// Returns the end of the match of SplitRule::llama3 at `at`, with at most `digits` digits in a number.
size_t llama3_end(std::string_view text, size_t at, size_t digits) {
  if (const size_t end = contraction_end(text, at, true); end > at) return end;
  size_t next = at, end = at;
  const PointClass point_class = class_at(text, at, next);
  if (point_class == PointClass::letter) return run_end(text, at, point_class);
  if (point_class == PointClass::number) return run_end(text, at, point_class, digits);
  if (!is_line_end(text[at]) && next < text.size() && class_at(text, next, end) == PointClass::letter)
    return run_end(text, next, PointClass::letter);
  const size_t word = text[at] == ' ' ? next : at;
  if (word < text.size() && class_at(text, word, end) == PointClass::other) {
    end = run_end(text, word, PointClass::other);
    while (end < text.size() && is_line_end(text[end])) ++end;
    return end;
  }
  end = run_end(text, at, PointClass::space);
  const size_t line = text.substr(at, end - at).find_last_of("\r\n");  // \s*[\r\n]+
  return line == text.npos ? space_end(text, at) : at + line + 1;
}

// Matches Rust's is_numeric: \p{N} and the digits added in Unicode 17.
bool digit_at(std::string_view text, size_t at, size_t& end) {
  if (class_at(text, at, end) == PointClass::number) return true;
  const char32_t point = utf8_at(text, at, end - at);
  return (point >= 0x11de0 && point <= 0x11de9) || (point >= 0x16ff4 && point <= 0x16ff6);
}

// Returns the end of a run of digits, or of one digit with `each`, or of a run without digits.
size_t digits_end(std::string_view text, size_t at, bool each) {
  size_t next = at, end = at;
  const bool is_digit = digit_at(text, at, next);
  while (next < text.size() && !(is_digit && each) && digit_at(text, next, end) == is_digit) next = end;
  return next;
}

}  // namespace

std::optional<SplitRule> rule_of_pattern(std::string_view pattern) {
  for (const auto& [text, rule] : kPatterns)
    if (text == pattern) return rule;
  return {};
}

size_t piece_end(SplitRule rule, std::string_view text, size_t at) {
  switch (rule) {
    case SplitRule::gpt2: return gpt2_end(text, at);
    case SplitRule::llama3: return llama3_end(text, at, 3);
    case SplitRule::qwen2: return llama3_end(text, at, 1);
    case SplitRule::digits: return digits_end(text, at, false);
    case SplitRule::each_digit: return digits_end(text, at, true);
    case SplitRule::prefix_space: break;
  }
  return text.size();
}

}  // namespace halfstep
