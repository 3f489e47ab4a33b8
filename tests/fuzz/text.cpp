// SPDX-License-Identifier: Apache-2.0
// A text file. The first byte chooses the tokenizer and the encoding, the second the pieces.
#include "framework/data/sets/text.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "tests/fuzz/fuzz.h"

HALFSTEP_FUZZ_HARNESS(text) {
  using namespace halfstep;
  if (size < 2) return 0;
  TextOptions options;
  options.tokenizer = Tokenizer(data[0] % 5);  // all but bpe, whose files have a harness of their own
  options.encoding = TextEncoding(data[0] / 5 % std::size(OptionNames<TextEncoding>::kNames));
  options.seq_len = 1 + data[1] % 4;
  options.streams = data[1] / 4 % 3;
  options.max_words = data[1] & 64 ? 2 : 0;
  options.vocab_size = options.tokenizer >= Tokenizer::u16 && (data[1] & 16) ? 300 : 0;
  if (data[1] & 32) options.begin = 0.25, options.end = 0.75;
  const fuzz::MemoryFile file(fuzz::text_of(data + 2, size - 2));
  fuzz::typed([&] {
    const TextDataset set(file.path(), options);
    const Batch last = set.batch(std::vector<int64_t>{set.size() - 1});
    const std::vector<int64_t> tokens = last.target.to_vector<int64_t>();
    if (int64_t(tokens.size()) != options.seq_len) fuzz::found("a piece of another length");
    if (std::any_of(tokens.begin(), tokens.end(), [&](int64_t t) { return t < 0 || t >= set.vocabulary(); }))
      fuzz::found("a token beyond the vocabulary");
    if (options.tokenizer == Tokenizer::character || options.tokenizer == Tokenizer::byte)
      if (set.encode(set.decode(tokens)) != tokens) fuzz::found("other tokens come back");
    TextOptions held_out = options;
    held_out.vocabulary = set.tokens();
    TextDataset(file.path(), held_out);  // what is in the file is in its vocabulary
  });
  return 0;
}
