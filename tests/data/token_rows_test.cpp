// SPDX-License-Identifier: Apache-2.0
// Rows of tokens against the package `tokenizers` (scripts/make_tokenizer_goldens.py), and tables whose input is a text.
#include "framework/data/tokens/token_rows.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "framework/base/check.h"
#include "framework/data/tables/csv.h"
#include "framework/data/tokens/bpe.h"
#include "framework/data/transforms/data_form.h"
#include "framework/io/checkpoint/checkpoint.h"
#include "tests/io/files.h"
#include "tests/support/source_dir.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

using Ids = std::vector<int64_t>;

std::filesystem::path tokenizers() { return std::filesystem::path(halfstep_source_dir()) / "tests/data/tokenizers"; }

Ids row_of(const TokenRows& tokens, const std::vector<std::string>& texts, TokenRows::Counts* counts = nullptr) {
  TokenRows::Counts ignored;
  Ids out(size_t(tokens.options().length));
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  tokens.encode(views, out.data(), counts ? *counts : ignored);
  return out;
}

constexpr const char* kReviews =
    "id,review,label,title\n"
    "1,\"A good, good film\",pos,Fine\n"
    "2,A bad film,neg,bad\n"
    "3,GOOD good good,pos,Good\n"
    "4,bad and long and bad and long and bad,neg,no\n"
    "5,,pos,Good\n"
    "6,a film,neg,\n";

CsvOptions reviews(std::vector<std::string> columns, CsvMissing missing = CsvMissing::constant) {
  return {.target = "label", .features = std::move(columns), .missing = missing, .tokens = TokenRowOptions{.length = 5}};
}

}  // namespace

TEST_CASE("TokenRows: rows and files are those of the package tokenizers") {
  for (const auto& [name, tokenizer] :
       {std::pair("table_words.json", Tokenizer::word), {"table_characters.json", Tokenizer::character}}) {
    const auto golden = nlohmann::json::parse(read_bytes(tokenizers() / name));
    const std::string of = name;
    const TokenRows tokens({.tokenizer = tokenizer, .length = 8}, Vocabulary(golden["vocabulary"].get<std::vector<std::string>>()));
    CHECK(nlohmann::json::parse(tokens.tokenizer_json()) == golden["tokenizer"]);
    for (const auto& row : golden["rows"]) CHECK_MESSAGE(row_of(tokens, row[0]) == row[1].get<Ids>(), of, ": ", row[0].dump());
  }
}

TEST_CASE("TokenRows: what is learnt, cut and unknown") {
  const TextColumns texts = {{"b a, a", "a b!", "rare b"}};
  const Ids all = {0, 1, 2};
  const TokenRows tokens({.length = 4}, texts, all);
  CHECK(tokens.vocabulary().tokens() == std::vector<std::string>{"<pad>", "<unk>", "<sep>", "a", "b"});
  TokenRows::Counts counts;
  CHECK(row_of(tokens, {"B zyx a b a"}, &counts) == Ids{4, 1, 3, 4});
  CHECK(row_of(tokens, {"a"}, &counts) == Ids{3, 0, 0, 0});
  CHECK(tokens.describe(counts) == "1 of 2 texts is longer and is cut; 1 of 6 words are not among them, such as \"zyx\"");
  CHECK(tokens.decode(Ids{4, 1, 3, 0}) == "b <unk> a");
  CHECK(tokens.describe({}).empty());
  CHECK(TokenRows({.length = 4, .max_tokens = 1, .min_count = 1}, texts, all).size() == 4);
  const TokenRows letters({.tokenizer = Tokenizer::character, .length = 3}, {{"aB", "aB"}}, Ids{0, 1});
  CHECK(row_of(letters, {"Ba"}) == Ids{3, 4, 0});
  CHECK(letters.decode(Ids{3, 4, 0}) == "Ba");
  CHECK(contains(message_of<DataError>([&] { TokenRows({.length = 4, .min_count = 9}, texts, all); }),
                 "no word is in the texts 9 times"));
  CHECK(contains(message_of<ValueError>([&] { TokenRows({.tokenizer = Tokenizer::byte}, texts, all); }), "must be \"word\""));
  CHECK(contains(message_of<ValueError>([&] { TokenRows({.length = 2}, {{"a"}, {"b"}}, Ids{0}); }), "got 2"));
  CHECK_THROWS_AS(TokenRows({}, Vocabulary({"a"})), ValueError);
}

