// SPDX-License-Identifier: Apache-2.0
#include "framework/data/sets/text_tokens.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "framework/base/check.h"
#include "framework/data/formats/read_once.h"
#include "framework/data/sets/text_forms.h"
#include "framework/data/tokens/bpe.h"
#include "framework/data/tokens/unicode.h"
#include "framework/io/files/checksum.h"
#include "framework/io/files/free_memory.h"
#include "framework/io/files/gzip.h"
#include "framework/io/files/mapped_file.h"
#include "framework/io/files/other_file.h"

namespace halfstep {
namespace {

constexpr const char* kTextFile = "Text";
constexpr const char* kUnknown = "<unk>";
constexpr size_t kCodePoints = 0x110000;
constexpr size_t kWindowStep = 4096;  // bytes after which a window on the file is moved

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f'; }

[[noreturn]] void fail_not_utf8(const std::string& path, std::string_view text, size_t at) {
  fail<DataError>(kTextFile, place_in_text(path, text, at), ": the text must be UTF-8, but this byte is ", int(uint8_t(text[at])),
                  Help{joined("tokenizer \"byte\" reads any file; ", not_utf8_help(text, at, path))});
}

// Refuses a NUL character, because a token with it could not be stored with the model and read again.
[[noreturn]] void fail_nul(const std::string& path, std::string_view text, size_t at) {
  const std::string name = std::filesystem::path(path).filename().string();
  fail<DataError>(kTextFile, place_in_text(path, text, at), ": the text must not hold a NUL character",
                  Help{joined("tokenizer \"byte\" reads any file; tr -d '\\000' < ", name, " > new-", name, " removes them")});
}

// Returns the remedy for a token that the vocabulary lacks, at `at`: what gives the text the training data's form, if that helps.
std::string unknown_help(const std::string& path, std::string_view text, size_t at, std::string_view token, const TextOptions& o) {
  constexpr size_t kAround = 100;  // bytes that are examined on both sides
  const auto continues = [&](size_t i) { return i < text.size() && (uint8_t(text[i]) & 0xc0) == 0x80; };
  size_t begin = at - std::min(at, kAround), end = std::min(at + kAround, text.size());
  while (continues(begin)) ++begin;
  while (continues(end)) ++end;
  const FittedText fitted = fitted_text(text.substr(begin, end - begin), o);
  if (fitted.change != TextChange::none && fitted.text.find(token) == std::string::npos)
    return joined("the training data has ", change_words(fitted.change),
                  ", as this makes it: ", change_command(fitted.change, path));
  return "it is that of the training data's whole file; add what is missing there, or read bytes";
}

[[noreturn]] void fail_unknown(const std::string& path, std::string_view text, std::string_view token, const TextOptions& o) {
  const size_t at = size_t(token.data() - text.data());
  fail<DataError>(kTextFile, place_in_text(path, text, at), ": the vocabulary of ", o.vocabulary.size(), ' ',
                  o.tokenizer == Tokenizer::character ? "characters" : "words", " has no ", spelled(token.substr(0, 60)),
                  Help{unknown_help(path, text, at, token, o)});
}

// Calls f(code point, at, bytes) for each character.
template <class F>
void for_each_character(const std::string& path, const FileText& file, F&& f) {
  const std::string_view text = file.text;
  PageWindow window(text, file.mapped);
  for (size_t at = 0, bytes = 1; at < text.size(); at += bytes) {
    if (at % kWindowStep < bytes) window.move_to(text.data() + at);
    const uint8_t first = uint8_t(text[at]);
    bytes = first < 0x80 ? 1 : utf8_length(text, at);
    if (first == 0) fail_nul(path, text, at);
    if (bytes == 0) fail_not_utf8(path, text, at);
    f(first < 0x80 ? char32_t(first) : utf8_at(text, at, bytes), at, bytes);
  }
}

// Calls f(word) for each word, and each line's end.
template <class F>
void for_each_word(const std::string& path, const FileText& file, F&& f) {
  const std::string_view text = file.text;
  size_t begin = text.npos;  // of the word that is being read
  const auto end_word = [&](size_t end) {
    if (begin != text.npos) f(text.substr(begin, end - begin));
    begin = text.npos;
  };
  for_each_character(path, file, [&](char32_t point, size_t at, size_t) {
    if (point >= 0x80 || !(point == '\n' || is_space(char(point)))) {
      if (begin == text.npos) begin = at;
      return;
    }
    end_word(at);
    if (point == '\n') f(text.substr(at, 1));
  });
  end_word(text.size());
}

Vocabulary learn_characters(const std::string& path, const FileText& file) {
  std::vector<bool> occurs(kCodePoints);
  bool ascii_occurs[0x80] = {};
  for_each_character(path, file, [&](char32_t point, size_t, size_t) {
    if (point < 0x80)
      ascii_occurs[point] = true;
    else
      occurs[point] = true;
  });
  std::vector<std::string> tokens;
  for (char32_t point = 0; point < kCodePoints; ++point)
    if (point < 0x80 ? ascii_occurs[point] : occurs[point]) append_utf8(tokens.emplace_back(), point);
  return Vocabulary(std::move(tokens));
}

Vocabulary learn_words(const std::string& path, const FileText& file, int64_t max_words) {
  std::unordered_map<std::string_view, int64_t> counts;
  for_each_word(path, file, [&](std::string_view word) { ++counts[word]; });
  counts.erase(kUnknown);
  std::vector<std::pair<std::string_view, int64_t>> sorted(counts.begin(), counts.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.second != b.second ? a.second > b.second : a.first < b.first; });
  if (max_words > 0 && int64_t(sorted.size()) > max_words) sorted.resize(size_t(max_words));
  std::vector<std::string> tokens{kUnknown};
  for (const auto& [word, count] : sorted) tokens.emplace_back(word);
  return Vocabulary(std::move(tokens));
}

// Returns the numbers of the characters of a text.
template <class T>
std::vector<T> numbers_of_characters(const std::string& path, const FileText& file, const TextOptions& o) {
  const auto begins_character = [](char c) { return (uint8_t(c) & 0xc0) != 0x80; };
  const double bytes = double(file.text.size()) * sizeof(T);
  check_room(kTextFile, path, bytes, joined("a text of ", file.text.size(), " bytes"),
             "a file of u16 or u32 tokens is mapped, not read, so it may be larger than the memory: docs/configs.md");
  size_t count = 0;
  PageWindow window(file.text, file.mapped);
  for (size_t at = 0; at < file.text.size(); at += kWindowStep) {
    window.move_to(file.text.data() + at);
    const std::string_view piece = file.text.substr(at, kWindowStep);
    count += size_t(std::count_if(piece.begin(), piece.end(), begins_character));
  }
  std::vector<T> out(count);
  std::vector<int32_t> number_of(0x80, -1);  // by code point; -1: none
  for (size_t i = 0; i < o.vocabulary.tokens().size(); ++i) {
    const std::string& token = o.vocabulary.tokens()[i];
    const size_t length = token.empty() ? 0 : utf8_length(token, 0);
    if (length == 0 || length != token.size()) continue;
    const char32_t point = utf8_at(token, 0, length);
    if (point >= number_of.size()) number_of.resize(point + 1, -1);
    number_of[point] = int32_t(i);
  }
  T* to = out.data();
  for_each_character(path, file, [&](char32_t point, size_t at, size_t length) {
    const int32_t found = point < number_of.size() ? number_of[point] : -1;
    if (found < 0) [[unlikely]]
      fail_unknown(path, file.text, file.text.substr(at, length), o);
    *to++ = T(found);
  });
  return out;
}

// Returns the numbers of the tokens of a text.
template <class T>
std::vector<T> numbers_of(const std::string& path, const FileText& file, const TextOptions& o) {
  std::vector<T> out;
  if (o.tokenizer == Tokenizer::bpe) {
    const size_t wrong = find_not_utf8(file.text);
    if (wrong != file.text.npos) fail_not_utf8(path, file.text, wrong);
    o.bpe->encode_in_pieces(file.text, [&](std::span<const int64_t> ids) { out.insert(out.end(), ids.begin(), ids.end()); });
  } else if (o.tokenizer == Tokenizer::word) {
    const int64_t unknown = o.vocabulary.find(kUnknown);
    for_each_word(path, file, [&](std::string_view word) {
      int64_t number = o.vocabulary.find(word);
      if (number < 0) number = unknown;
      if (number < 0) fail_unknown(path, file.text, word, o);
      out.push_back(T(number));
    });
  } else {
    return numbers_of_characters<T>(path, file, o);
  }
  return out;
}

// Returns the bytes of a file of tokens as tokens of type T.
template <class T>
std::span<const T> tokens_in(const std::string& path, std::string_view bytes) {
  check<DataError>(bytes.size() % sizeof(T) == 0, kTextFile, path, ": a file of u", 8 * sizeof(T),
                   " tokens must have a multiple of ", sizeof(T), " bytes, got ", bytes.size(),
                   Help{"it is cut off, or not a file of such tokens"});
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};  // little-endian, like the host
}

