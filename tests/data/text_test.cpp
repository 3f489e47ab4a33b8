// SPDX-License-Identifier: Apache-2.0
#include "framework/data/sets/text.h"

#include <doctest/doctest.h>

#include <memory>

#include "framework/base/check.h"
#include "framework/data/formats/read_once.h"
#include "framework/data/loading/loader.h"
#include "framework/data/sets/text_forms.h"
#include "framework/data/sets/text_tokens.h"
#include "framework/data/tokens/bpe.h"
#include "framework/data/tokens/unicode.h"
#include "tests/io/files.h"
#include "tests/support/source_dir.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

std::vector<int> inputs(const TextDataset& data, std::vector<int64_t> indices) {
  return data.batch(indices).input.to_vector<int>();
}

std::string bytes_of(const std::vector<uint16_t>& tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), 2 * tokens.size()};
}

}  // namespace

TEST_CASE("Text: characters are numbered in the order of their code points, and targets are one token on") {
  const TempDir dir;
  write_bytes(dir / "t",
              "ba\nb\xc3\xa9"
              "a");  // b a \n b é a
  const TextDataset data(dir / "t", {.seq_len = 2});
  CHECK(data.tokens().tokens() == std::vector<std::string>{"\n", "a", "b", "\xc3\xa9"});
  CHECK(data.size() == 2);
  CHECK(data.classes() == 4);
  CHECK(data.vocabulary() == 4);
  CHECK(data.input_dtype() == DType::i64);
  const Batch batch = data.batch(std::vector<int64_t>{1, 0});
  CHECK(batch.input.to_vector<int>() == std::vector<int>{0, 2, 2, 1});
  CHECK(batch.target.to_vector<int>() == std::vector<int>{2, 3, 1, 0});
  CHECK(batch.target.dtype() == DType::i64);
  CHECK(data.encode("\xc3\xa9"
                    "b") == std::vector<int64_t>{3, 2});
  CHECK(data.decode(std::vector<int64_t>{3, 0, 1}) == "\xc3\xa9\na");
  CHECK(data.describe() == "Text " + (dir / "t").string() + ": 2 pieces of 2 tokens, tokenizer char, 4 in the vocabulary");
  CHECK_THROWS_AS(data.batch(std::vector<int64_t>{2}), IndexError);
}

TEST_CASE("Text: parts follow one another and share a vocabulary") {
  const TempDir dir;
  write_bytes(dir / "t", "abcdefghij");
  const TextDataset first(dir / "t", {.seq_len = 1, .begin = 0, .end = 0.3});
  const TextDataset rest(dir / "t", {.seq_len = 3, .begin = 0.3, .end = 1});
  CHECK(first.size() == 2);  // a b, b c
  CHECK(first.vocabulary() == 10);
  CHECK(inputs(rest, {0, 1}) == std::vector<int>{3, 4, 5, 6, 7, 8});
  CHECK(rest.batch(std::vector<int64_t>{1}).target.to_vector<int>() == std::vector<int>{7, 8, 9});
}

TEST_CASE("Text: streams are read on from batch to batch") {
  const TempDir dir;
  std::string text;
  for (int i = 0; i < 50; ++i) text += char('A' + i);
  write_bytes(dir / "t", text);
  const TextDataset data(dir / "t", {.tokenizer = Tokenizer::byte, .seq_len = 4, .streams = 3});
  CHECK(data.size() == 12);  // 4 pieces a stream: 12 of the 12 whole ones
  CHECK(data.streams() == 3);
  for (int64_t stream = 0; stream < 3; ++stream) {
    int expected = int('A' + stream * 16);
    for (int64_t step = 0; step < 4; ++step) {
      const Batch piece = data.batch(std::vector<int64_t>{step * 3 + stream});
      for (int64_t i = 0; i < 4; ++i) {
        CHECK(piece.input.data_ptr<int64_t>()[i] == expected++);
        CHECK(piece.target.data_ptr<int64_t>()[i] == expected);
      }
    }
  }
  const auto loader = [&](const LoaderOptions& options) {
    return message_of<ValueError>([&] { DataLoader(std::make_shared<TextDataset>(data), options); });
  };
  CHECK(loader({.batch_size = 3}).empty());
  CHECK(contains(loader({.batch_size = 3, .shuffle = true}),
                 "streams must be read in order with batch_size 3, got batch_size 3 and shuffle"));
  CHECK(contains(loader({.batch_size = 2}), "got batch_size 2"));
  const TextDataset fewer(dir / "t", {.tokenizer = Tokenizer::byte, .seq_len = 4, .streams = 5});
  CHECK(fewer.size() == 10);  // two pieces of each stream; the ragged tail is left
}

