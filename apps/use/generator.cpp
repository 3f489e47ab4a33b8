// SPDX-License-Identifier: Apache-2.0
#include "apps/use/generator.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <variant>

#include "framework/base/text_stream.h"
#include "framework/data/sets/text_forms.h"
#include "framework/data/tokens/bpe.h"
#include "framework/data/tokens/unicode.h"
#include "framework/math/random.h"

namespace halfstep::app {
namespace {

constexpr const char* kGenerate = "generate";
constexpr float kNever = -std::numeric_limits<float>::infinity();

void check_options(const SamplingOptions& options) {
  check<ValueError>(std::isfinite(options.temperature) && options.temperature >= 0, kGenerate, "temperature must be >= 0, got ",
                    options.temperature);
  check<ValueError>(options.top_k >= 0, kGenerate, "top_k must be >= 0, got ", options.top_k);
  check<ValueError>(options.top_p > 0 && options.top_p <= 1, kGenerate, "top_p must be in (0, 1], got ", options.top_p);
}

bool has_numbers(const TextOptions& options) { return options.tokenizer == Tokenizer::u16 || options.tokenizer == Tokenizer::u32; }

const TextOptions& text_options(const Predictor& model) {
  const auto* const text = std::get_if<TextForm>(&model.form().source);
  check<ConfigError>(text != nullptr, kGenerate, model.checkpoint().string(), " is not a model of text",
                     Help{"halfstep predict answers with it"});
  return text->options;
}

std::vector<int64_t> tokens_without_text(const TextOptions& options) {
  std::vector<int64_t> out;
  for (int64_t t = 0; options.tokenizer == Tokenizer::bpe && t < options.vocab_size; ++t) {
    try {
      if (t < options.bpe->size())
        options.bpe->token(t);
      else
        out.push_back(t);
    } catch (const IndexError&) { out.push_back(t); }
  }
  return out;
}

// Parses "12 5 7".
std::vector<int64_t> numbers_in(std::string_view text, int64_t vocabulary) {
  std::vector<int64_t> out;
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  constexpr size_t kMostShown = 60;  // bytes of a word in the message
  for (size_t at = text.find_first_not_of(kSpace); at != text.npos; at = text.find_first_not_of(kSpace, at)) {
    const size_t end = std::min(text.find_first_of(kSpace, at), text.size());
    const std::string_view word = text.substr(at, end - at);
    int64_t number = -1;
    const auto [stop, fault] = std::from_chars(word.data(), word.data() + word.size(), number);
    check<DataError>(fault == std::errc() && stop == word.data() + word.size() && number >= 0 && number < vocabulary, kGenerate,
                     "prompt, number ", out.size() + 1, ": tokens must be whole numbers in 0..", vocabulary - 1, ", got \"",
                     word.substr(0, kMostShown), '"');
    out.push_back(number);
    at = end;
  }
  return out;
}

// Returns whether `bytes`, at most three, begin a code point that needs more.
bool begins_code_point(std::string_view bytes) {
  for (size_t more = 1; more <= 3; ++more) {
    for (const char fill : {'\x80', '\xBF'}) {  // smallest and largest continuation byte
      const std::string completed = std::string(bytes) + std::string(more, fill);
      if (utf8_length(completed, 0) == completed.size()) return true;
    }
  }
  return false;
}

bool ends_in_space(std::string_view text) { return text.empty() || std::string_view(" \t\r\n\v\f").find(text.back()) != text.npos; }

}  // namespace

std::vector<double> token_probabilities(std::span<const float> scores, const SamplingOptions& options) {
  check_options(options);
  check<ValueError>(!scores.empty() && std::none_of(scores.begin(), scores.end(), [](float s) { return std::isnan(s); }), kGenerate,
                    "the model's scores are NaN", Help{"its weights or its precision are at fault: --no-amp computes in float32"});
  std::vector<double> out(scores.size(), 0.0);
  const auto is_more_probable = [&](size_t a, size_t b) { return scores[a] != scores[b] ? scores[a] > scores[b] : a < b; };
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t(0));
  const size_t best = *std::min_element(order.begin(), order.end(), is_more_probable);
  if (options.temperature == 0 || !std::isfinite(scores[best])) {
    out[best] = 1;
    return out;
  }
  if (options.top_k > 0 && size_t(options.top_k) < order.size()) {
    std::nth_element(order.begin(), order.begin() + options.top_k, order.end(), is_more_probable);
    order.resize(size_t(options.top_k));
  }
  double sum = 0;
  for (const size_t i : order) sum += out[i] = std::exp((double(scores[i]) - double(scores[best])) / options.temperature);
  if (options.top_p < 1) {
    std::sort(order.begin(), order.end(), is_more_probable);
    double kept = 0;
    for (const size_t i : order) kept < options.top_p* sum ? void(kept += out[i]) : void(out[i] = 0);
    sum = kept;
  }
  for (double& p : out) p /= sum;
  return out;
}

