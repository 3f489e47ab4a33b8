// SPDX-License-Identifier: Apache-2.0
// Writes text with a trained model of text.
//
//   Predictor model("runs/shakespeare");
//   TextSampler sampler(model, {.temperature = 0.8, .top_k = 40, .seed = 1});
//   sampler.start("ROMEO:");
//   for (int i = 0; i < 500; ++i) std::cout << sampler.next() << std::flush;
//   std::cout << sampler.finish();
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/use/predictor.h"
#include "apps/use/sequence_reader.h"
#include "framework/data/sets/text.h"

namespace halfstep::app {

struct SamplingOptions {
  double temperature = 1;  // scores are divided by it; 0: always the most probable token
  int64_t top_k = 0;       // only so many tokens, the most probable ones; 0: all. Of equal ones those with the smaller number
  double top_p = 1;        // only the most probable tokens whose probabilities together reach it
  uint64_t seed = 0;
  bool by_steps = true;  // false: the whole window again for each token, also where the model could read token by token
};

// The probability of each token: temperature first, then top_k, then top_p of what is left. Throws ValueError for options outside
// their domain and for scores that are NaN.
std::vector<double> token_probabilities(std::span<const float> scores, const SamplingOptions& options);
// The token at `place`, in [0, 1), of the probabilities laid end to end.
int64_t token_at(std::span<const double> probabilities, double place);

// Tokens as text, one by one: no piece ends within a code point of UTF-8, and what is no UTF-8 becomes U+FFFD.
class TokenText {
 public:
  explicit TokenText(const TextOptions& options) : options_(&options) {}
  std::string add(int64_t token);
  std::string finish();                   // what was waiting for the rest of its code point
  void follow(std::string_view text);     // the next token comes after this text

 private:
  const TextOptions* options_;
  std::string waiting_;
  bool spaced_ = true;  // words and numbers: nothing, or white space, is before the next one
};

class TextSampler {
 public:
  // The model must outlive the sampler. Throws ConfigError for a model that is not of text, ValueError for options outside their
  // domain.
  explicit TextSampler(Predictor& model, const SamplingOptions& options = {});

  // Reads the prompt, and forgets what was there before. Of token files it is their numbers with white space between. Where it has
  // no token, the model begins behind a line's end, or behind token 0 if the vocabulary has none. Throws DataError for what the
  // vocabulary does not have, with its place: "prompt:1:5".
  void start(std::string_view prompt);
  // Words of a prompt, each once, that a vocabulary of words does not have: the model reads "<unk>" for them.
  std::vector<std::string> unknown_words(std::string_view prompt) const;
  // The text of the next token. It may be empty: a token can end within a code point.
  std::string next();
  std::string finish() { return text_.finish(); }

  const std::vector<int64_t>& prompt() const { return prompt_; }  // tokens that were read
  const std::vector<int64_t>& tokens() const { return tokens_; }  // that were sampled
  const SequenceReader& reader() const { return reader_; }

 private:
  std::vector<int64_t> encode(std::string_view prompt) const;
  const TextOptions& options_;
  SamplingOptions sampling_;
  SequenceReader reader_;
  TokenText text_;
  std::vector<int64_t> textless_;  // tokens that the model has scores for, but the tokenizer no text
  std::vector<int64_t> prompt_, tokens_;
  std::vector<float> scores_;  // of the next token; empty: the last token has not been read yet
};

}  // namespace halfstep::app
