// SPDX-License-Identifier: Apache-2.0
#include "framework/data/text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "framework/base/check.h"
#include "framework/data/bpe.h"
#include "framework/data/form.h"
#include "framework/data/unicode.h"
#include "framework/io/atomic_file.h"
#include "framework/io/gzip.h"
#include "framework/io/other_file.h"
#include "framework/tensor/storage.h"

namespace halfstep {
namespace {

constexpr const char* kText = "Text";
constexpr const char* kUnknown = "<unk>";
constexpr std::array<std::pair<std::string_view, Tokenizer>, 6> kNames = {{{"char", Tokenizer::character},
                                                                           {"byte", Tokenizer::byte},
                                                                           {"word", Tokenizer::word},
                                                                           {"u16", Tokenizer::u16},
                                                                           {"u32", Tokenizer::u32},
                                                                           {"bpe", Tokenizer::bpe}}};

bool is_text(Tokenizer t) { return t == Tokenizer::character || t == Tokenizer::word; }
bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f'; }

[[noreturn]] void fail_not_utf8(const std::string& path, std::string_view text, size_t at) {
  fail<DataError>(kText, place_in_text(path, text, at), ": the text must be UTF-8, but this byte is ", int(uint8_t(text[at])),
                  Help{joined("tokenizer \"byte\" reads any file; ", not_utf8_help(text, at, path))});
}

// A token with a NUL character could not be stored with the model and read again.
void check_no_nul(const std::string& path, std::string_view text) {
  const size_t nul = text.find('\0');
  if (nul == text.npos) return;
  const std::string name = std::filesystem::path(path).filename().string();
  fail<DataError>(kText, place_in_text(path, text, nul), ": the text must not hold a NUL character",
                  Help{joined("tokenizer \"byte\" reads any file; tr -d '\\000' < ", name, " > new-", name, " removes them")});
}

// The file as its tokenizer reads it. Bytes and tokens are not text: only a file whose name says so is unpacked.
std::string read_as(const std::filesystem::path& path, const TextOptions& o, DataNotes& notes) {
  if (is_text(o.tokenizer) || o.tokenizer == Tokenizer::bpe) {
    std::string text = read_text_file(path, o.encoding, kText, /*tables=*/false, notes);
    if (o.tokenizer != Tokenizer::bpe) check_no_nul(path.string(), text);
    return text;
  }
  std::string bytes = read_file(path);
  const std::optional<OtherFile> other = other_file(std::string_view(bytes).substr(0, kOtherFileHead), path);
  if (other && other->is_pointer) refuse_other_file<DataError>(kText, path, bytes);
  if (path.extension() != ".gz" || !is_gzip(bytes)) return bytes;
  notes.made = "unpacked by gzip";
  return unpack_gzip(bytes, kText, path.string());
}

// Calls f(token, at) for each character or word.
template <class F>
void each_token(const std::string& path, std::string_view text, Tokenizer tokenizer, F&& f) {
  size_t word = std::string_view::npos;  // where the open one began
  const auto close = [&](size_t end) {
    if (word != std::string_view::npos) f(text.substr(word, end - word), word);
    word = std::string_view::npos;
  };
  for (size_t at = 0, bytes = 0; at < text.size(); at += bytes) {
    bytes = utf8_length(text, at);
    if (bytes == 0) fail_not_utf8(path, text, at);
    if (tokenizer == Tokenizer::character) {
      f(text.substr(at, bytes), at);
    } else if (text[at] == '\n' || is_space(text[at])) {
      close(at);
      if (text[at] == '\n') f(text.substr(at, 1), at);
    } else if (word == std::string_view::npos) {
      word = at;
    }
  }
  close(text.size());
}

Vocabulary vocabulary_of(const std::string& path, std::string_view text, Tokenizer tokenizer, int64_t max_words) {
  std::map<std::string, int64_t, std::less<>> count;  // UTF-8 sorts as its code points do
  each_token(path, text, tokenizer, [&](std::string_view token, size_t) {
    const auto found = count.find(token);
    found == count.end() ? void(count.emplace(token, 1)) : void(++found->second);
  });
  std::vector<std::pair<std::string, int64_t>> sorted(count.begin(), count.end());
  std::vector<std::string> tokens;
  if (tokenizer == Tokenizer::word) {
    std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    std::erase_if(sorted, [](const auto& word) { return word.first == kUnknown; });
    tokens.push_back(kUnknown);
    if (max_words > 0 && int64_t(sorted.size()) > max_words) sorted.resize(size_t(max_words));
  }
  for (auto& [token, times] : sorted) tokens.push_back(std::move(token));
  return Vocabulary(std::move(tokens));
}

std::vector<uint32_t> numbers_of(const std::string& path, std::string_view text, const TextOptions& options) {
  const Tokenizer tokenizer = options.tokenizer;
  const Vocabulary& vocabulary = options.vocabulary;
  std::vector<uint32_t> out;
  if (tokenizer == Tokenizer::bpe) {
    const size_t wrong = find_not_utf8(text);
    if (wrong != text.npos) fail_not_utf8(path, text, wrong);
    const std::vector<int64_t> ids = options.bpe->encode(text, /*add_special_tokens=*/false);
    return {ids.begin(), ids.end()};
  }
  if (tokenizer == Tokenizer::byte) {
    for (const char c : text) out.push_back(uint8_t(c));
    return out;
  }
  const int64_t unknown = tokenizer == Tokenizer::word ? vocabulary.find(kUnknown) : -1;
  each_token(path, text, tokenizer, [&](std::string_view token, size_t at) {
    int64_t number = vocabulary.find(token);
    if (number < 0) number = unknown;
    if (number < 0) {
      fail<DataError>(kText, place_in_text(path, text, at), ": the vocabulary of ", vocabulary.size(), ' ',
                      tokenizer == Tokenizer::character ? "characters" : "words", " has no \"", token.substr(0, 60), '"',
                      Help{"it is that of the training data's whole file; add what is missing there, or read bytes"});
    }
    out.push_back(uint32_t(number));
  });
  return out;
}

template <class T>
std::vector<T> tokens_in(const std::string& path, const std::string& bytes, int64_t& vocab_size) {
  check<DataError>(bytes.size() % sizeof(T) == 0, kText, path, ": a file of u", 8 * sizeof(T), " tokens must have a multiple of ",
                   sizeof(T), " bytes, got ", bytes.size(), Help{"it is cut off, or not a file of such tokens"});
  std::vector<T> out(bytes.size() / sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());  // little-endian, as the machines this runs on
  const auto largest = std::max_element(out.begin(), out.end());
  if (vocab_size == 0) vocab_size = out.empty() ? 0 : int64_t(*largest) + 1;
  if (largest != out.end() && int64_t(*largest) >= vocab_size) {
    const auto first = std::find_if(out.begin(), out.end(), [&](T t) { return int64_t(t) >= vocab_size; });
    fail<DataError>(kText, path, ": tokens must be below vocab_size ", vocab_size, ", but token ", first - out.begin(), " is ",
                    int64_t(*first), Help{"give the vocab_size of the tokenizer that wrote the file; is it u16 or u32?"});
  }
  return out;
}

// The tokens [begin, end) of a part. Rounded so that 0.3 of 10 is 3, as in split_part.
template <class T>
std::vector<T> part_of(const std::vector<T>& all, const TextOptions& o) {
  const double n = double(all.size());
  const auto at = [&](double f) { return std::min(int64_t(all.size()), int64_t(std::floor(f * n + 1e-9 * n))); };
  return std::vector<T>(all.begin() + at(o.begin), all.begin() + at(o.end));
}

// How many tokens there are, which only files of tokens do not say.
int64_t known_size(const TextOptions& o) {
  if (o.tokenizer == Tokenizer::byte) return 256;
  if (o.tokenizer != Tokenizer::bpe) return o.vocabulary.size();
  const int64_t least = o.bpe->size();
  check<ValueError>(o.vocab_size == 0 || o.vocab_size >= least, kText, "vocab_size must be at least the tokenizer's ", least,
                    ", got ", o.vocab_size);
  return std::max(least, o.vocab_size);
}

}  // namespace

Tokenizer parse_tokenizer(std::string_view text) {
  for (const auto& [word, tokenizer] : kNames)
    if (word == text) return tokenizer;
  fail<ValueError>(kText, "the tokenizer must be \"char\", \"byte\", \"word\", \"u16\", \"u32\" or \"bpe\", got \"", text, '"');
}
std::string_view name(Tokenizer tokenizer) { return kNames[size_t(tokenizer)].first; }

Vocabulary::Vocabulary(std::vector<std::string> tokens) : tokens_(std::move(tokens)) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const bool added = numbers_.emplace(tokens_[i], int64_t(i)).second;
    check<ValueError>(added, kText, "a vocabulary must have each token once, got \"", tokens_[i], "\" twice");
  }
}

