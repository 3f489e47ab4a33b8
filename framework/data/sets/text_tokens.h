// SPDX-License-Identifier: Apache-2.0
// A text file as the numbers of its tokens, each in as few bytes as the vocabulary needs. Not a public header.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "framework/data/sets/text.h"

namespace halfstep {

struct TextTokens {
  std::variant<std::span<const uint8_t>, std::span<const uint16_t>, std::span<const uint32_t>> numbers;
  std::shared_ptr<const void> owner;  // owner of their memory, which may be the pages of the file
  Vocabulary vocabulary;
  int64_t size = 0;  // of the vocabulary; for files of tokens, one more than the largest
  DataNotes notes;
};

// Reads the tokens for TextDataset, before it takes a part. Remembered while ReadCache<const TextTokens> lives.
std::shared_ptr<const TextTokens> read_tokens(const std::filesystem::path& path, const TextOptions& options);

// Returns the tokens of a text, which must stay alive; the owner may be null. `label`: its name in errors.
TextTokens tokens_of_text(const FileText& text, const TextOptions& options, const std::string& label);

inline bool has_vocabulary(Tokenizer t) { return t == Tokenizer::character || t == Tokenizer::word; }

}  // namespace halfstep
