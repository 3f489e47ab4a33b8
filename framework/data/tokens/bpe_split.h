// SPDX-License-Identifier: Apache-2.0
// Splits a text into words before byte-pair merges: the regular expressions of published tokenizers, written as code. RE2 cannot
// run them, because \s+(?!\S) looks ahead. Other patterns are refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace halfstep {

enum class SplitRule : uint8_t {
  gpt2,    // 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  llama3,  // (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
  qwen2,   // the same with \p{N} for \p{N}{1,3}
  digits,  // numbers, and what is between them
  each_digit,    // the same, with each digit separate
  prefix_space,  // does not split: adds a space before a piece that begins with none
};

// Returns the rule with the regular expression `pattern`, in any of the spellings in use.
std::optional<SplitRule> rule_of_pattern(std::string_view pattern);

// Returns the end of the piece that begins at `at`, below text.size(). `text` must be UTF-8.
size_t piece_end(SplitRule rule, std::string_view text, size_t at);

// Calls f(word) for each piece of `text`, after each rule has split the pieces of the rules before it. The words are valid during
// the call.
template <class F>
void for_each_word(std::span<const SplitRule> rules, std::string_view text, F&& f) {
  if (text.empty()) return;
  if (rules.empty()) return f(text);
  const auto rest = rules.subspan(1);
  if (rules[0] == SplitRule::prefix_space)
    return text[0] == ' ' ? for_each_word(rest, text, f) : for_each_word(rest, ' ' + std::string(text), f);
  for (size_t at = 0; at < text.size();) {
    const size_t end = piece_end(rules[0], text, at);
    for_each_word(rest, text.substr(at, end - at), f);
    at = end;
  }
}

}  // namespace halfstep
