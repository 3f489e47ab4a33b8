// SPDX-License-Identifier: Apache-2.0
// Finds tokens in a text, such as "<|endoftext|>", before it is split into words.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace halfstep {

// The fields of tokenizer.json. lstrip, rstrip: the token includes the white space before it, or after it. normalized: the token
// is normalized, and searched after the text was normalized; others are searched first. special: decoding may omit it.
struct AddedToken {
  int64_t id = 0;
  std::string content;
  bool special = false, lstrip = false, rstrip = false, normalized = false;
};

// Finds tokens from left to right, the longest at each place.
class AddedTokenFinder {
 public:
  AddedTokenFinder() = default;
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);  // contents must be unique and not empty

  // Calls between(text) for each nonempty part without a token, and found(id) for each token, in order.
  template <class Between, class Found>
  void split(std::string_view text, Between&& between, Found&& found) const {
    size_t done = 0;
    for (size_t at = 0; at < text.size() && !tokens_.empty();) {
      const AddedToken* const token = longest_at(text, at);
      if (!token) {
        ++at;
        continue;
      }
      const size_t after = at + token->content.size();
      const size_t begin = token->lstrip ? space_before(text, at, done) : at;
      if (begin > done) between(text.substr(done, begin - done));
      found(token->id);
      done = token->rstrip ? space_after(text, after) : after;
      at = after;  // the skipped white space may still begin another token, as in `tokenizers`
    }
    if (done < text.size()) between(text.substr(done));
  }

 private:
  const AddedToken* longest_at(std::string_view text, size_t at) const;
  static size_t space_before(std::string_view text, size_t at, size_t least);
  static size_t space_after(std::string_view text, size_t at);

  std::vector<AddedToken> tokens_;     // sorted by content
  std::array<bool, 256> begins_ = {};  // whether a token begins with this byte
};

}  // namespace halfstep
