// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding of one word: its bytes become tokens, and of all pairs of neighbours that have a merge the one of the lowest
// rank becomes one token, until no pair has a merge.
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

// The letters in which tokenizer files write bytes, so that every token is printable: '!' to '~' and most of Latin-1 are
// themselves, and the other bytes are U+0100 to U+0143 in order (GPT-2's bytes_to_unicode).
char32_t letter_of_byte(uint8_t byte);
int byte_of_letter(char32_t letter);  // -1: none
// The bytes of a token that is written so; a token with any other letter is taken as its own UTF-8, as `tokenizers` does.
std::string bytes_of_token(std::string_view token);

// What one thread needs while it encodes: memory, and the words that it met before.
struct BpeScratch {
  struct Symbol {
    uint32_t token;
    int32_t previous, next;  // places of the neighbours; -1: none
    bool merged;             // it is part of the symbol before it
  };
  struct Candidate {
    uint32_t rank, token;
    int32_t at;
  };
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
  StringMap<std::vector<uint32_t>> words;
};

class BpeMerges {
 public:
  struct Merge {
    uint32_t left, right, token;
  };  // its rank is its place in the list

  // byte_tokens: the token of each byte. whole: words, as bytes, that are a token without any merge. Pairs must be unique.
  BpeMerges(const std::array<uint32_t, 256>& byte_tokens, const std::vector<Merge>& merges, StringMap<uint32_t> whole);

  // Appends the tokens of `word`, which are bytes.
  void encode(std::string_view word, BpeScratch& scratch, std::vector<int64_t>& out) const;

 private:
  struct Slot {
    uint64_t pair;
    uint32_t rank, token;
  };
  size_t find(uint32_t left, uint32_t right) const;
  void add_candidate(BpeScratch& scratch, int32_t at) const;
  void merge(std::string_view word, BpeScratch& scratch) const;

  std::array<uint32_t, 256> byte_tokens_;
  std::vector<Slot> slots_;  // a hash table with open addressing: the lookup is what encoding waits for
  int shift_ = 0;            // 64 - log2(slots_.size())
  StringMap<uint32_t> whole_;
};

}  // namespace halfstep
