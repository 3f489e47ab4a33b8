// SPDX-License-Identifier: Apache-2.0
// Runs over tokens: the keys of a config about them, and that a stopped run resumes to the bit.
#include <doctest/doctest.h>

#include "apps/catalog/losses.h"
#include "apps/config/config.h"
#include "framework/io/files/checksum.h"
#include "framework/ops/ops.h"
#include "tests/apps/support.h"
#include "tests/apps/tiny_run.h"
#include "tests/support/source_dir.h"

using namespace halfstep::app;
using namespace halfstep::app::testing;
using namespace halfstep;

namespace {

constexpr const char* kCharsConfig = R"({
  "name": "chars", "output_dir": "r", "device": "cpu", "seed": 3,
  "model": {"type": "Sequential", "layers": [
    {"type": "Embedding", "num_embeddings": "auto", "embedding_dim": 4},
    {"type": "LSTM", "name": "lstm", "hidden_size": 6, "num_layers": 2, "dropout": 0.1},
    {"type": "Linear", "name": "head", "out_features": "auto"}]},
  "loss": "CrossEntropyLoss", "optimizer": {"type": "Adam", "lr": 0.01},
  "data": {"root": ".", "train": {"type": "Text", "path": "t", "seq_len": 5, "range": [0, 0.8]},
           "val": {"type": "Text", "path": "t", "seq_len": 5, "range": [0.8, 1]},
           "loader": {"batch_size": 4, "stateful": true}},
  "train": {"max_steps": 14}, "logging": {"every": 1}, "checkpoint": {"every": "2 steps", "keep_last": 0}
})";

struct TextFolder : TempDir {
  TextFolder() {
    write(*this / "c.json", kCharsConfig);
    std::string text;
    for (int i = 0; i < 60; ++i) text += "to be or not " + std::string(1, char('a' + i % 7)) + "\n";  // 900 characters
    write(*this / "t", text);
  }
  std::string error(const std::string& sets) const {
    const Ran r = run(*this, "validate c.json " + sets);
    CHECK(r.code == 2);
    return r.err + r.out;
  }
};

}  // namespace

TEST_CASE("a run over streams of text, stopped and resumed, ends in the same bits") {
  const TextFolder dir;
  const std::string options = "train c.json --json --threads 1 --set amp.dtype=bfloat16 ";
  for (const char* epoch : {"", "--set train.limit_batches=3 "}) {  // 36 batches an epoch, or three
    CAPTURE(epoch);
    const Ran whole = run(dir, options + epoch + "--set output_dir=a --overwrite");
    REQUIRE_MESSAGE(whole.code == 0, whole.err);
    for (const char* from : {"step-00000004", "step-00000006"}) {
      CAPTURE(from);
      const Ran rest = run(dir, options + epoch + "--set output_dir=b --overwrite --resume a/" + from);
      REQUIRE_MESSAGE(rest.code == 0, rest.err);
      for (const char* file : {"model.safetensors", "state.safetensors"})
        CHECK(sha256_file(dir / "b/step-00000014" / file) == sha256_file(dir / "a/step-00000014" / file));
      CHECK(rest.json()["val.loss"] == whole.json()["val.loss"]);
    }
    CHECK(whole.json()["val.accuracy"].get<double>() <= 1);
  }
}

TEST_CASE("streams begin at zero in each epoch, and evaluations leave them alone") {
  const TextFolder dir;
  const std::string options =
      "train c.json --quiet --threads 1 --overwrite --set model.layers.1.dropout=0 --set optimizer.lr=1e-30 --set "
      "train.max_steps=6 ";
  const auto losses = [&](const std::string& more) {
    const Ran r = run(dir, options + more);
    REQUIRE_MESSAGE(r.code == 0, r.err);
    std::vector<double> out;
    for (const Json& line : lines_of(dir / "r/metrics.jsonl"))
      if (line.contains("train/loss")) out.push_back(line["train/loss"]);
    REQUIRE(out.size() == 6);
    return out;
  };
  const std::vector<double> two = losses("--set train.limit_batches=2 --set train.eval_every=never");
  CHECK(two[0] != two[1]);
  CHECK(std::vector<double>(two.begin(), two.begin() + 2) == std::vector<double>(two.begin() + 2, two.begin() + 4));
  CHECK(losses("--set train.limit_batches=2 --set 'train.eval_every=1 steps'") == two);
  // The state counts: without it another batch in the same place has another loss.
  const std::vector<double> none = losses("--set train.limit_batches=2 --set model.layers.1.stateful=false");
  CHECK(none[0] == two[0]);
  CHECK(none[1] != two[1]);
}

TEST_CASE("a run holds the tokens of its training data, so that what is evaluated later agrees") {
  const TextFolder dir;
  const Ran trained = run(dir, "train c.json --json --threads 1 --set train.max_steps=3");
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  const Json config = Json::parse(read(dir / "r/config.resolved.json"));
  CHECK(config["data"]["train"]["vocabulary"].size() == 13);
  CHECK(config["data"]["loader"]["shuffle"] == false);
  CHECK(config["model"]["layers"][0]["num_embeddings"] == 13);
  CHECK(config["model"]["layers"][1]["stateful"] == true);
  CHECK(config["model"]["layers"][2]["out_features"] == 13);
  fs::rename(dir / "t", dir / "other");
  const Ran evaluated = run(dir, "eval r --json --threads 1 --set data.val.path=other");
  REQUIRE_MESSAGE(evaluated.code == 0, evaluated.err);
  CHECK(evaluated.json()["val.loss"] == trained.json()["val.loss"]);
  CHECK(evaluated.json()["val.accuracy"] == trained.json()["val.accuracy"]);
}