// Returns the size of the vocabulary, for tokenizers other than files of tokens.
int64_t vocabulary_size(const TextOptions& o) {
  if (o.tokenizer == Tokenizer::byte) return 256;
  if (o.tokenizer != Tokenizer::bpe) return o.vocabulary.size();
  const int64_t least = o.bpe->size();
  check<ValueError>(o.vocab_size == 0 || o.vocab_size >= least, kTextFile, "vocab_size must be at least the tokenizer's ", least,
                    ", got ", o.vocab_size);
  return std::max(least, o.vocab_size);
}

// Stores numbers as the tokens.
template <class T>
void store(TextTokens& out, std::vector<T> numbers) {
  const auto own = std::make_shared<const std::vector<T>>(std::move(numbers));
  out.numbers = std::span<const T>(*own);
  out.owner = own;
}

// Stores a file of tokens, whose largest one sets the vocabulary's size.
template <class T>
void store_file(TextTokens& out, const std::string& path, const FileText& file) {
  const std::span<const T> all = tokens_in<T>(path, file.text);
  PageWindow window(file.text, file.mapped);
  constexpr size_t kPiece = 1 << 16;  // tokens
  for (size_t i = 0; i < all.size(); i += kPiece) {
    const std::span<const T> piece = all.subspan(i, std::min(kPiece, all.size() - i));
    window.move_to(reinterpret_cast<const char*>(piece.data()));
    out.size = std::max(out.size, int64_t(*std::max_element(piece.begin(), piece.end())) + 1);
  }
  out.numbers = all;
}

