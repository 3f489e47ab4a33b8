// SPDX-License-Identifier: Apache-2.0
// Ids and texts of the package `tokenizers` (scripts/make_tokenizer_goldens.py), and what files are refused for.
#include "framework/data/tokens/bpe.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "framework/base/check.h"
#include "framework/data/tokens/bpe_split.h"
#include "framework/data/tokens/unicode.h"
#include "tests/io/files.h"
#include "tests/support/source_dir.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

using Ids = std::vector<int64_t>;

std::filesystem::path tokenizer_folder() { return std::filesystem::path(halfstep_source_dir()) / "tests/data/tokenizers"; }

// How many of the cases of one file differ; the first one is reported.
int wrong_cases(const std::filesystem::path& goldens) {
  const auto golden = nlohmann::json::parse(read_bytes(goldens));
  const BpeTokenizer tokenizer = BpeTokenizer::load(goldens.parent_path() / golden["tokenizer"].get<std::string>());
  CHECK(tokenizer.size() == golden["size"].get<int64_t>());
  int wrong = 0;
  for (const auto& row : golden["encode"]) {
    const std::string text = row[0];
    const bool same = tokenizer.encode(text) == row[1].get<Ids>() && tokenizer.encode(text, false) == row[2].get<Ids>();
    if (!same && wrong++ == 0) FAIL_CHECK(goldens.filename().string() << ": encode differs: " << row[0].dump().substr(0, 300));
  }
  for (const auto& row : golden["decode"]) {
    const Ids ids = row[0];
    const bool same =
        tokenizer.decode(ids) == row[1].get<std::string>() && tokenizer.decode(ids, false) == row[2].get<std::string>();
    if (!same && wrong++ == 0) FAIL_CHECK(goldens.filename().string() << ": decode differs: " << row[0].dump().substr(0, 300));
  }
  return wrong;
}

nlohmann::json small_file() { return nlohmann::json::parse(read_bytes(tokenizer_folder() / "gpt2.json")); }

// What reading gpt2.json says after `change`, without "[BpeTokenizer] " and the path.
std::string refusal(const std::function<void(nlohmann::json&)>& change) {
  const TempDir dir;
  nlohmann::json file = small_file();
  change(file);
  write_bytes(dir / "t.json", file.dump());
  const std::string text = message_of<DataError>([&] { BpeTokenizer::load(dir / "t.json"); });
  const std::string begin = "[BpeTokenizer] " + (dir / "t.json").string() + ": ";
  CHECK(text.starts_with(begin));
  return text.substr(std::min(text.size(), begin.size()));
}

}  // namespace

TEST_CASE("BpeTokenizer: ids and texts are those of the package tokenizers") {
  const char* wanted = std::getenv("HALFSTEP_TOKENIZERS");
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(wanted ? wanted : tokenizer_folder())) {
    if (!entry.path().string().ends_with(".goldens.json")) continue;
    CHECK(wrong_cases(entry.path()) == 0);
    ++files;
  }
  CHECK(files >= (wanted ? 1 : 5));
}

TEST_CASE("BpeTokenizer: vocab.json and merges.txt") {
  const TempDir dir;
  const BpeTokenizer json = BpeTokenizer::load(tokenizer_folder() / "gpt2.json");
  const BpeTokenizer pair = BpeTokenizer::load(tokenizer_folder() / "gpt2-vocab.json", tokenizer_folder() / "gpt2-merges.txt");
  const std::string text = "Before we<|endoftext|> don't\r\n";
  CHECK(pair.size() == json.size());
  CHECK(pair.encode(text) == json.encode(text));
  CHECK(pair.is_special(pair.id("<|endoftext|>")));
  CHECK(pair.decode(pair.encode(text)) == "Before we don't\r\n");
  CHECK(pair.decode(pair.encode(text), false) == text);
  const BpeTokenizer plain = BpeTokenizer::load(tokenizer_folder() / "gpt2-vocab.json", tokenizer_folder() / "gpt2-merges.txt",
                                                {.add_prefix_space = true, .special_tokens = {}});
  CHECK(plain.encode("x") == json.encode(" x"));
  CHECK(plain.encode("<|endoftext|>").size() > 1);
  // A folder has either.
  write_bytes(dir / "vocab.json", read_bytes(tokenizer_folder() / "gpt2-vocab.json"));
  std::string merges = read_bytes(tokenizer_folder() / "gpt2-merges.txt");
  for (size_t at = merges.find('\n'); at != merges.npos; at = merges.find('\n', at + 2)) merges.insert(at, "\r");
  write_bytes(dir / "merges.txt", merges);
  CHECK(BpeTokenizer::load(dir.path()).encode(text) == json.encode(text));
  write_bytes(dir / "tokenizer.json", read_bytes(tokenizer_folder() / "roberta.json"));
  CHECK(BpeTokenizer::load(dir.path()).id("<mask>") > 0);

  const auto error = [&](std::string_view lines) {
    write_bytes(dir / "m", lines);
    return message_of<DataError>([&] { BpeTokenizer::load(dir / "vocab.json", dir / "m"); });
  };
  CHECK(
      contains(error("#version: 0.2\n\xc3\xa0 \xc2\xb8\na\n"), "m:3: a merge must be two tokens with a space between, got \"a\""));
  CHECK(contains(error("a  b"), "m:1: a merge must be two tokens"));
  CHECK(contains(error("zz z"), "m:1: must join two tokens to a third, but the vocabulary has no \"zz\""));
  CHECK(contains(error("z z"), "no \"zz\""));
  CHECK(contains(error("\xc3\xa0 \xc2\xb8\n\xc3\xa0 \xc2\xb8\n"), "must have each pair once"));
  CHECK(contains(message_of<IoError>([&] { BpeTokenizer::load(dir / "vocab.json", dir / "none"); }), "none"));
  CHECK(contains(message_of<IoError>([&] { BpeTokenizer::load(dir / "none"); }), "none"));
}

