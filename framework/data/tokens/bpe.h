// SPDX-License-Identifier: Apache-2.0
// Byte-level byte-pair encoding: the tokenizer of GPT-2, RoBERTa, Llama 3, Qwen and others, from the files in which it is
// published.
//   const BpeTokenizer tokenizer = BpeTokenizer::load("gpt2/tokenizer.json");
//   std::vector<int64_t> ids = tokenizer.encode("Hello world");   // 15496, 995
//   std::string text = tokenizer.decode(ids);
// Ids and texts are those of the package `tokenizers` on PyPI; a file for which they would differ is refused when it is read.
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

// Copies share one vocabulary. All methods may be called from several threads at once.
class BpeTokenizer {
 public:
  explicit BpeTokenizer(TokenizerFile file);
  // A tokenizer.json, or a folder that has one, or that has vocab.json and merges.txt. Throws as read_tokenizer_json.
  static BpeTokenizer load(const std::filesystem::path& path);
  static BpeTokenizer load(const std::filesystem::path& vocab, const std::filesystem::path& merges,
                           const BpePairOptions& options = {});

  // The text of a tokenizer.json, and back.
  static BpeTokenizer from_json(std::string text);
  const std::string& json() const;

  int64_t size() const;  // ids are in [0, size)
  // Special tokens of the file that are in `text` become their ids. add_special_tokens: also those that the file puts around each
  // text, such as Llama's "<|begin_of_text|>"; GPT-2's file has none. Throws DataError for text that is not UTF-8.
  std::vector<int64_t> encode(std::string_view text, bool add_special_tokens = true) const;
  // The same ids as encode() without those around a text, some thousand at a time: for a text that is large.
  void encode_in_pieces(std::string_view text, const std::function<void(std::span<const int64_t>)>& f) const;
  // Tokens are pieces of bytes, so that a code point may be cut at either end: what is no UTF-8 becomes U+FFFD. Throws IndexError.
  std::string decode(std::span<const int64_t> ids, bool skip_special_tokens = true) const;
  // The bytes as they are: for text that is printed token by token.
  std::string bytes(std::span<const int64_t> ids, bool skip_special_tokens = true) const;

  const std::string& token(int64_t id) const;  // as the file writes it: " world" is "\u0120world". Throws IndexError
  int64_t id(std::string_view token) const;    // of a token as the file writes it; -1: there is none
  bool is_special(int64_t id) const;

 private:
  class ScratchPool;
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace halfstep
