// SPDX-License-Identifier: Apache-2.0
// A step that went wrong, kept in one file: another process, without the run and its data, comes to the same verdict.
#include "apps/train/capsule.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "framework/io/checkpoint/checkpoint.h"
#include "framework/io/weights/safetensors.h"
#include "framework/ops/ops.h"
#include "tests/apps/support.h"
#include "tests/data/array_files.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

// 64 samples in x.npy and y.npy, which a run in float16 learns.
struct Problem {
  double scale = 1;
  int64_t bad_input = -1, bad_target = -1;  // samples with a NaN
  std::string model = R"({"type": "MLP", "hidden": [16, 16]})";
};
void write_problem(const TempDir& dir, const Problem& p) {
  Generator g(5);
  const Tensor x = randn({64, 8}, {}, &g), y = mm(x, randn({8, 1}, {}, &g)), shown = x * p.scale;
  if (p.bad_input >= 0) shown.select(0, p.bad_input).select(0, 3).fill_(NAN);
  if (p.bad_target >= 0) y.select(0, p.bad_target).fill_(INFINITY);
  write(dir / "x.npy", halfstep::testing::npy(shown));
  write(dir / "y.npy", halfstep::testing::npy(y));
  write(dir / "run.json", R"({"name": "run", "output_dir": "out", "device": "cpu", "seed": 1, "model": )" + p.model + R"(,
    "loss": "MSELoss", "optimizer": {"type": "SGD", "lr": 0.01},
    "data": {"train": {"type": "NPY", "root": ".", "input": "x.npy", "target": "y.npy"}, "loader": {"batch_size": 8}},
    "amp": {"dtype": "float16", "scaler": {"init_scale": 256}}, "train": {"epochs": 3}})");
}

std::vector<fs::path> capsules(const fs::path& run) {
  std::vector<fs::path> out;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(run / "capsules", none)) out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

std::string linear(const std::string& init) {
  return R"({"type": "Sequential", "layers": [{"type": "Linear", "out_features": 16, "init": [)" + init +
         R"(]}, "ReLU", {"type": "Linear", "out_features": 1}]})";
}

// A run of which a step in a capsule is left: out/capsules/step-N.safetensors.
fs::path make_capsule(const TempDir& dir, const std::string& options = "") {
  write_problem(dir, {.bad_input = 21});
  CHECK(run(dir, "train run.json --quiet " + options).code == 0);
  const auto all = capsules(dir / "out");
  REQUIRE(all.size() == 1);
  return all[0];
}

}  // namespace

TEST_CASE("a capsule gives the verdict of the run in another process, without the run and its data") {
  struct Case {
    std::string cause;
    Problem problem;
    std::string options;
  };
  const std::string wide = linear(R"({"match": "weight", "type": "constant", "val": 30000})");
  const std::string large = linear(R"({"match": "weight", "type": "constant", "val": 100000})");
  const std::string dropout = R"({"type": "MLP", "hidden": [16, 16], "dropout": 0.5})";
  const Case cases[] = {
      {"input_nonfinite", {.bad_input = 21}, ""},
      {"target_nonfinite", {.bad_target = 5}, ""},
      {"input_nonfinite", {.bad_input = 21}, "--set amp=false"},
      {"input_nonfinite", {.bad_input = 21, .model = dropout}, "--set train.accumulate_steps=4"},
      {"input_range", {.scale = 1e6}, ""},
      {"activation_range", {.scale = 100, .model = wide}, ""},
      {"activation_range",
       {.scale = 100, .model = linear(R"({"match": "weight", "type": "constant", "val": 30000})")},
       "--set train.accumulate_steps=2"},
      {"weight_range", {.model = large}, ""},
      {"divergence", {}, "--set amp=false --set optimizer.lr=3"},
      {"optimizer_blowup", {.model = dropout}, "--set optimizer.lr=30"},  // known from the losses before it
  };
  for (const Case& c : cases) {
    CAPTURE(c.cause);
    CAPTURE(c.options);
    const TempDir dir, elsewhere;
    write_problem(dir, c.problem);
    const Ran trained = run(dir, joined("train run.json ", c.options));
    CAPTURE(trained.out);
    CAPTURE(trained.err);
    const auto all = capsules(dir / "out");
    REQUIRE(all.size() >= 1);
    CHECK(contains(trained.out + trained.err, "\n  capsule   out/capsules/" + all[0].filename().string()));
    fs::copy(all[0], elsewhere / "step.safetensors");
    const Ran found = run(elsewhere, "doctor step.safetensors --json");
    CAPTURE(found.err);
    CHECK(found.code == 0);
    const Json json = found.json();
    CHECK(json["same"] == true);
    CHECK(json["verdict"]["cause"] == c.cause);
    CHECK(json["verdict"] == json["verdict_of_run"]);  // with all numbers of its evidence
    CHECK(json["verdict"]["evidence"].get<std::string>().size() > 10);
  }
}

