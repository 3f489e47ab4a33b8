// SPDX-License-Identifier: Apache-2.0
// The files of a tokenizer. An even first byte: a tokenizer.json, and after a line "=====" a text. An odd one: vocab.json,
// merges.txt and a text. Files whose vocabulary lacks a byte are refused, and so that damages seldom make one, the harness writes
// the 256 tokens of the bytes itself, where the input has the word BYTES. With merges.txt the text must come back.
#include <string>
#include <string_view>
#include <vector>

#include "framework/data/tokens/bpe.h"
#include "framework/data/tokens/unicode.h"
#include "tests/fuzz/fuzz.h"

namespace {

// `json` with 256 tokens, of ids 0 to 255, in place of the first BYTES.
std::string with_bytes(std::string_view json) {
  constexpr std::string_view kMark = "BYTES";
  std::string out(json);
  const size_t at = out.find(kMark);
  if (at == std::string::npos) return out;
  std::string all;
  for (int byte = 0; byte < 256; ++byte) {
    std::string letter;
    halfstep::append_utf8(letter, halfstep::letter_of_byte(uint8_t(byte)));
    all +=
        (byte ? ",\"" : "\"") + std::string(letter == "\"" || letter == "\\" ? "\\" : "") + letter + "\":" + std::to_string(byte);
  }
  return out.replace(at, kMark.size(), all);
}

}  // namespace

HALFSTEP_FUZZ_HARNESS(tokenizer) {
  using namespace halfstep;
  if (size < 1) return 0;
  const bool pair = (data[0] & 1) != 0;
  const auto parts = fuzz::parts(fuzz::text_of(data + 1, size - 1), pair ? 3 : 2);
  const fuzz::MemoryFile first(with_bytes(parts[0])), merges(parts[1]);
  const std::string_view text = parts.back();
  fuzz::typed([&] {
    const BpeTokenizer tokenizer = pair ? BpeTokenizer::load(first.path(), merges.path(), {.add_prefix_space = (data[0] & 2) != 0})
                                        : BpeTokenizer::load(first.path());
    for (int64_t id = 0; id < tokenizer.size(); ++id) tokenizer.decode(std::vector<int64_t>{id}, false);
    const std::vector<int64_t> ids = tokenizer.encode(text, false);
    const std::string again = tokenizer.decode(ids, false);
    for (const int64_t id : ids)
      if (id < 0 || id >= tokenizer.size()) fuzz::found("an id out of range");
    if (pair && (data[0] & 2) == 0 && again != text) fuzz::found("another text comes back", again);
  });
  return 0;
}