TEST_CASE("BpeTokenizer: tokens, their bytes, and ids that are not there") {
  const BpeTokenizer t = BpeTokenizer::load(tokenizer_folder() / "gpt2.json");
  const int64_t end = t.id("<|endoftext|>"), space = t.id("\xc4\xa0");
  CHECK(t.token(end) == "<|endoftext|>");
  CHECK(t.id("no such token") == -1);
  CHECK(t.bytes(Ids{space, end}) == " ");
  CHECK(t.bytes(Ids{space, end}, false) == " <|endoftext|>");
  const Ids euro = t.encode("\xe2\x82\xac");
  REQUIRE(euro.size() >= 2);
  CHECK(t.decode(Ids(euro.begin(), euro.end() - 1)) == "\xef\xbf\xbd");
  CHECK(t.bytes(Ids(euro.begin(), euro.end() - 1)) ==
        std::string("\xe2\x82\xac").substr(0, t.bytes(Ids(euro.begin(), euro.end() - 1)).size()));
  CHECK(
      contains(message_of<IndexError>([&] { t.decode(Ids{t.size()}); }), "an id must be in [0, " + std::to_string(t.size()) + ")"));
  CHECK_THROWS_AS(t.token(-1), IndexError);
  CHECK(message_of<DataError>([&] { t.encode("ab\xff"); }) ==
        "[BpeTokenizer] a text must be UTF-8, but byte 2 is 255\nhelp: iconv converts a text from another encoding");
}

