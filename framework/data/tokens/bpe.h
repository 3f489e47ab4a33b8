// SPDX-License-Identifier: Apache-2.0
// Byte-level byte-pair encoding: the tokenizer of GPT-2, RoBERTa, Llama 3, Qwen and others, from their published files.
//   const BpeTokenizer tokenizer = BpeTokenizer::load("gpt2/tokenizer.json");
//   std::vector<int64_t> ids = tokenizer.encode("Hello world");   // 15496, 995
//   std::string text = tokenizer.decode(ids);
// Ids and texts equal those of the package `tokenizers` on PyPI; a file for which they would differ is refused when it is read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/data/tokens/tokenizer_file.h"

namespace halfstep {

// A tokenizer. Copies share one vocabulary. All methods are thread-safe.
class BpeTokenizer {
 public:
  explicit BpeTokenizer(TokenizerFile file);
  // Reads a tokenizer.json, or a folder with one, or with vocab.json and merges.txt. Throws like read_tokenizer_json.
  static BpeTokenizer load(const std::filesystem::path& path);
  static BpeTokenizer load(const std::filesystem::path& vocab, const std::filesystem::path& merges,
                           const BpePairOptions& options = {});

  // Convert from and to the text of a tokenizer.json.
  static BpeTokenizer from_json(std::string text);
  const std::string& json() const;

  int64_t size() const;  // ids are in [0, size)
  // Encodes a text. Special tokens of the file that occur in `text` become their ids. add_special_tokens: adds those that the file
  // puts around each text, such as Llama's "<|begin_of_text|>"; GPT-2's file has none. Throws DataError for text that is not
  // UTF-8.
  std::vector<int64_t> encode(std::string_view text, bool add_special_tokens = true) const;
  // Calls f with the ids of encode(), without those around a text, some thousand at a time: for large texts.
  void encode_in_pieces(std::string_view text, const std::function<void(std::span<const int64_t>)>& f) const;
  // Decodes tokens. Tokens are pieces of bytes and may cut a code point at either end: invalid UTF-8 becomes U+FFFD. Throws
  // IndexError.
  std::string decode(std::span<const int64_t> ids, bool skip_special_tokens = true) const;
  // Returns the bytes unchanged, for text that is printed token by token.
  std::string bytes(std::span<const int64_t> ids, bool skip_special_tokens = true) const;

  const std::string& token(int64_t id) const;  // as in the file: " world" is "\u0120world". Throws IndexError
  int64_t id(std::string_view token) const;    // id of a token as in the file; -1: none
  bool is_special(int64_t id) const;

 private:
  class ScratchPool;
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace halfstep