int64_t token_at(std::span<const double> probabilities, double place) {
  double end = 0;
  int64_t last = 0;
  for (size_t i = 0; i < probabilities.size(); ++i) {
    if (probabilities[i] == 0) continue;
    end += probabilities[i];
    last = int64_t(i);
    if (place < end) break;
  }
  return last;
}

std::string TokenText::add(int64_t token) {
  const TextOptions& options = *options_;
  std::string piece = options.tokenizer == Tokenizer::byte ? std::string(1, char(token))
                      : options.tokenizer == Tokenizer::bpe
                          ? options.bpe->bytes(std::span(&token, 1), /*skip_special_tokens=*/false)
                      : has_numbers(options) ? std::to_string(token)
                                             : options.vocabulary.tokens().at(size_t(token));
  if (options.tokenizer == Tokenizer::word || has_numbers(options)) {
    if (!is_spaced_ && piece != "\n") piece.insert(0, 1, ' ');
    is_spaced_ = ends_in_space(piece);
    return piece;
  }
  incomplete_ += piece;
  for (size_t tail = std::min<size_t>(3, incomplete_.size()); tail > 0; --tail) {
    const size_t cut = incomplete_.size() - tail;
    if (begins_code_point(std::string_view(incomplete_).substr(cut)))
      return replace_not_utf8(std::exchange(incomplete_, incomplete_.substr(cut)).substr(0, cut));
  }
  return finish();
}

std::string TokenText::finish() { return replace_not_utf8(std::exchange(incomplete_, {})); }

void TokenText::restart_after(std::string_view text) {
  incomplete_.clear();
  is_spaced_ = ends_in_space(text);
}

TextSampler::TextSampler(Predictor& model, const SamplingOptions& options)
    : options_(text_options(model)),
      sampling_(options),
      reader_(*model.parts().model, {.seq_len = options_.seq_len,
                                     .vocabulary = model.form().vocabulary,
                                     .device = model.parts().device,
                                     .region = model.parts().region,
                                     .by_steps = options.by_steps}),
      text_(options_),
      tokens_without_text_(tokens_without_text(options_)) {
  check_options(options);
}

std::vector<int64_t> TextSampler::encode(std::string_view prompt) const {
  std::vector<int64_t> out =
      has_numbers(options_) ? numbers_in(prompt, options_.vocab_size)
                            : encode_text(fitted_text(prompt, options_).text, options_, "prompt");
  if (!out.empty()) return out;
  switch (options_.tokenizer) {
    case Tokenizer::byte: return {'\n'};
    case Tokenizer::bpe: out = options_.bpe->encode("\n", /*add_special_tokens=*/false); break;
    case Tokenizer::character:
    case Tokenizer::word: out = {std::max<int64_t>(0, options_.vocabulary.find("\n"))}; break;
    default: break;
  }
  return out.empty() ? std::vector<int64_t>{0} : out;
}

void TextSampler::start(std::string_view prompt) {
  std::vector<int64_t> tokens = encode(prompt);
  prompt_ = std::move(tokens);
  tokens_.clear();
  text_.restart_after(prompt);
  reader_.clear();
  scores_ = reader_.read(prompt_);
}

std::vector<std::string> TextSampler::unknown_words(std::string_view prompt) const {
  std::vector<std::string> out;
  if (options_.tokenizer != Tokenizer::word) return out;
  TextReader words{fitted_text(prompt, options_).text};
  for (std::string word; words >> word;) {
    if (options_.vocabulary.find(word) < 0 && std::find(out.begin(), out.end(), word) == out.end()) out.push_back(word);
  }
  return out;
}

std::string TextSampler::next() {
  check<ValueError>(!prompt_.empty(), kGenerate, "start(prompt) comes before next()");
  if (scores_.empty()) scores_ = reader_.read(std::span(tokens_).last(1));
  for (const int64_t t : tokens_without_text_) scores_[size_t(t)] = kNever;
  // Draw 53 bits that depend on the seed and the token's place alone.
  const math::Random4 r = math::philox(sampling_.seed, tokens_.size());
  const double place = (double(r.v[0] >> 5) * 0x1p26 + double(r.v[1] >> 6)) * 0x1p-53;
  tokens_.push_back(token_at(token_probabilities(scores_, sampling_), place));
  scores_.clear();
  return text_.add(tokens_.back());
}

}  // namespace halfstep::app
