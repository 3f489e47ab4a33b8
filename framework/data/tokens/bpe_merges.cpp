// SPDX-License-Identifier: Apache-2.0
#include "framework/data/tokens/bpe_merges.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "framework/base/check.h"
#include "framework/data/tokens/unicode.h"

namespace halfstep {
namespace {

constexpr uint64_t kNoPair = ~uint64_t(0);
constexpr size_t kCachedWords = 1 << 15;
constexpr size_t kCachedBytes = 64;     // of a cached word; longer ones hardly repeat
constexpr size_t kKeptBytes = 1 << 16;  // of a word whose scratch memory is kept

constexpr bool is_own_letter(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
}

// The letter of each byte, and the byte of each letter; -1: none. The last letter is U+0143.
struct Letters {
  std::array<char32_t, 256> letter{};
  std::array<int16_t, 0x144> byte{};
  constexpr Letters() {
    for (int16_t& b : byte) b = -1;
    char32_t next = 256;
    for (int b = 0; b < 256; ++b) {
      letter[size_t(b)] = is_own_letter(b) ? char32_t(b) : next++;
      byte[letter[size_t(b)]] = int16_t(b);
    }
  }
};
constexpr Letters kByteLetters;

// Returns whether a comes after b: the lowest rank is first, and among equal ranks the leftmost.
bool comes_later(const BpeScratch::Candidate& a, const BpeScratch::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
}

}  // namespace

char32_t letter_of_byte(uint8_t byte) { return kByteLetters.letter[byte]; }
int byte_of_letter(char32_t letter) { return letter < kByteLetters.byte.size() ? kByteLetters.byte[letter] : -1; }

std::string bytes_of_token(std::string_view token) {
  std::string out;
  for (size_t at = 0, bytes = 0; at < token.size(); at += bytes) {
    bytes = utf8_length(token, at);
    const int byte = bytes == 0 ? -1 : byte_of_letter(utf8_at(token, at, bytes));
    if (byte < 0) return std::string(token);
    out += char(byte);
  }
  return out;
}

BpeMerges::BpeMerges(const std::array<uint32_t, 256>& byte_tokens, const std::vector<Merge>& merges, StringMap<uint32_t> whole)
    : byte_tokens_(byte_tokens), whole_(std::move(whole)) {
  const size_t size = std::bit_ceil(2 * merges.size() + 2);
  shift_ = 64 - std::countr_zero(size);
  slots_.assign(size, {kNoPair, 0, 0});
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right, token] = merges[rank];
    slots_[find(left, right)] = {uint64_t(left) << 32 | right, uint32_t(rank), token};
  }
}

// Returns the slot of the pair, or the empty slot where it would be.
size_t BpeMerges::find(uint32_t left, uint32_t right) const {
  const uint64_t pair = uint64_t(left) << 32 | right;
  constexpr uint64_t kGoldenRatio = 0x9e3779b97f4a7c15;  // of 2^64: Fibonacci hashing
  size_t at = size_t(pair * kGoldenRatio >> shift_);
  while (slots_[at].pair != pair && slots_[at].pair != kNoPair) at = (at + 1) & (slots_.size() - 1);
  return at;
}

void BpeMerges::add_candidate(BpeScratch& scratch, int32_t at) const {
  const auto& symbol = scratch.symbols[size_t(at)];
  const Slot& found = slots_[find(symbol.token, scratch.symbols[size_t(symbol.next)].token)];
  if (found.pair == kNoPair) return;
  scratch.heap.push_back({found.rank, found.token, at});
  std::push_heap(scratch.heap.begin(), scratch.heap.end(), comes_later);
}

// Merges with a heap, so a word of n bytes takes n log n steps, whatever its content. A candidate may be out of date when its turn
// comes: as in `tokenizers`, it counts if its place and its right neighbour still merge to the same token.
void BpeMerges::merge(std::string_view word, BpeScratch& scratch) const {
  auto& symbols = scratch.symbols;
  check<ValueError>(word.size() < size_t(1) << 31, "BpeTokenizer", "a word must have less than 2^31 bytes, got ", word.size());
  const int32_t count = int32_t(word.size());
  symbols.clear();
  scratch.heap.clear();
  for (int32_t i = 0; i < count; ++i)
    symbols.push_back({byte_tokens_[uint8_t(word[size_t(i)])], i - 1, i + 1 < count ? i + 1 : -1, false});
  for (int32_t i = 0; i + 1 < count; ++i) add_candidate(scratch, i);
  while (!scratch.heap.empty()) {
    std::pop_heap(scratch.heap.begin(), scratch.heap.end(), comes_later);
    const BpeScratch::Candidate top = scratch.heap.back();
    scratch.heap.pop_back();
    auto& symbol = symbols[size_t(top.position)];
    if (symbol.merged || symbol.next < 0) continue;
    auto& right = symbols[size_t(symbol.next)];
    const Slot& found = slots_[find(symbol.token, right.token)];
    if (found.pair == kNoPair || found.token != top.token) continue;
    symbol.token = top.token;
    symbol.next = right.next;
    right.merged = true;
    if (symbol.next >= 0) {
      symbols[size_t(symbol.next)].previous = top.position;
      add_candidate(scratch, top.position);
    }
    if (symbol.previous >= 0) add_candidate(scratch, symbol.previous);
  }
}

void BpeMerges::encode(std::string_view word, BpeScratch& scratch, std::vector<int64_t>& out) const {
  if (const auto found = whole_.find(word); found != whole_.end()) return out.push_back(found->second);
  if (const auto known = scratch.words.find(word); known != scratch.words.end()) {
    out.insert(out.end(), known->second.begin(), known->second.end());
    return;
  }
  merge(word, scratch);
  const size_t before = out.size();
  for (const BpeScratch::Symbol& symbol : scratch.symbols)
    if (!symbol.merged) out.push_back(symbol.token);
  if (word.size() > kCachedBytes) {
    if (word.size() > kKeptBytes) scratch.symbols = {}, scratch.heap = {};  // frees the memory of a rare long word
    return;
  }
  if (scratch.words.size() >= kCachedWords) scratch.words.clear();
  scratch.words.emplace(word, std::vector<uint32_t>(out.begin() + std::ptrdiff_t(before), out.end()));
}

}  // namespace halfstep
