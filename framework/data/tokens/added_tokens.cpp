// SPDX-License-Identifier: Apache-2.0
#include "framework/data/tokens/added_tokens.h"

#include <algorithm>
#include <utility>

#include "framework/data/tokens/unicode.h"

namespace halfstep {

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::sort(tokens_.begin(), tokens_.end(), [](const AddedToken& a, const AddedToken& b) { return a.content < b.content; });
  for (const AddedToken& token : tokens_) begins_[uint8_t(token.content[0])] = true;
}

// Returns the longest token at `at`. The candidates that match the text so far are neighbours in the sorted list; each further
// byte narrows them down.
const AddedToken* AddedTokenFinder::longest_at(std::string_view text, size_t at) const {
  if (!begins_[uint8_t(text[at])]) return nullptr;
  const AddedToken* best = nullptr;
  auto first = tokens_.begin(), last = tokens_.end();
  for (size_t length = 0; at + length < text.size(); ++length) {
    const uint8_t byte = uint8_t(text[at + length]);
    const auto byte_of = [&](const AddedToken& t) { return t.content.size() > length ? int(uint8_t(t.content[length])) : -1; };
    first = std::partition_point(first, last, [&](const AddedToken& t) { return byte_of(t) < byte; });
    last = std::partition_point(first, last, [&](const AddedToken& t) { return byte_of(t) <= byte; });
    if (first == last) break;
    if (first->content.size() == length + 1) best = &*first;
  }
  return best;
}

size_t AddedTokenFinder::space_before(std::string_view text, size_t at, size_t least) {
  while (at > least) {
    size_t begin = at - 1;
    while (begin > least && (uint8_t(text[begin]) & 0xc0) == 0x80) --begin;
    const size_t bytes = utf8_length(text, begin);
    if (bytes == 0 || class_of(utf8_at(text, begin, bytes)) != PointClass::space) break;
    at = begin;
  }
  return at;
}

size_t AddedTokenFinder::space_after(std::string_view text, size_t at) {
  while (at < text.size()) {
    const size_t bytes = utf8_length(text, at);
    if (class_of(utf8_at(text, at, bytes)) != PointClass::space) break;
    at += bytes;
  }
  return at;
}

}  // namespace halfstep
