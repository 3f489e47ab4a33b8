// SPDX-License-Identifier: Apache-2.0
// Tables whose input is a text, from `halfstep init` to the exported file.
#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "tests/apps/support.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

std::string rows(const std::string& header, int n, const std::function<std::string(int)>& row) {
  std::string out = header + '\n';
  for (int i = 0; i < n; ++i) out += row(i) + '\n';
  return out;
}

// Reviews of films: two of the words say what the person thought.
std::string review(int i) {
  constexpr const char* kGood[] = {"wonderful", "moving", "brilliant"};
  constexpr const char* kBad[] = {"dull", "awful", "boring"};
  constexpr const char* kOthers[] = {"film", "story", "actor", "scene", "music", "ending", "camera"};
  const char* const said = i % 2 ? kGood[i / 2 % 3] : kBad[i / 2 % 3];
  return std::string("The ") + kOthers[i * 5 % 7] + " was " + said + ", and the " + kOthers[i * 3 % 7] + " of number " +
         std::to_string(i) + " as well";
}

}  // namespace

TEST_CASE("texts of a table: init, train, predict, export") {
  const TempDir dir;
  write(dir / "reviews.csv", rows("id,review,label", 200, [](int i) {
          return std::to_string(1000 + i) + ",\"" + review(i) + "\"," + (i % 2 ? "good" : "bad");
        }));
  const Ran init = run(dir, "init reviews.csv --out c.json");
  REQUIRE_MESSAGE(init.code == 0, init.err);
  CHECK_MESSAGE(
      contains(init.err, "the input is the text of review, and not id; without \"texts\" the other columns are the input"),
      init.err);
  CHECK(contains(read(dir / "c.json"), R"("texts": ["review"])"));
  const Ran valid = run(dir, "validate c.json");
  CHECK_MESSAGE(contains(valid.out, "1 column of texts (review) became"), valid.out);
  CHECK(contains(valid.out, "left out: id"));
  const Ran train = run(dir, "train c.json --quiet --set train.epochs=30 --set logging.report=html");
  REQUIRE_MESSAGE(train.code == 0, train.err);
  CHECK(run(dir, "eval runs/reviews --json").json()["val.accuracy"].get<double>() > 0.95);
  CHECK(contains(read(dir / "runs/reviews/report.html"), "sample"));
  CHECK(contains(run(dir, "inspect data c.json").out, "1 column of texts"));

  // With and without the answer, as CSV, and single texts.
  write(dir / "new.csv", "review\n\"A wonderful, moving story\"\n\n\"Awful and dull\"\n");
  const Ran plain = run(dir, "predict runs/reviews new.csv");
  CHECK_MESSAGE((contains(plain.out, "new.csv row 1: good") && contains(plain.out, "new.csv row 3: bad")), plain.out);
  CHECK_MESSAGE((plain.code == 3 && contains(plain.err, "must have a text, but the cell is empty")), plain.err);
  const Ran csv = run(dir, "predict runs/reviews reviews.csv --csv");
  CHECK(contains(csv.out, "id,review,label,prediction,probability,error\n1000,\"The film was dull, and"));
  CHECK_MESSAGE(contains(csv.err, "200 with a known answer: accuracy"), csv.err);
  const Ran texts = run(dir, "predict runs/reviews --text 'wonderful music' --text 'so dull, ugh' --json");
  CHECK(contains(texts.out, R"("class":"good")"));
  CHECK(texts.json()["class"] == "bad");
  CHECK_MESSAGE(contains(texts.err, "words are not among them, such as"), texts.err);
  CHECK(run(dir, "predict runs/reviews --text ''").code == 3);

  const Ran onnx = run(dir, "export runs/reviews --to onnx");
  CHECK_MESSAGE(contains(onnx.err, "note: the inputs are tokens; reviews.tokenizer.json makes them of texts"), onnx.err);
  CHECK(Json::parse(read(dir / "reviews.tokenizer.json"))["model"]["vocab"].contains("wonderful"));
  CHECK(contains(run(dir, "export runs/reviews --to onnx --out other.onnx").out, "Tokenizer.from_file(\"other.tokenizer.json\")"));
  fs::remove(dir / "reviews.onnx");
  const Ran again = run(dir, "export runs/reviews --to onnx");
  CHECK_MESSAGE((again.code == 2 && contains(again.err, "reviews.tokenizer.json exists")), again.err);
  CHECK(!fs::exists(dir / "reviews.onnx"));
  CHECK(run(dir, "export runs/reviews --to dir").code == 0);
  CHECK(fs::exists(dir / "reviews-dir/tokenizer.json"));
  CHECK(run(dir, "predict reviews-dir --check --text 'a moving scene'").code == 0);
  CHECK(run(dir, "generate runs/reviews --prompt x").code == 2);
}