TEST_CASE("a run over the tokens of a published tokenizer") {
  const TextFolder dir;
  const fs::path tokenizers = fs::path(halfstep_source_dir()) / "tests/data/tokenizers";
  fs::copy_file(tokenizers / "gpt2.json", dir / "tokenizer.json");
  const std::string bpe = "--set data.train.tokenizer=bpe --set data.val.tokenizer=bpe ";
  const std::string options = bpe + "--set data.train.tokenizer_file=tokenizer.json ";
  const Ran trained = run(dir, "train c.json --json --threads 1 --set train.max_steps=3 " + options);
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  const Json config = Json::parse(read(dir / "r/config.resolved.json"));
  CHECK(config["data"]["train"]["vocab_size"] == 420);
  CHECK(config["model"]["layers"][0]["num_embeddings"] == 420);
  CHECK(config["model"]["layers"][2]["out_features"] == 420);
  fs::rename(dir / "t", dir / "other");
  const Ran evaluated = run(dir, "eval r --json --threads 1 --set data.val.path=other");
  REQUIRE_MESSAGE(evaluated.code == 0, evaluated.err);
  CHECK(evaluated.json()["val.loss"] == trained.json()["val.loss"]);
  fs::rename(dir / "other", dir / "t");
  CHECK(contains(dir.error(bpe), "[data.train.tokenizer] \"bpe\" needs tokenizer_file"));
  CHECK(contains(dir.error(options + "--set data.train.vocab_size=9"), "vocab_size must be at least the tokenizer's 420, got 9"));
  write(dir / "tokenizer.json", "{}");
  const Ran damaged = run(dir, "validate c.json " + options);
  CHECK(damaged.code == 3);
  CHECK(contains(damaged.err, "tokenizer.json: model must be an object, got null"));
  fs::remove(dir / "tokenizer.json");
  const Ran missing = run(dir, "validate c.json " + options);
  CHECK(missing.code == 3);
  CHECK(contains(missing.err, "tokenizer.json"));
}

TEST_CASE("files of tokens and arrays: a run holds how many tokens and classes there are") {
  const TextFolder dir;
  std::string tokens;
  for (int i = 0; i < 900; ++i) tokens += std::string(1, char(i * i % 31)) + '\0';
  write(dir / "u", tokens);
  const Ran trained = run(dir,
                          "train c.json --json --threads 1 --set train.max_steps=3 --set data.train.path=u --set data.val.path=u "
                          "--set data.train.tokenizer=u16 --set data.val.tokenizer=u16");
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  CHECK(Json::parse(read(dir / "r/config.resolved.json"))["data"]["train"]["vocab_size"] == 29);
  fs::rename(dir / "u", dir / "other");
  const Ran evaluated = run(dir, "eval r --json --threads 1 --set data.val.path=other");
  REQUIRE_MESSAGE(evaluated.code == 0, evaluated.err);
  CHECK(evaluated.json()["val.loss"] == trained.json()["val.loss"]);
}

TEST_CASE("what a config of tokens may not say") {
  const TextFolder dir;
  CHECK(contains(dir.error("--set data.loader.shuffle=true"), "data.loader.shuffle: must not be true with stateful"));
  CHECK(contains(dir.error("--set data.val='{\"type\":\"Digits\"}'"),
                 "data.loader.stateful: needs data that can be read in streams, which is Text, but data.val is Digits"));
  CHECK(contains(dir.error("--set data.loader.stateful=false --set model.layers.1.stateful=true"),
                 "model.layers.1.stateful: needs data that is read in streams, such as Text with \"data.loader.stateful\": true"));
  CHECK(contains(dir.error("--set data.train.transforms='[\"Normalize\"]'"), "data.train.transforms"));
  CHECK(contains(dir.error("--set model='{\"type\":\"Linear\",\"out_features\":\"auto\"}'"), "model: [linear]"));
  CHECK(contains(dir.error("--set loss=MSELoss"), "MSELoss needs numbers as targets, but data.train has classes"));
  CHECK(contains(dir.error("--set model.layers.2.out_features=5"),
                 "model: the output must have shape [5, 13], one a class, got [5, 5]"));
  const Ran numbers = run(dir,
                          "validate c.json --set data.loader.stateful=false --set data.val=null "
                          "--set data.train='{\"type\":\"Random\",\"input_shape\":[5],\"classes\":3}'");
  CHECK(contains(numbers.err + numbers.out, "model.layers.0.num_embeddings: \"auto\" needs data of tokens"));
}

TEST_CASE("a class for each position is compared as one for each sample") {
  const Tensor output = from_vector<float>({1, 0, 0, 1, 5, 0, 0, 5}, {2, 2, 2}),
               target = from_vector<int64_t>({0, 0, 1, 1}, {2, 2});
  const ComparedTensors rows = by_position(output, target);
  CHECK(rows.output.shape() == Shape{4, 2});
  CHECK(rows.target.to_vector<int>() == std::vector<int>{0, 0, 1, 1});
  const Tensor numbers = from_vector<float>({1, 2}, {2, 1});
  CHECK(by_position(numbers, numbers).output.shape() == Shape{2, 1});
  CHECK(by_position(output.reshape({2, 4}), from_vector<int64_t>({0, 1}, {2})).output.shape() == Shape{2, 4});
  Issues issues;
  const Json self = validate("CrossEntropyLoss", component("loss", loss_family(), ""), "loss", issues);
  const double expected = cross_entropy(rows.output, rows.target).item<double>();
  CHECK((*build_loss(self))(output, target).item<double>() == expected);
}
