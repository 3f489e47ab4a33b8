// SPDX-License-Identifier: Apache-2.0
// What tokenizers ask about Unicode: where a code point of UTF-8 ends, and which class it is in. The tables are those of the
// package `tokenizers` on PyPI (Oniguruma's, of Unicode 16; for NFC older ones), and not the system's, so that ids are the same
// anywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace halfstep {

// How many bytes the code point at `at` has; 0 for what is not UTF-8 (RFC 3629), and at the end.
size_t utf8_length(std::string_view text, size_t at);
// The code point at `at`, which has `bytes` bytes as utf8_length counts them.
char32_t utf8_at(std::string_view text, size_t at, size_t bytes);
void append_utf8(std::string& out, char32_t point);
// The byte at which `text` stops being UTF-8; npos: nowhere.
size_t find_not_utf8(std::string_view text);
// Each longest piece that is no code point, but begins one, becomes one U+FFFD, as Rust's and Python's decoders do it.
std::string replace_not_utf8(std::string text);

// \p{L}, \p{N}, \s (White_Space) and everything else.
enum class PointClass : uint8_t { other, letter, number, space };
PointClass class_of(char32_t point);

// White space, and what shows nothing at all.
bool is_blank_point(char32_t point);

// The text between quotes for a message, in which nothing looks like something else: blanks but the common one, marks that could
// be part of their letter, and what is not UTF-8 or shows nothing, are written as escapes.
std::string spelled(std::string_view text);

// Normal form C. `text` must be UTF-8.
std::string normalize_nfc(std::string_view text);

// Is it a letter, a number or a mark on one (\p{M}), of which words are made?
bool is_word_point(char32_t point);
// Ideographs, which are words without blanks between them.
bool is_ideograph(char32_t point);
// Appends its small letter, or itself where it has none.
void append_small(std::string& out, char32_t point);

// The tables behind them, each in ascending order.
struct PointRange {
  uint32_t first, last;  // both are in it
};
struct CombiningRange {
  uint32_t first, last, order;  // the combining class of marks
};
struct Decomposition {
  uint32_t whole, first, second;  // second 0: it is `first`, under another number
};
struct SmallLetters {
  uint32_t first, last, step;  // every step-th of them
  int32_t distance;            // from it to its small letter
};
std::span<const PointRange> letter_ranges();
std::span<const PointRange> number_ranges();
std::span<const PointRange> mark_ranges();
std::span<const SmallLetters> small_letters();
std::span<const CombiningRange> combining_ranges();
std::span<const Decomposition> decompositions();       // by `whole`; without Hangul
std::span<const PointRange> composition_exclusions();  // of two, which NFC leaves apart

}  // namespace halfstep
