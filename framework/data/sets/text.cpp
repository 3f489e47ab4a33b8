// SPDX-License-Identifier: Apache-2.0
#include "framework/data/sets/text.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "framework/base/check.h"
#include "framework/base/list_text.h"
#include "framework/data/sets/text_tokens.h"
#include "framework/data/tokens/bpe.h"
#include "framework/data/transforms/data_form.h"
#include "framework/tensor/storage.h"

namespace halfstep {
namespace {

constexpr const char* kText = "Text";

// Returns the tokens [begin, end) of a part. Rounds so that 0.3 of 10 is 3, as in split_indices.
template <class T>
std::span<const T> part_in(std::span<const T> all, const TextOptions& o) {
  constexpr double kRounding = 1e-9;
  const double n = double(all.size());
  const auto at = [&](double fraction) { return std::min(all.size(), size_t(std::floor(fraction * n + kRounding * n))); };
  return all.subspan(at(o.begin), at(o.end) - at(o.begin));
}

// Checks that the tokens of a file of tokens are below vocab_size. size: one more than the largest.
template <class T>
void check_tokens(const std::string& path, std::span<const T> all, int64_t size, int64_t vocab_size) {
  if (vocab_size == 0 || size <= vocab_size) return;
  const auto first = std::find_if(all.begin(), all.end(), [&](T t) { return int64_t(t) >= vocab_size; });
  fail<DataError>(kText, path, ": tokens must be below vocab_size ", vocab_size, ", but token ", first - all.begin(), " is ",
                  size - 1, Help{"give the vocab_size of the tokenizer that wrote the file; is it u16 or u32?"});
}

}  // namespace

Tokenizer parse_tokenizer(std::string_view text) {
  Tokenizer out{};
  check<ValueError>(OptionMember<Tokenizer>::put(out, std::string(text)), kText, "the tokenizer must be ",
                    one_of(OptionMember<Tokenizer>::words()), ", got \"", text, '"');
  return out;
}
std::string_view name(Tokenizer tokenizer) { return OptionNames<Tokenizer>::kNames[size_t(tokenizer)]; }

bool OptionMember<Vocabulary>::put(Vocabulary& member, const OptionValue& value) {
  std::vector<std::string> tokens;
  return OptionMember<std::vector<std::string>>::put(tokens, value) && (member = Vocabulary(std::move(tokens)), true);
}

HALFSTEP_OPTIONS(
    TextOptions,
    option("tokenizer", &O::tokenizer,
           "characters (UTF-8), bytes, words between white space, a file of such tokens, little-endian, or those of "
           "tokenizer_file"),
    encoding_of(&O::encoding), range_of_file<O>(), option("seq_len", &O::seq_len, "tokens of a piece").at_least(1).at_most(1 << 24),
    option("vocabulary", &O::vocabulary,
           "characters or words by number; empty: those of the training data's file, stored in the run's config")
        .of("a token"),
    option("vocab_size", &O::vocab_size,
           "of u16, u32 and bpe: number of different tokens; left out: that of the training data, or of the tokenizer")
        .at_least(1)
        .or_zero(),
    option("max_words", &O::max_words, "of words: keep this number of the most frequent, others become <unk>; 0: all").at_least(0))

Vocabulary::Vocabulary(std::vector<std::string> tokens) : tokens_(std::move(tokens)) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const bool added = numbers_.emplace(tokens_[i], int64_t(i)).second;
    check<ValueError>(added, kText, "a vocabulary must have each token once, got \"", tokens_[i], "\" twice");
  }
}

Vocabulary Vocabulary::of_file(const std::filesystem::path& path, Tokenizer tokenizer, int64_t max_words, TextEncoding encoding) {
  if (!has_vocabulary(tokenizer)) return Vocabulary();
  return read_tokens(path, {.tokenizer = tokenizer, .max_words = max_words, .encoding = encoding})->vocabulary;
}

int64_t Vocabulary::find(std::string_view token) const {
  const auto found = numbers_.find(token);
  return found == numbers_.end() ? -1 : found->second;
}

std::vector<int64_t> encode_text(std::string_view text, const TextOptions& options, const std::string& label) {
  check<ValueError>(options.tokenizer != Tokenizer::u16 && options.tokenizer != Tokenizer::u32, kText,
                    "a file of tokens does not say what its tokens mean");
  const TextTokens tokens = tokens_of_text({text, {}, false}, options, label);
  return std::visit([](const auto& all) { return std::vector<int64_t>(all.begin(), all.end()); }, tokens.numbers);
}

