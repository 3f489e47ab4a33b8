// SPDX-License-Identifier: Apache-2.0
// Reads published tokenizers of byte-level BPE: Hugging Face's tokenizer.json, and GPT-2's older pair of vocab.json and
// merges.txt. Throws DataError for an unsupported part of a file, because ignoring it would give other ids.
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

// How to use vocab.json and merges.txt, which lack these options.
struct BpePairOptions {
  bool add_prefix_space = false;
  // Those in the vocabulary are found in texts unsplit, and decoding may omit them, as in transformers.GPT2Tokenizer.
  std::vector<std::string> special_tokens = {"<|endoftext|>"};
};

struct TokenizerFile {
  std::vector<std::string> tokens;  // by id, as in the file: the model's, then those only in added_tokens
  size_t model_size = 0;            // number of the model's tokens
  std::vector<AddedToken> added;
  std::vector<BpeMerges::Merge> merges;
  std::vector<SplitRule> rules;
  bool nfc = false;                    // whether texts are converted to normal form C
  bool ignore_merges = false;          // whether a word that is a token needs no merges
  std::vector<int64_t> before, after;  // special tokens around a text
  std::string json;                    // as a tokenizer.json, to be stored with a model
};

// Throw IoError for an unreadable file, and DataError for one that is damaged or needs something unsupported.
TokenizerFile read_tokenizer_json(const std::filesystem::path& path);
TokenizerFile parse_tokenizer_json(std::string text, const std::string& file);  // file: name for messages
TokenizerFile read_vocab_and_merges(const std::filesystem::path& vocab, const std::filesystem::path& merges,
                                    const BpePairOptions& options = {});

}  // namespace halfstep