TEST_CASE("texts of a table: which columns init takes, and what it says of others") {
  const TempDir dir;
  const auto begin = [&](const std::string& csv, const std::string& more = "") {
    write(dir / "t.csv", csv);
    fs::remove(dir / "c.json");
    const Ran r = run(dir, "init t.csv --out c.json " + more);
    return r.err + read(dir / "c.json");
  };
  const auto has = [](const std::string& text, const std::string& part) { CHECK_MESSAGE(contains(text, part), part, '\n', text); };
  const auto quoted = [](const std::string& text) { return '"' + text + '"'; };
  // Two texts, and none of a category beside them.
  has(begin(rows("title,body,label", 60,
                 [&](int i) {
                   return quoted("A title of film " + std::to_string(i)) + ',' + quoted(review(i)) + ',' + (i % 2 ? "a" : "b");
                 })),
      R"("texts": ["title", "body"])");
  // A number to predict.
  const std::string stars =
      begin(rows("review,stars", 60, [&](int i) { return quoted(review(i)) + ',' + std::to_string(i) + ".5"; }));
  has(stars, R"("task": "regression")");
  has(stars, R"("texts": ["review"])");
  // Numbers beside the text: a long one is taken for classes, else the numbers are, and a person decides.
  const auto mixed = [&](int columns) {
    return rows(columns == 2 ? "review,a,b,y" : "review,a,b,c,d,y", 60, [&](int i) {
      std::string out = quoted(review(i));
      for (int k = 0; k < columns; ++k) out += ',' + std::to_string((i + k) * 7 % 11);
      return out + ',' + (i % 2 ? "yes" : "no");
    });
  };
  has(begin(mixed(2)), R"("texts": ["review"])");
  has(begin(mixed(4)), "left out: review has free texts");
  has(begin(mixed(4), "--text review"), R"("texts": ["review"])");
  has(begin(mixed(4), "--text a"), "--text must be a column of texts, but a has numbers");
  has(begin(mixed(4), "--text y"), "--text must not be the target, y");
  has(begin(mixed(4), "--text z"), "has no column \"z\"");
  // Names, of which the letters say something; and a language without blanks.
  has(begin(rows("name,y", 60,
                 [](int i) {
                   return "n" + std::string(size_t(1 + i % 7), char('a' + i % 26)) + std::to_string(i) + ',' + (i % 2 ? "f" : "m");
                 })),
      R"("tokenizer": "char")");
  // Texts that are missing.
  has(begin(rows("review,y", 60, [&](int i) { return (i % 9 ? quoted(review(i)) : "") + ',' + (i % 2 ? "f" : "m"); })),
      R"("missing": "constant")");
}

TEST_CASE("texts of a table: keys that do not fit") {
  const TempDir dir;
  write(dir / "t.csv", "a,b,y\nsome text,1,x\nother text,2,z\n");
  const auto says = [&](const std::string& keys, const char* padding = "0") {
    write(dir / "c.json", R"({"data": {"root": ".", "train": {"type": "CSV", "path": "t.csv", )" + keys +
                              R"(}}, "model": {"type": "Sequential", "layers": [{"type": "EmbeddingBag", "num_embeddings": "auto",
                              "embedding_dim": 4, "padding_idx": )" + padding + R"(}, {"type": "Linear", "out_features": "auto"}]},
                              "loss": "CrossEntropyLoss", "optimizer": "SGD", "train": {"epochs": 1}})");
    const Ran r = run(dir, "validate c.json");
    return r.out + r.err;
  };
  const auto has = [](const std::string& text, const std::string& part) { CHECK_MESSAGE(contains(text, part), part, '\n', text); };
  has(says(R"("texts": ["a"], "features": ["b"])"), "data.train.features: is for columns of numbers and categories, but texts are");
  has(says(R"("texts": ["a"], "standardize": true)"), "data.train.standardize: is for columns of numbers");
  has(says(R"("texts": ["a"], "missing": "median")"), "data.train.missing: of texts must be \"refuse\"");
  has(says(R"("tokenizer": "char")"), "data.train.tokenizer: is for \"texts\", which names no column");
  has(says(R"("texts": ["a"], "tokenizer": "bpe")"), "data.train.tokenizer_file: must name the tokenizer");
  has(says(R"("texts": ["a"], "min_count": 1)", "1"),
      "model.layers.0.padding_idx: leaves out token 1, but data.train fills texts up with token 0");
  has(says(R"("texts": ["c"])"), "has no column \"c\"");
  has(says(R"("texts": ["y"])"), "\"y\" is the target");
  has(says(R"("texts": ["a", "b"], "seq_len": 2)"), "seq_len must leave a token for each of 2 texts");
  has(says(R"("texts": ["a"], "min_count": 3)"), "no word is in the texts 3 times");
}
