// SPDX-License-Identifier: Apache-2.0
// Unicode facts that tokenizers need: where a UTF-8 code point ends, and its class. The tables are those of the package
// `tokenizers` on PyPI (Oniguruma's, of Unicode 16; older ones for NFC), not the system's, so that ids are the same everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace halfstep {

// Returns the length in bytes of the code point at `at`; 0 for invalid UTF-8 (RFC 3629), and at the end.
size_t utf8_length(std::string_view text, size_t at);
// Returns the code point at `at`, with the length `bytes` from utf8_length.
char32_t utf8_at(std::string_view text, size_t at, size_t bytes);
// Appends a code point.
void append_utf8(std::string& out, char32_t point);
// Returns the first byte that is not UTF-8; npos: none.
size_t find_not_utf8(std::string_view text);
// Replaces each longest broken sequence of bytes by one U+FFFD, like Rust's and Python's decoders.
std::string replace_not_utf8(std::string text);

// \p{L}, \p{N}, \s (White_Space) and everything else.
enum class PointClass : uint8_t { other, letter, number, space };
PointClass class_of(char32_t point);

// Returns whether the point is white space or invisible.
bool is_blank_point(char32_t point);

// Returns the text between quotes for a message, so that different texts look different: unusual blanks, marks that could merge
// with their letter, invisible characters and invalid UTF-8 become escapes.
std::string spelled(std::string_view text);

// Convert to normal forms C and D. `text` must be UTF-8.
std::string normalize_nfc(std::string_view text);
std::string normalize_nfd(std::string_view text);

// Returns whether the point is a letter, a number or a mark on one (\p{M}), of which words consist.
bool is_word_point(char32_t point);
// Returns whether the point is an ideograph, which is a word without blanks around it.
bool is_ideograph(char32_t point);
// Appends the lower-case form, or the point itself if it has none.
void append_lower_case(std::string& out, char32_t point);

// The underlying tables, each in ascending order.
struct PointRange {
  uint32_t first, last;  // both inclusive
};
struct CombiningRange {
  uint32_t first, last, order;  // the combining class of marks
};
struct Decomposition {
  uint32_t whole, first, second;  // second 0: `whole` is an alias of `first`
};
struct SmallLetters {
  uint32_t first, last, step;  // only every step-th point
  int32_t distance;            // from a point to its lower-case form
};
std::span<const PointRange> letter_ranges();
std::span<const PointRange> number_ranges();
std::span<const PointRange> mark_ranges();
std::span<const SmallLetters> small_letters();
std::span<const CombiningRange> combining_ranges();
std::span<const Decomposition> decompositions();       // sorted by `whole`; without Hangul
std::span<const PointRange> composition_exclusions();  // combinations that NFC leaves apart

}  // namespace halfstep
