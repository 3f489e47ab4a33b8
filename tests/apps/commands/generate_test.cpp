// SPDX-License-Identifier: Apache-2.0
// halfstep generate: text of trained models, token by token.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <regex>
#include <set>

#include "apps/use/generator.h"
#include "tests/apps/support.h"
#include "tests/support/source_dir.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

const char* const kRecurrent = R"([{"type": "Embedding", "num_embeddings": "auto", "embedding_dim": 12},
  {"type": "LSTM", "hidden_size": 16, "batch_first": true}, {"type": "Linear", "out_features": "auto"}])";
const char* const kTransformer = R"([{"type": "Embedding", "num_embeddings": "auto", "embedding_dim": 16},
  {"type": "PositionEmbedding", "max_len": 16},
  {"type": "TransformerEncoder", "num_layers": 2, "nhead": 2, "dim_feedforward": 32, "is_causal": true, "norm": true},
  {"type": "Linear", "out_features": "auto"}])";

// A run in the folder "out" of a model of text.
void train_text(const TempDir& dir, const std::string& tokenizer, const std::string& layers, const std::string& more = "",
                const std::string& amp = "", std::string text = "") {
  const bool given = !text.empty();
  for (int i = 0; !given && i < 120; ++i) text += "the cat sat on the mat\nthe dog lay by the l\u00f6g\n";
  write(dir / "text.txt", text);
  write(dir / "run.json", R"({"version": 1, "name": "t", "output_dir": "out", "seed": 1, )" + amp + R"(
    "data": {"root": ".", "train": {"type": "Text", "path": "text.txt", "seq_len": 16, "tokenizer": ")" +
                              tokenizer + "\"" + more + R"(}, "loader": {"batch_size": 8}},
    "model": {"type": "Sequential", "layers": )" +
                              layers + R"(},
    "loss": "CrossEntropyLoss", "optimizer": {"type": "Adam", "lr": 0.01}, "train": {"epochs": 1}})");
  const Ran r = run(dir, "train run.json --quiet");
  REQUIRE_MESSAGE(r.code == 0, r.err);
  fs::remove(dir / "text.txt");
}

std::string text_of(const TempDir& dir, const std::string& options) {
  const Ran r = run(dir, "generate out --length 60 " + options);
  CHECK_MESSAGE(r.code == 0, r.err);
  return r.out;
}

}  // namespace

TEST_CASE("probabilities of tokens: temperature, top_k, top_p") {
  const std::vector<float> scores = {0.f, std::log(2.f), std::log(4.f), std::log(1.f)};  // 1, 2, 4 and 1 eighths
  const auto near = [](const std::vector<double>& got, const std::vector<double>& want) {
    REQUIRE(got.size() == want.size());
    for (size_t i = 0; i < got.size(); ++i) CHECK(got[i] == doctest::Approx(want[i]).epsilon(1e-6));
  };
  near(token_probabilities(scores, {}), {0.125, 0.25, 0.5, 0.125});
  near(token_probabilities(scores, {.temperature = 0.5}), {1 / 22.0, 4 / 22.0, 16 / 22.0, 1 / 22.0});
  near(token_probabilities(scores, {.temperature = 0}), {0, 0, 1, 0});
  near(token_probabilities(scores, {.top_k = 2}), {0, 1 / 3.0, 2 / 3.0, 0});
  near(token_probabilities(scores, {.top_k = 3}), {1 / 7.0, 2 / 7.0, 4 / 7.0, 0});  // of two equal ones the first
  near(token_probabilities(scores, {.top_p = 0.5}), {0, 0, 1, 0});
  near(token_probabilities(scores, {.top_p = 0.6}), {0, 1 / 3.0, 2 / 3.0, 0});
  CHECK_THROWS_AS(token_probabilities(scores, {.temperature = -1}), ValueError);
  CHECK_THROWS_AS(token_probabilities(scores, {.top_p = 0}), ValueError);
  CHECK_THROWS_WITH_AS(token_probabilities(std::vector<float>{0, std::nanf("")}, {}),
                       doctest::Contains("the model's scores are NaN"), ValueError);
  const std::vector<double> p = {0.25, 0, 0.75};
  CHECK(token_at(p, 0) == 0);
  CHECK(token_at(p, 0.2499) == 0);
  CHECK(token_at(p, 0.25) == 2);
  CHECK(token_at(p, 0.9999999) == 2);
}