TEST_CASE("what a capsule holds") {
  const TempDir dir;
  const fs::path file = make_capsule(dir, "--set optimizer.momentum=0.9");
  const TensorFile raw = load_safetensors(file);
  for (const char* name : {"input.0", "target.0", "model.0.weight", "optimizer.0.weight.momentum_buffer"})
    CHECK_MESSAGE(raw.tensors.contains(name), name);
  CHECK(count_values(raw.tensors.at("input.0")).nan == 1);
  const Capsule c = read_capsule(file);
  CHECK(c.about.number >= 1);
  CHECK(c.about.epoch == 1);
  CHECK(c.about.what == "the loss is not finite");
  CHECK(c.scale == 256);
  CHECK(c.threads >= 1);
  CHECK(c.config["optimizer"]["momentum"] == 0.9);
  REQUIRE(c.batches.size() == 1);
  CHECK(c.batches[0].samples.size() == 8);
  CHECK(std::count(c.batches[0].samples.begin(), c.batches[0].samples.end(), 21) == 1);
  CHECK(c.about.history.loss >= 0);
  CHECK(c.state.meta->contains("scaler"));
}

TEST_CASE("a larger state is left to a checkpoint, which must be the one that was there") {
  const TempDir dir;
  const fs::path file = make_capsule(dir, R"(--set diagnostics.capsule_mb=0 --set checkpoint.every='"1 steps"')"
                                          " --set checkpoint.keep_last=0");
  const Capsule c = read_capsule(file);
  CHECK(c.state.model.empty());
  REQUIRE(c.about.number > 1);  // there is a checkpoint before it
  CHECK(fs::path(c.checkpoint).filename() == checkpoint_name(c.about.number - 1));
  const std::string name = "out/capsules/" + file.filename().string();
  const Ran found = run(dir, "doctor " + name);
  CHECK(found.code == 0);
  CHECK_MESSAGE(contains(found.out, "input_nonfinite"), found.out);
  CHECK(contains(found.out, joined("step ", c.about.number)));
  fs::rename(dir / "out", dir / "moved");
  CHECK(run(dir, "doctor moved/capsules/" + file.filename().string()).code == 0);
  fs::rename(dir / "moved", dir / "out");
  fs::remove_all(c.checkpoint);
  const Ran gone = run(dir, "doctor " + name);
  CHECK(gone.code == 3);
  CHECK_MESSAGE(contains(gone.err, "is gone or was replaced"), gone.err);
}

TEST_CASE("a capsule that is damaged, or none at all, is refused with help") {
  const TempDir dir;
  const fs::path file = make_capsule(dir);
  const std::string bytes = read(file), name = "out/capsules/" + file.filename().string();
  const auto refused = [&](const std::string& content, const std::string& why) {
    write(file, content);
    const Ran r = run(dir, "doctor " + name);
    CHECK(r.code == 3);
    CHECK_MESSAGE(contains(r.err, why), r.err);
    CHECK(contains(r.err, file.filename().string()));
  };
  std::string changed = bytes;
  changed.back() ^= 1;
  refused(changed, "its tensors are not those that were written");
  changed = bytes;
  const size_t at = changed.find("the loss is not finite");
  REQUIRE(at != std::string::npos);
  changed[at] = 'T';
  refused(changed, "its metadata are not those that were written");
  refused(bytes.substr(0, bytes.size() / 2), "the capsule cannot be read");
  refused("", "the capsule cannot be read");
  save_safetensors(file, {{"w", ones({2})}});
  refused(read(file), "the file is no capsule");
  CHECK(run(dir, "doctor absent.safetensors").code == 3);
  write(file, bytes);
  CHECK(run(dir, "doctor " + name).code == 0);
  const Ran step = run(dir, "doctor " + name + " --step 3");
  CHECK(step.code == 2);
  CHECK(contains(step.err, "holds one step"));
  // Another config finds another cause, and says so.
  const Ran other = run(dir, "doctor " + name + " --set model.hidden=[9]");
  CHECK(other.code == 3);
  CHECK_MESSAGE(contains(other.err, "the state does not fit the model"), other.err);
}

