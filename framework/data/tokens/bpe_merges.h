// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding of one word: its bytes become tokens; then the pair of neighbours whose merge has the lowest rank becomes one
// token, until no pair has a merge.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace halfstep {

// Finds std::string keys by std::string_view.
struct StringHash : std::hash<std::string_view> {
  using is_transparent = void;
};
template <class V>
using StringMap = std::unordered_map<std::string, V, StringHash, std::equal_to<>>;

// Returns the letter that tokenizer files write for a byte, so that every token is printable: '!' to '~' and most of Latin-1 are
// themselves, and the other bytes are U+0100 to U+0143 in order (GPT-2's bytes_to_unicode).
char32_t letter_of_byte(uint8_t byte);
// Returns the byte for which a letter is written; -1: none.
int byte_of_letter(char32_t letter);
// Returns the bytes of such a token; a token with any other letter is its own UTF-8, as in `tokenizers`.
std::string bytes_of_token(std::string_view token);

// Scratch memory of one encoding thread, with the words that it has encoded.
struct BpeScratch {
  struct Symbol {
    uint32_t token;
    int32_t previous, next;  // places of the neighbours; -1: none
    bool merged;             // whether it is part of the symbol before it
  };
  struct Candidate {
    uint32_t rank, token;
    int32_t position;
  };
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
  StringMap<std::vector<uint32_t>> words;
};

// The merges of a vocabulary.
class BpeMerges {
 public:
  struct Merge {
    uint32_t left, right, token;
  };  // its rank is its index in the list

  // byte_tokens: the token of each byte. whole: words, as bytes, that are tokens without a merge. Pairs must be unique.
  BpeMerges(const std::array<uint32_t, 256>& byte_tokens, const std::vector<Merge>& merges, StringMap<uint32_t> whole);

  // Appends the tokens of `word`, given as bytes.
  void encode(std::string_view word, BpeScratch& scratch, std::vector<int64_t>& out) const;

 private:
  struct Slot {
    uint64_t pair;
    uint32_t rank, token;
  };
  size_t find(uint32_t left, uint32_t right) const;
  void add_candidate(BpeScratch& scratch, int32_t at) const;  // for symbol `at` and the one behind it, if they merge
  void merge(std::string_view word, BpeScratch& scratch) const;

  std::array<uint32_t, 256> byte_tokens_;
  std::vector<Slot> slots_;  // a hash table with open addressing, because lookups dominate the time of encoding
  int shift_ = 0;            // 64 - log2(slots_.size())
  StringMap<uint32_t> whole_;
};

}  // namespace halfstep
