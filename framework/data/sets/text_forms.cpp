// SPDX-License-Identifier: Apache-2.0
#include "framework/data/sets/text_forms.h"

#include <algorithm>
#include <filesystem>

#include "framework/base/check.h"
#include "framework/data/tokens/unicode.h"

namespace halfstep {
namespace {

// Calls f(character) for each character of a text in UTF-8.
template <class F>
void each_character(std::string_view text, F&& f) {
  for (size_t at = 0, bytes = 0; at < text.size(); at += bytes) {
    bytes = utf8_length(text, at);
    f(text.substr(at, bytes));
  }
}

// Counts tokens of a text in UTF-8 that the vocabulary does not have.
size_t count_unknown(std::string_view text, const TextOptions& o) {
  size_t out = 0;
  if (o.tokenizer == Tokenizer::character) {
    each_character(text, [&](std::string_view c) { out += o.vocabulary.find(c) < 0; });
    return out;
  }
  constexpr std::string_view kBlanks = " \t\r\v\f\n";
  for (size_t at = text.find_first_not_of(kBlanks); at != text.npos;) {
    const size_t end = std::min(text.find_first_of(kBlanks, at), text.size());
    out += o.vocabulary.find(text.substr(at, end - at)) < 0;
    at = text.find_first_not_of(kBlanks, end);
  }
  return out;
}

std::string with_line_feeds(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size(); ++at)
    if (!(text[at] == '\r' && at + 1 < text.size() && text[at + 1] == '\n')) out += text[at];
  return out;
}

}  // namespace

FittedText fitted_text(std::string_view text, const TextOptions& o) {
  FittedText best{std::string(text)};
  const bool has_words = o.tokenizer == Tokenizer::character || o.tokenizer == Tokenizer::word;
  if (!has_words || o.vocabulary.size() == 0 || find_not_utf8(text) != text.npos) return best;
  size_t fewest = count_unknown(text, o);
  const auto attempt = [&](std::string other, TextChange change) {
    if (fewest == 0 || other == best.text) return;
    const size_t unknown = count_unknown(other, o);
    if (unknown < fewest) best = {std::move(other), change}, fewest = unknown;
  };
  attempt(with_line_feeds(text), TextChange::line_ends);
  attempt(normalize_nfc(best.text), TextChange::nfc);
  attempt(normalize_nfd(best.text), TextChange::nfd);
  return best;
}

std::string_view change_words(TextChange change) {
  switch (change) {
    case TextChange::line_ends: return "LF at the ends of lines";
    case TextChange::nfc: return "each letter and its marks as one character (NFC)";
    case TextChange::nfd: return "letters and their marks apart (NFD)";
    case TextChange::none: break;
  }
  return "";
}

std::string change_command(TextChange change, const std::string& path) {
  const std::string name = std::filesystem::path(path).filename().string(), files = " < " + name + " > new-" + name;
  if (change == TextChange::line_ends) return "tr -d '\\r'" + files;
  return std::string("python3 -c \"import sys, unicodedata; sys.stdout.write(unicodedata.normalize('") +
         (change == TextChange::nfc ? "NFC" : "NFD") + "', sys.stdin.read()))\"" + files;
}

std::string mixed_forms_warning(const TextOptions& o, std::string_view text, const std::string& path) {
  constexpr size_t kShown = 3;
  const bool words = o.tokenizer == Tokenizer::word;
  if (!words && o.tokenizer != Tokenizer::character) return "";
  // Returns whether the text has a token of the vocabulary also in this other form.
  const auto is_there = [&](const std::string& apart) {
    if (words) return o.vocabulary.find(apart) >= 0;
    bool is_possible = true;
    each_character(apart, [&](std::string_view part) { is_possible &= o.vocabulary.find(part) >= 0; });
    return is_possible && text.find(apart) != text.npos;
  };
  std::string examples;
  size_t found = 0;
  for (const std::string& token : o.vocabulary.tokens()) {
    if (std::all_of(token.begin(), token.end(), [](char c) { return uint8_t(c) < 0x80; })) continue;
    const std::string apart = normalize_nfd(token);
    if (apart == token || !is_there(apart) || ++found > kShown) continue;
    examples += (examples.empty() ? "" : ", ") + spelled(token) + " and " + spelled(apart);
  }
  if (found == 0) return "";
  return joined(words ? "words" : "letters", " are there both with letters as one character and with their marks apart, which are ",
                "different tokens: ", examples, found > kShown ? ", ..." : "", "; ", change_command(TextChange::nfc, path),
                " gives all one form");
}

}  // namespace halfstep