// Opens the file as its tokenizer needs it. Bytes and tokens are not text: such a file is unpacked only if its name says so.
FileText open_for_tokenizer(const std::filesystem::path& path, const TextOptions& o, DataNotes& notes) {
  if (has_vocabulary(o.tokenizer) || o.tokenizer == Tokenizer::bpe)
    return open_text_file(path, o.encoding, kTextFile, /*tables=*/false, notes);
  FileText file = open_file(path, kTextFile);
  const std::optional<OtherFile> other = other_file(file.text.substr(0, kOtherFileHead), path);
  if (other && other->is_pointer) refuse_other_file<DataError>(kTextFile, path, file.text);
  if (path.extension() != ".gz" || !is_gzip(file.text)) return file;
  Unpacked out = unpack_gzip(file.text, file.mapped, kTextFile, path.string());
  notes.summary = out.note;
  return {out.bytes, std::move(out.owner), out.mapped};
}

}  // namespace

TextTokens tokens_of_text(const FileText& file, const TextOptions& options, const std::string& label) {
  TextTokens out;
  out.owner = file.owner;
  switch (options.tokenizer) {
    case Tokenizer::byte: out.numbers = tokens_in<uint8_t>(label, file.text), out.size = 256; return out;
    case Tokenizer::u16: store_file<uint16_t>(out, label, file); return out;
    case Tokenizer::u32: store_file<uint32_t>(out, label, file); return out;
    case Tokenizer::character:
    case Tokenizer::word:
    case Tokenizer::bpe: break;
  }
  TextOptions o = options;
  if (has_vocabulary(o.tokenizer) && o.vocabulary.size() == 0)
    o.vocabulary = o.tokenizer == Tokenizer::word ? learn_words(label, file, o.max_words) : learn_characters(label, file);
  out.size = vocabulary_size(o);
  if (out.size <= 1 << 8)
    store(out, numbers_of<uint8_t>(label, file, o));
  else if (out.size <= 1 << 16)
    store(out, numbers_of<uint16_t>(label, file, o));
  else
    store(out, numbers_of<uint32_t>(label, file, o));
  if (options.vocabulary.size() == 0)
    if (std::string mixed = mixed_forms_warning(o, file.text, label); !mixed.empty())
      out.notes.warnings.push_back(std::move(mixed));
  out.vocabulary = std::move(o.vocabulary);
  return out;
}

std::shared_ptr<const TextTokens> read_tokens(const std::filesystem::path& path, const TextOptions& o) {
  const std::string file = file_stamp(path);
  const auto key = [&](const Vocabulary& vocabulary) {
    if (file.empty()) return std::string();
    Sha256 hash;
    for (const std::string& token : vocabulary.tokens()) hash.update(token.c_str(), token.size() + 1);
    const bool learns = vocabulary.size() == 0;
    return joined(file, '\n', name(o.tokenizer), ' ', int(o.encoding), ' ', learns ? o.max_words : 0, ' ', hash.hex(), ' ',
                  o.bpe.get(), ' ', o.bpe ? o.vocab_size : 0);
  };
  const auto tokens = ReadCache<const TextTokens>::get(key(o.vocabulary), [&] {
    DataNotes notes;
    const FileText text = open_for_tokenizer(path, o, notes);
    TextTokens out = tokens_of_text(text, o, path.string());
    notes.warnings.insert(notes.warnings.end(), out.notes.warnings.begin(), out.notes.warnings.end());
    out.notes = std::move(notes);
    return std::make_shared<const TextTokens>(std::move(out));
  });
  if (!has_vocabulary(o.tokenizer) || o.vocabulary.size() > 0) return tokens;
  return ReadCache<const TextTokens>::get(key(tokens->vocabulary), [&] { return tokens; });  // also for readers with its vocabulary
}

}  // namespace halfstep