TextDataset::TextDataset(const std::filesystem::path& path, const TextOptions& options)
    : label_("Text " + path.string()), options_(options) {
  TextOptions& o = options_;
  check_options(kText, o);
  check<ValueError>(o.streams >= 0, kText, "streams must not be negative, got ", o.streams);
  check_range(kText, o.begin, o.end);
  check<ValueError>(o.tokenizer != Tokenizer::bpe || o.bpe, kText, "tokenizer \"bpe\" needs a tokenizer",
                    Help{"BpeTokenizer::load reads one from its file"});
  const std::string file = path.string();
  tokens_ = read_tokens(path, o);
  notes_ = tokens_->notes;
  o.vocabulary = tokens_->vocabulary;
  const bool is_token_file = o.tokenizer == Tokenizer::u16 || o.tokenizer == Tokenizer::u32;
  int64_t total = 0, part_tokens = 0;
  std::visit(
      [&](const auto& all) {
        if (is_token_file) check_tokens(file, all, tokens_->size, o.vocab_size);
        const auto part = part_in(all, o);
        total = int64_t(all.size()), part_tokens = int64_t(part.size());
        part_ = part;
      },
      tokens_->numbers);
  if (is_token_file && o.vocab_size == 0) o.vocab_size = tokens_->size;
  vocab_size_ = is_token_file ? o.vocab_size : tokens_->size;
  pieces_ = (part_tokens - 1) / o.seq_len / std::max<int64_t>(1, o.streams);
  check<DataError>(
      part_tokens > o.seq_len && pieces_ >= 1, kText, file, ": the part [", o.begin, ", ", o.end, ") has ", part_tokens,
      " of the file's ", total, " tokens, which is less than ", std::max<int64_t>(1, o.streams),
      o.streams > 1 ? " streams" : " piece", " of seq_len ", o.seq_len, " and one token more",
      Help{o.streams > 1 ? "a smaller batch_size makes fewer streams; or a smaller seq_len" : "a smaller seq_len would do"});
}

Batch TextDataset::batch(std::span<const int64_t> indices) const {
  const MemoryScope scope(MemoryTag::data);
  const int64_t length = options_.seq_len, streams = std::max<int64_t>(1, options_.streams);
  const TensorOptions tokens{.dtype = DType::i64, .device = Device::cpu};
  const Shape shape{int64_t(indices.size()), length};
  const Batch out{Tensor::empty(shape, tokens), Tensor::empty(shape, tokens)};
  int64_t *input = out.input.data_ptr<int64_t>(), *target = out.target.data_ptr<int64_t>();
  std::visit(
      [&](const auto& part) {
        for (const int64_t i : indices) {
          check<IndexError>(i >= 0 && i < size(), kText, "a sample index must be in [0, ", size(), "), got ", i);
          const auto* const from = part.data() + (i % streams * pieces_ + i / streams) * length;
          input = std::copy_n(from, length, input);
          target = std::copy_n(from + 1, length, target);
        }
      },
      part_);
  return out;
}

DataForm TextDataset::form() const {
  DataForm out = Dataset::form();
  out.names = options_.vocabulary.tokens();
  out.source = TextForm{options_};
  return out;
}

std::string TextDataset::describe() const {
  return joined(label_, ": ", size(), " pieces of ", options_.seq_len, " tokens",
                options_.streams > 0 ? joined(" in ", options_.streams, " streams") : "", ", tokenizer ", name(options_.tokenizer),
                ", ", vocab_size_, " in the vocabulary");
}

std::string TextDataset::decode(std::span<const int64_t> tokens) const {
  if (options_.tokenizer == Tokenizer::bpe) return options_.bpe->decode(tokens, /*skip_special_tokens=*/false);
  std::string out;
  for (const int64_t t : tokens) {
    check<IndexError>(t >= 0 && t < vocab_size_, kText, "a token must be in [0, ", vocab_size_, "), got ", t);
    if (options_.tokenizer == Tokenizer::byte) {
      out += char(t);
      continue;
    }
    const std::string token = has_vocabulary(options_.tokenizer) ? options_.vocabulary.tokens()[size_t(t)] : std::to_string(t);
    const bool needs_space = options_.tokenizer != Tokenizer::character && !out.empty() && out.back() != '\n' && token != "\n";
    out += (needs_space ? " " : "") + token;
  }
  return out;
}

}  // namespace halfstep
