// SPDX-License-Identifier: Apache-2.0
// Texts in another form than the one that a vocabulary was made of: other ends of lines, and Unicode's other normal form, in which
// a letter and its marks are one character or several. Not a public header.
#pragma once

#include <string>
#include <string_view>

#include "framework/data/sets/text.h"

namespace halfstep {

enum class TextChange : uint8_t { none, line_ends, nfc, nfd };

struct FittedText {
  std::string text;
  TextChange change = TextChange::none;  // the last that was needed
};
// Returns the text in the form of which the vocabulary has most; as it is, if another form is no better, or without a vocabulary.
FittedText fitted_text(std::string_view text, const TextOptions& options);

// Returns words for it: "LF at the ends of lines".
std::string_view change_words(TextChange change);
// Returns a command that changes a file so.
std::string change_command(TextChange change, const std::string& path);

// Returns a warning for a text in which a letter, or a word with it, is there both with the letter as one character and as several,
// which are different tokens of the options' vocabulary. Empty: there is none.
std::string mixed_forms_warning(const TextOptions& options, std::string_view text, const std::string& path);

}  // namespace halfstep