TEST_CASE("BpeTokenizer: long words take no time, and threads share a tokenizer") {
  const BpeTokenizer t = BpeTokenizer::load(tokenizer_folder() / "gpt2.json");
  CHECK(t.decode(t.encode(std::string(1 << 20, 'e'))) == std::string(1 << 20, 'e'));
  CHECK(t.decode(t.encode(std::string(1 << 20, ' '))) == std::string(1 << 20, ' '));
  const std::string text = read_bytes(tokenizer_folder() / "gpt2.json");
  const Ids expected = t.encode(text);
  std::vector<std::thread> threads;
  std::vector<int> same(4);
  for (size_t i = 0; i < same.size(); ++i) {
    threads.emplace_back([&, i] {
      const BpeTokenizer copy = t;
      for (int k = 0; k < 5; ++k) same[i] += copy.encode(text) == expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(same == std::vector<int>(4, 5));
}

TEST_CASE("BpeTokenizer: what a file asks for and is not done is an error that names it") {
  using Json = nlohmann::json;
  const auto set = [](const char* pointer, Json value) {
    return refusal([&](Json& file) { file[Json::json_pointer(pointer)] = std::move(value); });
  };
  CHECK(set("/version", "2.0") == "version must be \"1.0\", got \"2.0\"");
  CHECK(set("/model/type", "WordPiece") == "model.type must be \"BPE\", got \"WordPiece\"");
  CHECK(set("/model/dropout", 0.1) == "model.dropout must be null or 0, got 0.1");
  CHECK(set("/model/byte_fallback", true) == "model.byte_fallback must be false, got true");
  CHECK(set("/model/end_of_word_suffix", "</w>") == "model.end_of_word_suffix must be null or empty, got \"</w>\"");
  CHECK(set("/model/another", 1) == "model.another is not supported, got 1");
  CHECK(set("/model/vocab/a", 1 << 20).starts_with("model.vocab.a must be an integer in [0, "));
  CHECK(set("/model/vocab/a", 5) == "model.vocab.a must be an id that no other token has, got 5");
  CHECK(set("/model/vocab/a", -1).ends_with(", got -1"));
  CHECK(set("/model/vocab/a", 1.5).ends_with(", got 1.5"));
  CHECK(set("/model/vocab", Json::object({{"a", 0}}))
            .starts_with("model.vocab must have a token for each byte, and has none for byte 0"));
  CHECK(set("/model/merges/3", "a") == "model.merges[3] must be two tokens with a space between, got \"a\"");
  CHECK(set("/model/merges/3", Json::array({"a"})) == "model.merges[3] must be two tokens, got [\"a\"]");
  CHECK(set("/model/merges/3", "qq z") == "model.merges[3] must join two tokens to a third, but the vocabulary has no \"qq\"");
  CHECK(contains(refusal([](Json& f) { f["model"]["merges"][3] = f["model"]["merges"][2]; }),
                 "model.merges must have each pair once"));
  CHECK(set("/model", 3) == "model must be an object, got 3");
  CHECK(set("/normalizer", Json{{"type", "NFKC"}}) ==
        "normalizer.type must be \"NFC\"; a normalizer may also be null, got \"NFKC\"");
  CHECK(set("/pre_tokenizer/type", "Whitespace").starts_with("pre_tokenizer.type must be \"ByteLevel\", "));
  CHECK(set("/pre_tokenizer", nullptr) == "pre_tokenizer must be an object with a type, got null");
  const Json split = {{"type", "Split"}, {"pattern", {{"Regex", "x+"}}}, {"behavior", "Isolated"}, {"invert", false}};
  CHECK(set("/pre_tokenizer", split) ==
        "pre_tokenizer.pattern.Regex must be the expression of GPT-2, of Llama 3 or of Qwen 2, got \"x+\"");
  CHECK(
      set("/pre_tokenizer", {{"type", "Digits"}, {"individual_digits", true}}).starts_with("pre_tokenizer must end in ByteLevel"));
  CHECK(set("/decoder", nullptr) == "decoder must be of type \"ByteLevel\", got null");
  CHECK(set("/truncation", Json{{"max_length", 5}}).starts_with("truncation must be null"));
  CHECK(set("/post_processor/type", "Other").starts_with("post_processor.type must be \"ByteLevel\", "));
  CHECK(set("/added_tokens/0/single_word", true).starts_with("added_tokens[0].single_word must be false"));
  CHECK(set("/added_tokens/0/id", 7).ends_with("the token's id in model.vocab, got 7"));
  CHECK(set("/added_tokens/0/content", "new").starts_with("added_tokens[0].id must be "));
  CHECK(set("/added_tokens/0/content", "").starts_with("added_tokens[0].content must not be empty"));
  CHECK(contains(refusal([](Json& f) { f["added_tokens"].push_back(f["added_tokens"][0]); }),
                 "added_tokens[1].content must be there once"));

  const TempDir dir;
  write_bytes(dir / "t.json", "{\"a\":\n}");
  CHECK(contains(message_of<DataError>([&] { BpeTokenizer::load(dir / "t.json"); }), "t.json:2:1: the file must be JSON: "));
}

TEST_CASE("BpeTokenizer: what is the same in other words") {
  using Json = nlohmann::json;
  const TempDir dir;
  const auto load = [&](const std::function<void(Json&)>& change) {
    Json file = small_file();
    change(file);
    write_bytes(dir / "t.json", file.dump());
    return BpeTokenizer::load(dir / "t.json");
  };
  const std::string text = "I'll pay 1234  now<|endoftext|>.\n";
  const Ids expected = load([](Json&) {}).encode(text);
  const Json step = {{"type", "Split"},
                     {"pattern", {{"Regex", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"}}},
                     {"behavior", "Removed"},
                     {"invert", true}};
  const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  const BpeTokenizer split = load([&](Json& f) { f["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {step, bytes}}}; });
  CHECK(split.encode(text) == expected);
  const BpeTokenizer pairs = load([](Json& f) {
    for (Json& merge : f["model"]["merges"]) {
      const std::string line = merge;
      merge = Json::array({line.substr(0, line.find(' ')), line.substr(line.find(' ') + 1)});
    }
  });
  CHECK(pairs.encode(text) == expected);
}

TEST_CASE("Unicode: what is no UTF-8 becomes U+FFFD, one for each longest beginning of a code point") {
  const std::string r = "\xef\xbf\xbd";
  CHECK(replace_not_utf8("a\xc3\xa9") == "a\xc3\xa9");
  CHECK(replace_not_utf8("\xe2\x82") == r);
  CHECK(replace_not_utf8("\xf0\x9f\x98x") == r + "x");
  CHECK(replace_not_utf8("\xf0\x8f\x98") == r + r + r);
  CHECK(replace_not_utf8("\xed\xa0\x80") == r + r + r);
  CHECK(replace_not_utf8("\xe2\x82\xe2\x82\xac") == r + "\xe2\x82\xac");
  CHECK(replace_not_utf8("\xff\xc3") == r + r);
}

TEST_CASE("BpeTokenizer: as the text of one file, and back") {
  const std::string folder = halfstep_source_dir() + "/tests/data/tokenizers/";
  for (const BpeTokenizer& tokenizer : {BpeTokenizer::load(folder + "gpt2-vocab.json", folder + "gpt2-merges.txt"),
                                        BpeTokenizer::load(folder + "llama3.json")}) {
    const BpeTokenizer again = BpeTokenizer::from_json(tokenizer.json());
    const std::string text = "Hello  world's 1234 \n\t caf\u00e9 <|endoftext|> x";
    CHECK(again.encode(text) == tokenizer.encode(text));
    CHECK(again.size() == tokenizer.size());
    CHECK(again.json() == tokenizer.json());
  }
}