TEST_CASE("generate: a prompt in another Unicode form, with CRLF or a byte-order mark is read as the training text is") {
  const TempDir dir;
  train_text(dir, "char", kRecurrent);
  write(dir / "p.txt", "\xef\xbb\xbfthe l\xc3\xb6g\n");
  const auto tokens = [&](const std::string& options) {
    const Ran r = run(dir, "generate out --length 5 --json " + options);
    REQUIRE_MESSAGE(r.code == 0, r.err);
    return r.json()["prompt_tokens"];
  };
  const Json right = tokens("--prompt-file p.txt");
  write(dir / "nfd.txt", "the lo\xcc\x88g\r\n");
  CHECK(tokens("--prompt-file nfd.txt") == right);
  CHECK(contains(run(dir, "generate out --length 5 --prompt-file nfd.txt").err, "note: the model reads the prompt with "));
  CHECK(!contains(run(dir, "generate out --length 5 --prompt-file p.txt").err, "reads the prompt"));
  std::string wide = "\xff\xfe";  // as PowerShell's > writes it
  for (const char c : std::string("the log\n")) wide += c, wide += '\0';
  write(dir / "wide.txt", wide);
  write(dir / "plain.txt", "the log\n");
  CHECK(tokens("--prompt-file wide.txt") == tokens("--prompt-file plain.txt"));
  CHECK(contains(run(dir, "generate out --length 5 --prompt-file wide.txt").err, "note: the prompt: read as UTF-16"));
}

TEST_CASE("generate: the same text for the same seed, token by token and from the whole window") {
  const std::string bpe =
      R"(, "tokenizer_file": ")" + (fs::path(halfstep_source_dir()) / "tests/data/tokenizers/gpt2.json").string() + "\"";
  struct Case {
    const char *tokenizer, *layers;
    std::string more;
  };
  for (const Case& c : {Case{"char", kRecurrent, ""}, Case{"word", kRecurrent, ""}, Case{"byte", kTransformer, ""},
                        Case{"char", kTransformer, ""}, Case{"bpe", kTransformer, bpe}}) {
    CAPTURE(c.tokenizer);
    const TempDir dir;
    train_text(dir, c.tokenizer, c.layers, c.more);
    const std::string first = text_of(dir, "--prompt 'the cat' --seed 7");
    CHECK(first.starts_with("the cat"));
    CHECK(text_of(dir, "--prompt 'the cat' --seed 7") == first);
    CHECK(text_of(dir, "--prompt 'the cat' --seed 8") != first);
    CHECK(text_of(dir, "--prompt 'the cat' --top-k 1 --seed 3") == text_of(dir, "--prompt 'the cat' --temperature 0"));
    const Json j = run(dir, "generate out --length 40 --json --no-amp").json();
    CHECK(j["by_steps"] == true);
    CHECK(j["tokens"].size() == 40);

    const fs::path here = fs::current_path();
    fs::current_path(dir.path());
    Predictor model("out", {.amp = false});
    fs::current_path(here);
    for (const int64_t length : {1, 9}) {  // of the prompt; then up to the window's end and beyond
      std::vector<int64_t> tokens(size_t(length), 1);
      const SequenceReaderOptions options{.seq_len = 16, .vocabulary = model.form().vocabulary};
      SequenceReaderOptions whole = options;
      whole.by_steps = false;
      SequenceReader steps(*model.parts().model, options), window(*model.parts().model, whole);
      CHECK(steps.by_steps());
      CHECK(!window.by_steps());
      for (int i = 0; i < 16 - length; ++i) {
        const auto a = steps.read(i == 0 ? std::span<const int64_t>(tokens) : std::span<const int64_t>(tokens).last(1));
        const auto b = window.read(i == 0 ? std::span<const int64_t>(tokens) : std::span<const int64_t>(tokens).last(1));
        float largest = 0, error = 0;
        for (size_t k = 0; k < a.size(); ++k)
          largest = std::max(largest, std::abs(b[k])), error = std::max(error, std::abs(a[k] - b[k]));
        CHECK(error <= 1e-5f * std::max(largest, 1.f));
        tokens.push_back(int64_t(std::max_element(a.begin(), a.end()) - a.begin()));
      }
    }
  }
}

TEST_CASE("generate: what does not fit") {
  const TempDir dir;
  train_text(dir, "char", kRecurrent);
  const Ran unknown = run(dir, "generate out --prompt 'the Cat'");
  CHECK(unknown.code == 3);
  CHECK_MESSAGE(unknown.err.find("prompt:1:5") != std::string::npos, unknown.err);
  CHECK(run(dir, "generate nowhere").code == 3);
  CHECK(run(dir, "generate out --temperature -1").code == 2);
  CHECK(run(dir, "generate out --prompt-file none.txt").code == 3);
  const Ran refused = run(dir, "predict out text.txt");
  CHECK(refused.code != 0);
  CHECK(refused.err.find("halfstep generate") != std::string::npos);
  fs::copy(fs::path(halfstep_source_dir()) / "tests/compat/0.1.0", dir / "old", fs::copy_options::recursive);
  const Ran table = run(dir, "generate old/trees");
  CHECK(table.code != 0);
}

