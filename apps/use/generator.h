// SPDX-License-Identifier: Apache-2.0
// Generates text with a trained language model.
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
  double temperature = 1;  // divides scores; 0: always the most probable token
  int64_t top_k = 0;       // number of tokens to choose from, most probable first; 0: all. Of equal ones the smaller numbers
  double top_p = 1;        // choose among the most probable tokens with this total probability
  uint64_t seed = 0;
  bool by_steps = true;  // false: read the whole window again for each token, even if the model could read token by token
};

// Returns the probability of each token: applies temperature, then top_k, then top_p to the rest. Throws ValueError for options
// outside their domain and for NaN scores.
std::vector<double> token_probabilities(std::span<const float> scores, const SamplingOptions& options);
// Returns the token at `place`, in [0, 1), of the cumulative probabilities.
int64_t token_at(std::span<const double> probabilities, double place);

// Converts tokens to text one by one: no piece ends within a UTF-8 code point, and invalid UTF-8 becomes U+FFFD.
class TokenText {
 public:
  explicit TokenText(const TextOptions& options) : options_(&options) {}
  std::string add(int64_t token);      // returns the text that is complete now
  std::string finish();                // the incomplete code point at the end
  void restart_after(std::string_view text);  // forgets what was added, and continues after this text

 private:
  const TextOptions* options_;
  std::string incomplete_;  // bytes of a code point so far
  bool is_spaced_ = true;   // words and numbers: nothing, or white space, precedes the next one
};

class TextSampler {
 public:
  // The model must outlive the sampler. Throws ConfigError for a model that is not a language model, ValueError for options
  // outside their domain.
  explicit TextSampler(Predictor& model, const SamplingOptions& options = {});

  // Reads the prompt, and forgets earlier text. For models of token files it is numbers separated by white space. If the prompt
  // has no token, the model starts after a line break, or after token 0 if the vocabulary has none. Throws DataError for text that
  // the vocabulary lacks, with its place: "prompt:1:5".
  void start(std::string_view prompt);
  // Returns the distinct words of a prompt that a vocabulary of words lacks: the model reads "<unk>" for them.
  std::vector<std::string> unknown_words(std::string_view prompt) const;
  // Returns the text of the next token, which may be empty: a token can end within a code point.
  std::string next();
  std::string finish() { return text_.finish(); }

  const std::vector<int64_t>& prompt() const { return prompt_; }  // tokens read
  const std::vector<int64_t>& tokens() const { return tokens_; }  // tokens sampled
  const SequenceReader& reader() const { return reader_; }

 private:
  std::vector<int64_t> encode(std::string_view prompt) const;
  const TextOptions& options_;
  SamplingOptions sampling_;
  SequenceReader reader_;
  TokenText text_;
  std::vector<int64_t> tokens_without_text_;  // they have scores, but the tokenizer lacks them
  std::vector<int64_t> prompt_, tokens_;
  std::vector<float> scores_;  // of the next token; empty: the last token has not been read yet
};

}  // namespace halfstep::app