TEST_CASE("Text: words, the most frequent first, and <unk> for the others") {
  const TempDir dir;
  write_bytes(dir / "t", "the cat  the\tdog\nthe cat");
  const TextDataset all(dir / "t", {.tokenizer = Tokenizer::word, .seq_len = 6});
  CHECK(all.tokens().tokens() == std::vector<std::string>{"<unk>", "the", "cat", "\n", "dog"});
  CHECK(inputs(all, {0}) == std::vector<int>{1, 2, 1, 4, 3, 1});
  CHECK(all.decode(std::vector<int64_t>{1, 4, 3, 1}) == "the dog\nthe");
  CHECK(all.encode("a cat") == std::vector<int64_t>{0, 2});
  const TextDataset two(dir / "t", {.tokenizer = Tokenizer::word, .seq_len = 6, .max_words = 2});
  CHECK(two.tokens().tokens() == std::vector<std::string>{"<unk>", "the", "cat"});
  CHECK(inputs(two, {0}) == std::vector<int>{1, 2, 1, 0, 0, 1});
}

TEST_CASE("Text: files of tokens") {
  const TempDir dir;
  write_bytes(dir / "16", bytes_of({7, 65535, 0, 3}));
  const TextDataset data(dir / "16", {.tokenizer = Tokenizer::u16, .seq_len = 3});
  CHECK(data.vocabulary() == 65536);
  CHECK(data.batch(std::vector<int64_t>{0}).target.to_vector<int>() == std::vector<int>{65535, 0, 3});
  const TextDataset wide(dir / "16", {.tokenizer = Tokenizer::u32, .seq_len = 1, .vocab_size = (int64_t(1) << 32) - 1});
  CHECK(wide.batch(std::vector<int64_t>{0}).input.item<int64_t>() == 0xffff0007);
  CHECK(data.decode(std::vector<int64_t>{7, 12}) == "7 12");
}

TEST_CASE("Text: the tokens of a published tokenizer") {
  const TempDir dir;
  write_bytes(dir / "t", "Before we proceed<|endoftext|>Before we proceed");
  const auto bpe =
      std::make_shared<const BpeTokenizer>(BpeTokenizer::load(halfstep_source_dir() + "/tests/data/tokenizers/gpt2.json"));
  const TextDataset data(dir / "t", {.tokenizer = Tokenizer::bpe, .seq_len = 2, .bpe = bpe});
  CHECK(data.vocabulary() == bpe->size());
  CHECK(data.classes() == bpe->size());
  const std::vector<int64_t> ids = bpe->encode("Before we proceed<|endoftext|>Before we proceed");
  CHECK(data.size() == int64_t(ids.size() - 1) / 2);
  CHECK(inputs(data, {0}) == std::vector<int>{int(ids[0]), int(ids[1])});
  CHECK(data.encode("Before we proceed") == bpe->encode("Before we proceed"));
  CHECK(data.decode(ids) == "Before we proceed<|endoftext|>Before we proceed");
  CHECK(data.tokens().size() == 0);
  const TextDataset padded(dir / "t", {.tokenizer = Tokenizer::bpe, .seq_len = 2, .vocab_size = 512, .bpe = bpe});
  CHECK(padded.vocabulary() == 512);
  CHECK(
      contains(message_of<ValueError>([&] { TextDataset(dir / "t", {.tokenizer = Tokenizer::bpe, .vocab_size = 9, .bpe = bpe}); }),
               "vocab_size must be at least the tokenizer's 420, got 9"));
  CHECK(contains(message_of<ValueError>([&] { TextDataset(dir / "t", {.tokenizer = Tokenizer::bpe}); }),
                 "\"bpe\" needs a tokenizer"));
  // What the file of a tokenizer puts around a text is not put around a part of one.
  const auto roberta =
      std::make_shared<const BpeTokenizer>(BpeTokenizer::load(halfstep_source_dir() + "/tests/data/tokenizers/roberta.json"));
  const TextDataset other(dir / "t", {.tokenizer = Tokenizer::bpe, .seq_len = 2, .bpe = roberta});
  CHECK(other.encode("we") == roberta->encode("we", false));
  CHECK(roberta->encode("we").size() == roberta->encode("we", false).size() + 2);
  write_bytes(dir / "t", "a\nb\xff");
  CHECK(contains(message_of<DataError>([&] { TextDataset(dir / "t", {.tokenizer = Tokenizer::bpe, .bpe = bpe}); }),
                 "t:2:2: the text must be UTF-8"));
}