TEST_CASE("TokenRows: byte-level BPE has its own padding") {
  const auto bpe = std::make_shared<const BpeTokenizer>(BpeTokenizer::load(tokenizers() / "gpt2.json"));
  const TokenRows tokens({.tokenizer = Tokenizer::bpe, .length = 40, .bpe = bpe}, Vocabulary());
  CHECK(tokens.size() == bpe->size() + 1);
  CHECK(tokens.padding() == bpe->size());
  const Ids row = row_of(tokens, {"we say", "more"});
  Ids wanted = bpe->encode("we say", false);
  wanted.push_back(bpe->id("<|endoftext|>"));
  for (const int64_t id : bpe->encode("more", false)) wanted.push_back(id);
  wanted.resize(40, bpe->size());
  CHECK(row == wanted);
  CHECK(tokens.decode(row) == "we say<|endoftext|>more");
  const auto roberta = std::make_shared<const BpeTokenizer>(BpeTokenizer::load(tokenizers() / "roberta.json"));
  CHECK(TokenRows({.tokenizer = Tokenizer::bpe, .bpe = roberta}, Vocabulary()).padding() == roberta->id("<pad>"));
}

TEST_CASE("csv: texts as input") {
  const TempDir dir;
  write_bytes(dir / "t.csv", kReviews);
  const CsvDataset data(dir / "t.csv", reviews({"review"}));
  CHECK(data.input_dtype() == DType::i64);
  CHECK(data.input_shape() == Shape{5});
  CHECK(data.vocabulary() == data.encoding().tokens->size());
  CHECK(data.encoding().tokens->vocabulary().find("film") > 0);
  CHECK(data.encoding().tokens->vocabulary().find(",") < 0);  // once: no token
  CHECK(contains(data.notes().summary, "1 column of texts (review) became 5 tokens a row, of "));
  CHECK(contains(data.notes().summary, "1 of 6 texts is longer and is cut"));
  CHECK(contains(data.notes().summary, "left out: id, title"));
  CHECK(contains(data.notes().summary, "1 missing value filled in"));
  const int64_t good = data.encoding().tokens->vocabulary().find("good");
  CHECK(data.input().select(0, 2).to_vector<int64_t>() == Ids{good, good, good, 0, 0});
  CHECK(data.input().select(0, 4).to_vector<int64_t>() == Ids(5, 0));
  CHECK(contains(message_of<DataError>([&] { CsvDataset(dir / "t.csv", reviews({"review"}, CsvMissing::refuse)); }),
                 "must have a text, but the cell is empty\nhelp: missing: drop_row leaves the row out"));
  CHECK(CsvDataset(dir / "t.csv", reviews({"review", "title"}, CsvMissing::drop_row)).size() == 4);

  // Other rows, with the training data's tokens, by name and as a checkpoint has them.
  write_bytes(dir / "new.csv", "title,label,review\nx,pos,good unheard\nx,none,\n");
  const DataForm form = read_form(to_json(data.form()));
  CHECK(form.vocabulary == data.vocabulary());
  const CsvOptions& how = std::get<TableForm>(form.source).options;
  const CsvRows rows = read_csv_rows(dir / "new.csv", how);
  CHECK(rows.faults == std::vector<std::string>{"", ""});
  CHECK(rows.input.dtype() == DType::i64);
  CHECK(rows.input.to_vector<int64_t>() == Ids{good, 1, 0, 0, 0, 0, 0, 0, 0, 0});
  CHECK(contains(rows.notes.summary, "1 of 2 words are not among them, such as \"unheard\""));
  CHECK(rows.unknown_answers == 1);
  const CsvRows texts = rows_of_texts({" Good ", "\xff"}, how);
  CHECK(texts.rows == std::vector<size_t>{0});
  CHECK(texts.input.to_vector<int64_t>() == Ids{good, 0, 0, 0, 0});
  CHECK(texts.faults[1] == "the text must be UTF-8");
  const CsvDataset two(dir / "t.csv", reviews({"title", "review"}));
  CHECK_THROWS_AS(rows_of_texts({"a"}, std::get<TableForm>(two.form().source).options), ValueError);
  CHECK(two.input().select(0, 2).to_vector<int64_t>() == Ids{good, 2, good, good, good});

  // A stored form that no program wrote.
  nlohmann::json stored = *to_json(data.form());
  const auto refused = [&](const auto& change) {
    nlohmann::json bad = stored;
    change(bad["source"]["texts"]);
    CHECK_THROWS_AS(read_form(JsonValue(bad)), CheckpointError);
  };
  refused([](auto& t) { t["length"] = 6; });
  refused([](auto& t) { t["tokens"][0] = "x"; });
  refused([](auto& t) { t["tokens"].push_back("x"); });
  refused([](auto& t) { t["tokenizer"] = "byte"; });
}