TEST_CASE("generate: a model that cannot read token by token computes its window again, and says so once") {
  std::string sees_all = kTransformer;
  sees_all.replace(sees_all.find("\"is_causal\": true"), 17, "\"is_causal\": false");
  const TempDir dir;
  train_text(dir, "char", sees_all);
  const Ran r = run(dir, "generate out --length 30 --seed 2");
  CHECK(r.code == 0);
  CHECK(r.err.find("note: the model cannot read token by token, so each token computes up to 16 again: ") != std::string::npos);
  CHECK(run(dir, "generate out --length 30 --seed 2").out == r.out);
  CHECK(run(dir, "generate out --length 5 --json").json()["by_steps"] == false);
}

TEST_CASE("generate: words that the training text does not have are said once") {
  const TempDir dir;
  train_text(dir, "word", kRecurrent);
  const Ran r = run(dir, "generate out --length 3 --prompt 'the zebra sat on the zebra and the gnu'");
  CHECK(r.code == 0);
  CHECK(contains(
      r.err, "note: the training text does not have 3 words of the prompt, and the model reads <unk> instead: zebra, and, gnu\n"));
  CHECK_FALSE(contains(run(dir, "generate out --length 3 --prompt 'the cat sat'").err, "note:"));
}

TEST_CASE("generate: other positions, token files and mixed precision") {
  const std::string layers = R"([{"type": "Embedding", "num_embeddings": "auto", "embedding_dim": 16}, POSITIONS,
    {"type": "TransformerEncoder", "num_layers": 2, "nhead": 2, "dim_feedforward": 32, "dropout": 0.0, "is_causal": true},
    {"type": "Linear", "out_features": "auto"}])";
  // Token by token, and the whole window again for each: the same tokens.
  const auto both_ways = [](const TempDir& dir, bool amp, const std::string& prompt) {
    const fs::path here = fs::current_path();
    fs::current_path(dir.path());
    Predictor model("out", {.amp = amp});
    fs::current_path(here);
    std::vector<int64_t> tokens[2];
    for (const bool by_steps : {true, false}) {
      TextSampler sampler(model, {.temperature = 0, .by_steps = by_steps});
      CHECK(sampler.reader().by_steps() == by_steps);
      sampler.start(prompt);
      for (int i = 0; i < 10; ++i) sampler.next();
      tokens[by_steps] = sampler.tokens();
    }
    CHECK(tokens[0] == tokens[1]);
    CHECK(std::set<int64_t>(tokens[0].begin(), tokens[0].end()).size() > 2);  // it is no repetition of one
  };
  for (const std::string positions : {R"({"type": "RotaryEmbedding"})", R"({"type": "PositionalEncoding", "dropout": 0.0})"}) {
    CAPTURE(positions);
    std::string with = layers;
    with.replace(with.find("POSITIONS"), 9, positions);
    for (const bool amp : {false, true}) {
      const TempDir dir;
      train_text(dir, "char", with, "", amp ? R"("amp": {"dtype": "bfloat16"},)" : "");
      both_ways(dir, amp, "the c");
    }
  }
  for (const std::string kind : {"u16", "u32"}) {
    CAPTURE(kind);
    const TempDir dir;
    std::string with = layers;
    with.replace(with.find("POSITIONS"), 9, R"({"type": "PositionEmbedding", "max_len": 16})");
    std::string bytes;
    for (int i = 0; i < 3000; ++i) {
      bytes += char(i % 7 * (i % 3 + 1));
      bytes.append(kind == "u16" ? 1 : 3, '\0');
    }
    train_text(dir, kind, with, "", "", bytes);
    both_ways(dir, false, "1 2 3");
    const Ran r = run(dir, "generate out --length 4 --prompt '1 2 3' --temperature 0");
    CHECK(r.code == 0);
    CHECK(std::regex_match(r.out, std::regex("1 2 3( \\d+){4}\n")));
    const Ran beyond = run(dir, "generate out --length 4 --prompt '1 99'");
    CHECK(beyond.code == 3);
    CHECK(contains(beyond.err, "prompt, number 2: tokens must be whole numbers in 0..18, got \"99\""));
  }
}
