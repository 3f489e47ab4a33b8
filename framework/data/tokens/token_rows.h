// SPDX-License-Identifier: Apache-2.0
// Texts of any length as rows of tokens of equal length, for models that answer for a whole text.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/data/sets/text.h"

namespace halfstep {

struct TokenRowOptions {
  // word: a run of letters, numbers and the marks on them, in lower case; an ideograph; or any other character except blanks.
  // character: a code point. Both in normal form C. bpe: the tokens of `bpe`, without special ones around a text.
  Tokenizer tokenizer = Tokenizer::word;
  int64_t length = 256;        // of a row: longer texts are cut, shorter ones padded
  int64_t max_tokens = 20000;  // most words or characters kept, by frequency; all others become one token, "<unk>"
  int64_t min_count = 2;       // rarer words of the training data are not tokens
  std::shared_ptr<const BpeTokenizer> bpe{};
  static const OptionList<TokenRowOptions>& list();
};

using TextColumns = std::vector<std::vector<std::string_view>>;  // for each column, a text for each row

class TokenRows {
 public:
  // Learns tokens of words or characters from these rows. Throws ValueError for other tokenizers, options out of range and a
  // length that leaves no token for a column; DataError for texts without any token.
  TokenRows(const TokenRowOptions& options, const TextColumns& texts, std::span<const int64_t> rows);
  // Uses known tokens, as returned by vocabulary(); for bpe none. Throws ValueError for tokens that do not begin with the special
  // ones.
  TokenRows(const TokenRowOptions& options, const Vocabulary& vocabulary);

  const TokenRowOptions& options() const { return options_; }
  // Returns "<pad>", "<unk>", "<sep>", then words or characters; empty for bpe.
  const Vocabulary& vocabulary() const { return *vocabulary_; }
  int64_t size() const;                         // all tokens are below it
  int64_t padding() const { return padding_; }  // 0; for bpe the tokenizer's "<pad>" or the like, else one more than its tokens

  struct Counts {
    int64_t rows = 0, cut = 0, tokens = 0, unknown = 0;
    std::string example{};  // the first unknown one
  };
  // Writes the row of several texts with "<sep>" between them; if it is too long, cuts the longest first. Adds to `counts`.
  void encode(std::span<const std::string_view> texts, int64_t* to, Counts& counts) const;
  // Returns the number of words or characters in a text.
  static int64_t tokens_in(std::string_view text, Tokenizer tokenizer);
  // Returns the text of a row, from its tokens.
  std::string decode(std::span<const int64_t> row) const;
  // Returns "31 of 800 texts are longer and are cut; 420 of 30000 words are not among them, such as \"zyx\""; "": neither.
  std::string describe(const Counts& counts) const;
  // Returns the same tokenizer as a file for the package `tokenizers` on PyPI, which makes the same rows of one or two texts.
  std::string tokenizer_json() const;
  // Compares whether all texts give the same rows.
  friend bool operator==(const TokenRows& a, const TokenRows& b);

 private:
  void check_options(size_t columns) const;
  void find_special_tokens();
  std::vector<int64_t> numbers_of(std::string_view text, Counts& counts) const;

  TokenRowOptions options_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  int64_t padding_ = 0, separator_ = -1;  // separator_: token between texts; -1: none
};

}  // namespace halfstep