TEST_CASE("Text: a text in another form than the training data's comes with what changes it, and mixed forms are warned of") {
  const TempDir dir;
  const std::string whole = "\xc3\xa9t\xc3\xa9 \xe3\x81\x8c\n", apart = "e\xcc\x81te\xcc\x81 \xe3\x81\x8b\xe3\x82\x99\n";
  const auto vocabulary_of = [&](const std::string& text) {
    write_bytes(dir / "train", text);
    return Vocabulary::of_file(dir / "train", Tokenizer::character);
  };
  const auto error = [&](const std::string& text, const std::string& learned) {
    write_bytes(dir / "v", text);
    return message_of<DataError>([&] { TextDataset(dir / "v", {.seq_len = 1, .vocabulary = vocabulary_of(learned)}); });
  };
  const std::string nfc = error(apart, whole);
  CHECK(contains(nfc, "has no \"e\"\nhelp: the training data has each letter and its marks as one character (NFC)"));
  CHECK(contains(nfc, "unicodedata.normalize('NFC', sys.stdin.read()))\" < v > new-v"));
  CHECK(contains(error(whole, apart), "normalize('NFD'"));
  const std::string ends = error("a\r\nb\r\n", "ab\n");
  CHECK(contains(ends, "has no \"\\u000d\"\nhelp: the training data has LF at the ends of lines"));
  CHECK(contains(ends, "as this makes it: tr -d '\\r' < v > new-v"));
  CHECK(contains(error(apart + "z", whole), "normalize('NFC'"));
  CHECK(contains(error("z" + apart, whole), "has no \"z\"\nhelp: it is that of the training data's whole file"));

  const TextOptions french{.vocabulary = vocabulary_of(whole)};
  CHECK(fitted_text(apart, french).text == whole);
  CHECK(fitted_text("t\r\n", french).text == "t\n");
  CHECK(fitted_text("t z", french).change == TextChange::none);
  CHECK(fitted_text(apart, {.tokenizer = Tokenizer::byte}).text == apart);

  const auto warnings = [&](const std::string& text, Tokenizer tokenizer = Tokenizer::character) {
    write_bytes(dir / "m", text);
    return TextDataset(dir / "m", {.tokenizer = tokenizer, .seq_len = 1}).notes().warnings;
  };
  REQUIRE(warnings(whole + apart).size() == 1);
  CHECK(contains(warnings(whole + apart)[0], "\"\xc3\xa9\" and \"e\\u0301\", "));
  CHECK(warnings(whole).empty());
  const std::vector<std::string> words = warnings("un caf\xc3\xa9 ou un cafe\xcc\x81\n", Tokenizer::word);
  REQUIRE(words.size() == 1);
  CHECK(contains(words[0], "words are there both "));
  CHECK(contains(words[0], "\"caf\xc3\xa9\" and \"cafe\\u0301\""));
  CHECK(warnings("un caf\xc3\xa9 ou un the\xcc\x81\n", Tokenizer::word).empty());
  CHECK(warnings(apart).empty());
  CHECK(normalize_nfd(whole) == apart);
}

TEST_CASE("Text: what is wrong with a file is said with its place") {
  const TempDir dir;
  const auto error = [&](std::string_view bytes, const TextOptions& options) {
    write_bytes(dir / "t", bytes);
    const std::string text = message_of<DataError>([&] { TextDataset(dir / "t", options); });
    CHECK(contains(text, (dir / "t").string()));
    return text;
  };
  CHECK(contains(error("ab\nc\xff", {.seq_len = 1}),
                 "t:2:2: the text must be UTF-8, but this byte is 255\nhelp: tokenizer \"byte\""));
  for (const char* bad : {"\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\x80"})
    CHECK(contains(error(bad, {.seq_len = 1}), "must be UTF-8"));
  CHECK(contains(error("abz", {.seq_len = 1, .vocabulary = Vocabulary({"a", "b"})}),
                 "t:1:3: the vocabulary of 2 characters has no \"z\""));
  CHECK(contains(error("ab\r\n", {.seq_len = 1, .vocabulary = Vocabulary({"a", "b", "\n"})}), "has no \"\\u000d\""));
  CHECK(contains(error("ab\xc2\xa0", {.seq_len = 1, .vocabulary = Vocabulary({"a", "b"})}), "has no \"\\u00a0\""));
  CHECK(contains(error("abc", {.tokenizer = Tokenizer::u16}), "a file of u16 tokens must have a multiple of 2 bytes, got 3"));
  CHECK(contains(error(bytes_of({1, 9, 2}), {.tokenizer = Tokenizer::u16, .seq_len = 1, .vocab_size = 9}),
                 "tokens must be below vocab_size 9, but token 1 is 9"));
  CHECK(contains(error("abc", {.seq_len = 3}),
                 "the part [0, 1) has 3 of the file's 3 tokens, which is less than 1 piece of seq_len 3"));
  CHECK(contains(error("abcdef", {.seq_len = 2, .streams = 3}),
                 "less than 3 streams of seq_len 2 and one token more\nhelp: a smaller batch"));
  CHECK(contains(error("", {.seq_len = 1}), "has 0 of the file's 0 tokens"));
  CHECK(contains(message_of<IoError>([&] { TextDataset(dir / "none"); }), "none"));
  CHECK(contains(message_of<ValueError>([] { Vocabulary({"a", "a"}); }), "each token once"));
}

