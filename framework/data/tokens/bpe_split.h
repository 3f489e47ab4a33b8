// SPDX-License-Identifier: Apache-2.0
// How a text is cut into words before byte-pair merges: the regular expressions of published tokenizers, written as code. RE2 could
// not run them, since \s+(?!\S) looks ahead, and no pattern but these is accepted.
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
  each_digit,    // the same, with each digit by itself
  prefix_space,  // does not cut: puts a space before a piece that begins with none
};

// The rule whose regular expression `pattern` is, in one of the spellings that are in use.
std::optional<SplitRule> rule_of_pattern(std::string_view pattern);

// Where the piece ends that begins at `at`, below text.size(). `text` is UTF-8.
size_t piece_end(SplitRule rule, std::string_view text, size_t at);

// Calls f(word) for each piece of `text` that is left when each rule has cut what those before it gave. The words are valid during
// the call.
template <class F>
void each_word(std::span<const SplitRule> rules, std::string_view text, F&& f) {
  if (text.empty()) return;
  if (rules.empty()) return f(text);
  const auto rest = rules.subspan(1);
  if (rules[0] == SplitRule::prefix_space)
    return text[0] == ' ' ? each_word(rest, text, f) : each_word(rest, ' ' + std::string(text), f);
  for (size_t at = 0; at < text.size();) {
    const size_t end = piece_end(rules[0], text, at);
    each_word(rest, text.substr(at, end - at), f);
    at = end;
  }
}

}  // namespace halfstep
