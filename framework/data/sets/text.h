// SPDX-License-Identifier: Apache-2.0
// Text as numbers: characters, bytes, words, the tokens of a published tokenizer, or a file of tokens from another program. A
// sample is a piece of the text, and its target the same piece shifted by one token.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "framework/data/formats/text_file.h"
#include "framework/data/sets/dataset.h"

namespace halfstep {

class BpeTokenizer;  // framework/data/tokens/bpe.h
struct TextTokens;   // framework/data/sets/text_tokens.h

// character: a UTF-8 code point. byte: 0 to 255, of any file. word: the text between white space, and each line's end. u16, u32:
// the file already has tokens, little-endian, as llm.c and nanoGPT write them. bpe: the tokens of TextOptions::bpe.
enum class Tokenizer : uint8_t { character, byte, word, u16, u32, bpe };
HALFSTEP_OPTION_NAMES(Tokenizer, "char", "byte", "word", "u16", "u32", "bpe");
Tokenizer parse_tokenizer(std::string_view text);  // throws ValueError
std::string_view name(Tokenizer tokenizer);

// The tokens of a text by number. Characters are sorted by code point, words by frequency after "<unk>", which replaces every
// other word. Empty for the other tokenizers: bytes and files of tokens have only numbers, and a BpeTokenizer has its own list.
class Vocabulary {
 public:
  Vocabulary() = default;
  explicit Vocabulary(std::vector<std::string> tokens);  // throws ValueError for duplicates
  // Returns the tokens of a file. max_words > 0: only the most frequent words, up to this many. Throws IoError, and DataError with
  // line and byte for text that is not UTF-8.
  static Vocabulary of_file(const std::filesystem::path& path, Tokenizer tokenizer, int64_t max_words = 0,
                            TextEncoding encoding = TextEncoding::utf8);

  int64_t size() const { return int64_t(tokens_.size()); }
  const std::vector<std::string>& tokens() const { return tokens_; }
  // Returns the number of a token; -1 if there is none.
  int64_t find(std::string_view token) const;

 private:
  struct TokenHash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int64_t, TokenHash, std::equal_to<>> numbers_;
};

template <>
struct OptionMember<Vocabulary> {
  static constexpr OptionKind kKind = OptionKind::texts;
  static OptionValue get(const Vocabulary& member) { return member.tokens(); }
  static bool put(Vocabulary& member, const OptionValue& value);
};

struct TextOptions {
  Tokenizer tokenizer = Tokenizer::character;
  int64_t seq_len = 128;      // tokens per sample
  double begin = 0, end = 1;  // part of the file, by tokens: [floor(begin n), floor(end n))
  // More than 0: the part is cut into this many streams of equal length, and sample i is the next piece of stream i % streams; see
  // Dataset::streams(). 0: sample i is the i-th piece.
  int64_t streams = 0;
  Vocabulary vocabulary{};  // of characters and words; empty: that of the whole file, whatever the part
  int64_t vocab_size = 0;   // of u16 and u32 tokens; 0: one more than the file's largest. Of bpe; 0: the tokenizer's
  int64_t max_words = 0;    // see Vocabulary::of_file
  TextEncoding encoding = TextEncoding::utf8;  // of the file; not for bytes and files of tokens
  // For bpe. Special tokens in the text become their ids, but none are added around it.
  std::shared_ptr<const BpeTokenizer> bpe{};
  static const OptionList<TextOptions>& list();
};

// Encodes a text as a data set with these options would. `label` names the text in errors. Throws like TextDataset, and ValueError
// for u16 and u32, whose numbers have no known meaning.
std::vector<int64_t> encode_text(std::string_view text, const TextOptions& options, const std::string& label = "text");

// Inputs i64 [seq_len] and targets i64 [seq_len] with the next tokens: a model has a score for each token at every position. A
// token takes 1, 2 or 4 bytes of memory, as the vocabulary requires; large files of bytes and of tokens take none, because they
// are mapped. The rest after the last whole piece of the part, or of its streams, is not read.
class TextDataset : public Dataset {
 public:
  // Throws IoError if the file cannot be read; ValueError for options out of range; DataError for text that is not UTF-8, a
  // character that the vocabulary lacks, a file of tokens of odd length, a token beyond vocab_size, and a part shorter than one
  // piece of each stream.
  explicit TextDataset(const std::filesystem::path& path, const TextOptions& options = {});

  int64_t size() const override { return pieces_ * (options_.streams > 0 ? options_.streams : 1); }
  Shape input_shape() const override { return {options_.seq_len}; }
  Shape target_shape() const override { return {options_.seq_len}; }
  int64_t classes() const override { return vocab_size_; }
  DType input_dtype() const override { return DType::i64; }
  int64_t vocabulary() const override { return vocab_size_; }
  int64_t streams() const override { return options_.streams; }
  Batch batch(std::span<const int64_t> indices) const override;
  std::string describe() const override;
  DataNotes notes() const override { return notes_; }
  DataForm form() const override;

  const Vocabulary& tokens() const { return options_.vocabulary; }
  std::vector<int64_t> encode(std::string_view text) const { return encode_text(text, options_); }
  // Returns the text of tokens; of u16 and u32 the numbers, with spaces between; of bpe with special tokens.
  std::string decode(std::span<const int64_t> tokens) const;

 private:
  DataNotes notes_;
  std::string label_;
  TextOptions options_;
  int64_t vocab_size_ = 0;
  std::shared_ptr<const TextTokens> tokens_;  // of the whole file, shared by its parts
  std::variant<std::span<const uint8_t>, std::span<const uint16_t>, std::span<const uint32_t>> part_;
  int64_t pieces_ = 0;  // per stream
};

}  // namespace halfstep
