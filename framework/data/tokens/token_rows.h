// SPDX-License-Identifier: Apache-2.0
// Texts of any length as rows of tokens of one length, for models that answer for a whole text.
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
  // word: a run of letters, numbers and the marks on them, in small letters; an ideograph; or any other character but blanks.
  // character: a code point. Both in normal form C. bpe: the tokens of `bpe`, without special ones around a text.
  Tokenizer tokenizer = Tokenizer::word;
  int64_t length = 256;        // of a row: longer texts are cut, shorter ones end with padding
  int64_t max_tokens = 20000;  // of words and characters: the most frequent; all others are one token, "<unk>"
  int64_t min_count = 2;       // those that the training data has less often are no tokens
  std::shared_ptr<const BpeTokenizer> bpe{};
};

using TextColumns = std::vector<std::vector<std::string_view>>;  // of each column a text for each row

class TokenRows {
 public:
  // Learns the tokens of words and characters from these rows. Throws ValueError for other tokenizers, options outside their domain
  // and a length that leaves no token for a column; DataError for texts without any token.
  TokenRows(const TokenRowOptions& options, const TextColumns& texts, std::span<const int64_t> rows);
  // With known tokens, as vocabulary() gave them; of bpe none. Throws ValueError for tokens that begin with others.
  TokenRows(const TokenRowOptions& options, const Vocabulary& vocabulary);

  const TokenRowOptions& options() const { return options_; }
  // "<pad>", "<unk>", "<sep>", then words or characters; of bpe empty.
  const Vocabulary& vocabulary() const { return *vocabulary_; }
  int64_t size() const;                         // tokens are below it
  int64_t padding() const { return padding_; }  // 0; of bpe the tokenizer's "<pad>" or the like, else one more than its tokens

  struct Counts {
    int64_t rows = 0, cut = 0, tokens = 0, unknown = 0;
    std::string example{};  // the first that is unknown
  };
  // Writes the row of several texts, "<sep>" between them; where it is too long, the longest is cut first. Adds to `counts`.
  void encode(std::span<const std::string_view> texts, int64_t* to, Counts& counts) const;
  // How many words or characters a text has.
  static int64_t tokens_in(std::string_view text, Tokenizer tokenizer);
  // The text of a row, as its tokens have it.
  std::string decode(std::span<const int64_t> row) const;
  // "31 of 800 texts are longer and are cut; 420 of 30000 words (1.4 %) are not among them, such as \"zyx\""; "": neither.
  std::string describe(const Counts& counts) const;
  // The same for other programs: a file of the package `tokenizers` on PyPI, which gives the same rows for one text and for two.
  std::string tokenizer_json() const;
  // Do all texts have the same rows?
  friend bool operator==(const TokenRows& a, const TokenRows& b);

 private:
  void check_options(size_t columns) const;
  void find_special_tokens();
  std::vector<int64_t> numbers_of(std::string_view text, Counts& counts) const;

  TokenRowOptions options_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  int64_t padding_ = 0, between_ = -1;  // -1: nothing is between texts
};

}  // namespace halfstep