Vocabulary Vocabulary::of_file(const std::filesystem::path& path, Tokenizer tokenizer, int64_t max_words, TextEncoding encoding) {
  if (!is_text(tokenizer)) return Vocabulary();
  DataNotes ignored;
  const std::string text = read_as(path, {.tokenizer = tokenizer, .encoding = encoding}, ignored);
  return vocabulary_of(path.string(), text, tokenizer, max_words);
}

int64_t Vocabulary::find(std::string_view token) const {
  const auto found = numbers_.find(std::string(token));
  return found == numbers_.end() ? -1 : found->second;
}

std::vector<int64_t> encode_text(std::string_view text, const TextOptions& options, const std::string& label) {
  check<ValueError>(options.tokenizer != Tokenizer::u16 && options.tokenizer != Tokenizer::u32, kText,
                    "a file of tokens does not say what its tokens mean");
  const std::vector<uint32_t> numbers = numbers_of(label, text, options);
  return {numbers.begin(), numbers.end()};
}

TextDataset::TextDataset(const std::filesystem::path& path, const TextOptions& options)
    : label_("Text " + path.string()), options_(options) {
  TextOptions& o = options_;
  check<ValueError>(o.seq_len >= 1, kText, "seq_len must be at least 1, got ", o.seq_len);
  check<ValueError>(o.streams >= 0 && o.vocab_size >= 0 && o.max_words >= 0, kText,
                    "streams, vocab_size and max_words must not be negative, got ", o.streams, ", ", o.vocab_size, " and ",
                    o.max_words);
  check<ValueError>(0 <= o.begin && o.begin < o.end && o.end <= 1, kText, "a part must be [a, b) with 0 <= a < b <= 1, got [",
                    o.begin, ", ", o.end, ')');
  check<ValueError>(o.tokenizer != Tokenizer::bpe || o.bpe, kText, "tokenizer \"bpe\" needs a tokenizer",
                    Help{"BpeTokenizer::load reads one from its file"});
  const std::string bytes = read_as(path, o, notes_), file = path.string();
  int64_t total = 0;
  const auto take = [&](const auto& all) {
    total = int64_t(all.size());
    part_ = part_of(all, o);
  };
  if (o.tokenizer == Tokenizer::u16) {
    take(tokens_in<uint16_t>(file, bytes, o.vocab_size));
    vocab_size_ = o.vocab_size;
  } else if (o.tokenizer == Tokenizer::u32) {
    take(tokens_in<uint32_t>(file, bytes, o.vocab_size));
    vocab_size_ = o.vocab_size;
  } else {
    if (is_text(o.tokenizer) && o.vocabulary.size() == 0) o.vocabulary = vocabulary_of(file, bytes, o.tokenizer, o.max_words);
    vocab_size_ = known_size(o);
    const std::vector<uint32_t> all = numbers_of(file, bytes, o);
    if (vocab_size_ <= 1 << 16)
      take(std::vector<uint16_t>(all.begin(), all.end()));
    else
      take(all);
  }
  const int64_t held = std::visit([](const auto& part) { return int64_t(part.size()); }, part_);
  pieces_ = (held - 1) / o.seq_len / std::max<int64_t>(1, o.streams);
  check<DataError>(
      held > o.seq_len && pieces_ >= 1, kText, file, ": the part [", o.begin, ", ", o.end, ") has ", held, " of the file's ", total,
      " tokens, which is less than ", std::max<int64_t>(1, o.streams), o.streams > 1 ? " streams" : " piece", " of seq_len ",
      o.seq_len, " and one token more",
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
    const std::string token = is_text(options_.tokenizer) ? options_.vocabulary.tokens()[size_t(t)] : std::to_string(t);
    const bool spaced = options_.tokenizer != Tokenizer::character && !out.empty() && out.back() != '\n' && token != "\n";
    out += (spaced ? " " : "") + token;
  }
  return out;
}

}  // namespace halfstep
