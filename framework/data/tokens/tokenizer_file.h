// SPDX-License-Identifier: Apache-2.0
// The files in which tokenizers of byte-level BPE are published: Hugging Face's tokenizer.json, and GPT-2's older pair of
// vocab.json and merges.txt. What a file asks for and this reader does not do is a DataError that names the part of the file, since
// a part that is passed over would give other ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "framework/data/tokens/added_tokens.h"
#include "framework/data/tokens/bpe_merges.h"
#include "framework/data/tokens/bpe_split.h"

namespace halfstep {

// How vocab.json and merges.txt are used, which do not say it themselves.
struct BpePairOptions {
  bool add_prefix_space = false;
  // Those that the vocabulary has are found in texts as they are, and decoding may leave them out, as transformers.GPT2Tokenizer
  // does.
  std::vector<std::string> special_tokens = {"<|endoftext|>"};
};

struct TokenizerFile {
  std::vector<std::string> tokens;  // by id, as the file writes them: the model's, then those that only added_tokens has
  size_t model_size = 0;            // how many are the model's
  std::vector<AddedToken> added;
  std::vector<BpeMerges::Merge> merges;
  std::vector<SplitRule> rules;
  bool nfc = false;                    // texts are brought into normal form C
  bool ignore_merges = false;          // a word that is a token needs no merges
  std::vector<int64_t> before, after;  // special tokens around a text
  std::string json;                    // as a tokenizer.json, so that it can be stored with a model
};

// Throw IoError for a file that cannot be read, and DataError for one that is damaged or asks for something else.
TokenizerFile read_tokenizer_json(const std::filesystem::path& path);
TokenizerFile parse_tokenizer_json(std::string text, const std::string& file);  // `file`: its name, for messages
TokenizerFile read_vocab_and_merges(const std::filesystem::path& vocab, const std::filesystem::path& merges,
                                    const BpePairOptions& options = {});

}  // namespace halfstep