TEST_SUITE("data") {
  TEST_CASE("Text: tiny Shakespeare") {
    const auto root = data_root();
    if (!root) return;
    const auto path = *root / "tinyshakespeare/input.txt";
    const TextDataset train(path, {.end = 0.9, .streams = 64}), val(path, {.seq_len = 1, .begin = 0.9});
    CHECK(train.vocabulary() == 65);
    CHECK(val.size() == 111540 - 1);
    CHECK(train.size() == 64 * (1003853 / 128 / 64));
    CHECK(train.decode(train.batch(std::vector<int64_t>{0}).input.to_vector<int64_t>())
              .starts_with("First Citizen:\nBefore we proceed"));
  }
}

TEST_CASE("Text: a large file as tokens of one, two and four bytes, which its parts share") {
  const TempDir dir;
  std::string few, many;
  std::vector<int64_t> wanted;
  for (size_t i = 0; few.size() < 1 << 21; ++i) few += i % 9 == 0 ? "\xc3\xa9" : std::string(1, char('a' + i % 7));
  for (char32_t i = 0; i < 400000; ++i) {
    const char32_t point = 0x4e00 + i % 300;
    append_utf8(many, point);
    wanted.push_back(int64_t(i % 300));
  }
  write_bytes(dir / "few", few);
  write_bytes(dir / "many", many);
  const TextDataset small(dir / "few", {.seq_len = 64}), wide(dir / "many", {.seq_len = 1000});
  CHECK(small.vocabulary() == 8);
  const std::vector<int64_t> piece{small.size() - 1};
  const Tensor last = small.batch(piece).input;
  CHECK(small.encode(small.decode(last.to_vector<int64_t>())) == last.to_vector<int64_t>());
  CHECK(wide.vocabulary() == 300);
  std::vector<int64_t> all;
  for (int64_t i = 0; i < wide.size(); ++i)
    for (const int64_t t : wide.batch(std::vector<int64_t>{i}).input.to_vector<int64_t>()) all.push_back(t);
  wanted.resize(all.size());
  CHECK(all == wanted);
  many[many.size() / 3 * 2 / 3 * 3 + 1] = 'x';
  write_bytes(dir / "many", many);
  CHECK(contains(message_of<DataError>([&] { TextDataset(dir / "many", {.seq_len = 1}); }), "must be UTF-8, but this byte"));
  few[few.size() - 5] = '\0';
  write_bytes(dir / "few", few);
  CHECK(contains(message_of<DataError>([&] { TextDataset(dir / "few", {.seq_len = 1}); }), "must not hold a NUL character"));
  std::string numbers;
  for (uint32_t i = 0; i < 300000; ++i) {
    const uint32_t token = i % 70000;
    numbers.append(reinterpret_cast<const char*>(&token), 4);
  }
  write_bytes(dir / "u32", numbers);
  const TextDataset mapped(dir / "u32", {.tokenizer = Tokenizer::u32, .seq_len = 10, .begin = 0.5});
  CHECK(mapped.vocabulary() == 70000);
  CHECK(inputs(mapped, {0})[0] == 150000 % 70000);
  CHECK(contains(message_of<DataError>([&] { TextDataset(dir / "u32", {.tokenizer = Tokenizer::u32, .vocab_size = 69000}); }),
                 "tokens must be below vocab_size 69000, but token 69000 is 69999"));
}

TEST_CASE("Text: while ReadCache lives, parts and those who know the vocabulary share one reading") {
  const TempDir dir;
  write_bytes(dir / "t", "one two two three three three\n");
  while (file_stamp(dir / "t").empty()) {}
  const TextOptions words{.tokenizer = Tokenizer::word};
  const auto read = [&](const TextOptions& o) { return read_tokens(dir / "t", o); };
  CHECK(read(words) != read(words));
  const ReadCache<const TextTokens> keep;
  const auto first = read(words);
  TextOptions same = words, fewer = words, other = words;
  same.vocabulary = first->vocabulary;
  fewer.max_words = 1;
  other.vocabulary = Vocabulary({"<unk>", "one"});
  CHECK(read(words) == first);
  CHECK(read(same) == first);
  CHECK(read(fewer)->vocabulary.size() == 2);
  CHECK(read(other)->size == 2);
}