TEST_CASE("a run keeps as many capsules as it may, also when it is resumed, and one that starts over begins without") {
  const TempDir dir;
  write_problem(dir, {.bad_input = 21});
  CHECK(run(dir, "train run.json --set diagnostics.capsules=0").code == 0);
  CHECK_FALSE(fs::exists(dir / "out/capsules"));

  CHECK(run(dir, "train run.json --overwrite").code == 0);
  const auto first = capsules(dir / "out");
  REQUIRE(first.size() == 1);
  write(dir / "out/capsules/step-9.safetensors.tmp-1-2", "of a process that was killed");
  CHECK(run(dir, "train run.json --resume auto --set train.epochs=4 --set diagnostics.capsules=1").code == 0);
  CHECK(capsules(dir / "out") == first);  // the resumed run explains the sample once more, and keeps nothing of it
  CHECK(run(dir, "train run.json --resume auto --set train.epochs=5").code == 0);
  CHECK(capsules(dir / "out").size() == 2);

  write_problem(dir, {.scale = 1});
  const Ran high = run(dir, "train run.json --overwrite --set amp.scaler.init_scale=1e9");
  CHECK(high.code == 0);
  CHECK(contains(high.out, "overflow_scale"));  // no fault
  CHECK(capsules(dir / "out").empty());
}

TEST_CASE("the capsules of a run that fails before its first checkpoint stay, beside those of the run that it was to replace") {
  const TempDir dir;
  write_problem(dir, {.bad_input = 21});
  CHECK(run(dir, "train run.json").code == 0);
  const auto first = capsules(dir / "out");
  REQUIRE(first.size() == 1);
  const Ran failed = run(dir, "train run.json --overwrite --set amp=false --set optimizer.lr=1e10");
  CHECK(failed.code == 4);
  CHECK(list_checkpoints(dir / "out").size() == 2);
  const auto both = capsules(dir / "out");
  CHECK(both.size() >= 2);
  CHECK(std::find(both.begin(), both.end(), first[0]) != both.end());
  for (const fs::path& file : both) CHECK(run(dir, "doctor out/capsules/" + file.filename().string()).code == 0);

  // Those of the run that failed last are kept, and none of them takes the place of one of the run that was put back.
  const auto failed_ones = [&] {
    size_t out = 0;
    for (const fs::path& file : capsules(dir / "out")) out += file.filename().string().starts_with("failed-");
    return out;
  };
  for (const int rows : {4, 2, 16}) {
    CHECK(run(dir, joined("train run.json --overwrite --set amp=false --set data.loader.batch_size=", rows,
                          " --set optimizer.lr=", rows == 2 ? 1e10 : 1e9))
              .code == 4);
    CHECK(failed_ones() >= 1);
    CHECK(failed_ones() <= 3);
    CHECK(capsules(dir / "out").size() == 1 + failed_ones());
  }
  CHECK(run(dir, "train run.json --resume auto --set train.epochs=5 --set diagnostics.capsules=2").code == 0);
  CHECK(capsules(dir / "out").size() == 2 + failed_ones());
}

TEST_CASE("keeping a capsule changes no bit of a run") {
  const TempDir dir;
  write_problem(dir, {.bad_input = 21, .model = R"({"type": "MLP", "hidden": [16, 16], "dropout": 0.5})"});
  CHECK(run(dir, "train run.json").code == 0);
  CHECK(run(dir, "train run.json --set diagnostics.capsules=0 --set output_dir=plain").code == 0);
  for (const char* name : {"model.safetensors", "state.safetensors"})
    CHECK(read(dir / "out/step-00000024" / name) == read(dir / "plain/step-00000024" / name));
}

TEST_CASE("what stateful layers kept of the step before is in a capsule") {
  const TempDir dir, elsewhere;
  std::string text;
  for (int i = 0; i < 2000; ++i) text += char('a' + (i * i + i / 3) % 8);
  write(dir / "t.txt", text);
  write(dir / "run.json", R"({"name": "run", "output_dir": "out", "device": "cpu",
    "model": {"type": "Sequential", "layers": [{"type": "Embedding", "num_embeddings": "auto", "embedding_dim": 6},
              {"type": "LSTM", "name": "lstm", "hidden_size": 8}, {"type": "Linear", "out_features": "auto"}]},
    "loss": "CrossEntropyLoss", "optimizer": {"type": "SGD", "lr": 1e5},
    "data": {"root": ".", "train": {"type": "Text", "path": "t.txt", "seq_len": 8}, "loader": {"batch_size": 4, "stateful": true}},
    "amp": {"dtype": "float16"}, "train": {"max_steps": 12}, "checkpoint": {"every": "never"}})");
  run(dir, "train run.json");
  const auto all = capsules(dir / "out");
  REQUIRE(all.size() >= 1);
  for (const fs::path& file : all) {
    const TensorFile raw = load_safetensors(file);
    CHECK(raw.tensors.contains("kept.lstm.h"));
    CHECK(raw.tensors.contains("kept.lstm.c"));
    fs::copy_file(file, elsewhere / "step.safetensors", fs::copy_options::overwrite_existing);
    const Json json = run(elsewhere, "doctor step.safetensors --json").json();
    CHECK(json["verdict"] == json["verdict_of_run"]);
  }
}
