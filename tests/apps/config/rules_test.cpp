// SPDX-License-Identifier: Apache-2.0
// Rules between keys, and keys that are filled in from others.
#include <doctest/doctest.h>

#include <ctime>

#include "apps/catalog/modules.h"
#include "apps/catalog/optimizers.h"
#include "tests/apps/config/load.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

TEST_CASE("rules between keys") {
  TempDir dir;
  const auto file = write(dir / "c.json", kGood);
  const auto with = [&](std::vector<std::string> sets) { return error_of(file, {.sets = std::move(sets)}); };
  CHECK(contains(with({"data.train={\"type\":\"Random\",\"input_shape\":[4],\"target_shape\":[2]}"}),
                 "CrossEntropyLoss needs data with classes"));
  CHECK(contains(with({"loss=MSELoss"}), "MSELoss needs numbers as targets"));
  CHECK(contains(with({"model=[\"ReLU\"]"}),
                 R"(model: must be the name of a layer or an object with "type", got ["ReLU"]; layers in a row are {"type")"));
  CHECK(contains(with({"data.loader.drop_last=true", "data.loader.batch_size=100"}), "with drop_last there is no batch"));
  CHECK(contains(with({"train.deterministic=false"}), "must be true: every run gives the same bits"));
  CHECK(contains(with({"train.max_steps=3", "train.epochs=1"}), "must not be given together with epochs"));
  CHECK(contains(with({"train.epochs=null"}), "train: needs epochs or max_steps"));
  CHECK(contains(with({"model.out_features=3"}), "the output must have shape [10], one a class, got [3]"));
  CHECK(contains(with({"checkpoint.keep_best=1", "checkpoint.monitor=val/loss"}), "val/loss needs data.val"));
  const Config warned = load_config(file, {.sets = {"amp.dtype=float16", "amp.scaler.enabled=false"}});
  REQUIRE(warned.warnings.size() == 1);
  CHECK(contains(warned.warnings[0], "float16 without a gradient scaler loses small gradients"));
}

TEST_CASE("targets and last layers that a loss computes with, although it is not for them, get a warning") {
  TempDir dir;
  std::string table = "a,y\n";
  for (int i = 0; i < 40; ++i) table += joined(i % 7, ',', i % 2, '\n');
  write(dir / "bits.csv", table);
  std::string signs = "a,y\n";
  for (int i = 0; i < 40; ++i) signs += joined(i % 7, ',', i % 2 ? 1 : -1, '\n');
  write(dir / "signs.csv", signs);
  const auto warnings = [&](const std::string& data, const std::string& loss, const std::string& end) {
    const std::string layers = R"([{"type": "Linear", "out_features": 1})" + (end.empty() ? "" : ", " + end) + "]";
    const auto file = write(dir / "c.json", R"({"name": "t", "train": {"epochs": 1}, "optimizer": {"type": "SGD"}, "metrics": [],
        "loss": )" + loss + R"(, "model": {"type": "Sequential", "layers": )" + layers + R"(}, "data": {"train":
        {"type": "CSV", "path": ")" + (dir / data).string() + R"(", "target": "y", "task": "regression"}}})");
    std::string all;
    for (const std::string& w : load_config(file, {}).warnings) all += w + "\n";
    return all;
  };
  const std::string targets = "data.train: has targets such as -1, but ", ends = "model: ends in ";
  const auto is_quiet = [](const std::string& all) { return !contains(all, "has targets") && !contains(all, "ends in"); };
  CHECK(contains(warnings("signs.csv", R"("BCEWithLogitsLoss")", ""), targets + "BCEWithLogitsLoss is for numbers from 0 to 1"));
  CHECK(contains(warnings("signs.csv", R"("MultiLabelSoftMarginLoss")", ""), targets + "MultiLabelSoftMarginLoss"));
  CHECK(contains(warnings("signs.csv", R"("PoissonNLLLoss")", ""), targets + "PoissonNLLLoss is for no numbers below 0"));
  CHECK(contains(warnings("bits.csv", R"("HingeEmbeddingLoss")", ""), "such as 0, but HingeEmbeddingLoss is for 1 and -1"));
  CHECK(contains(warnings("bits.csv", R"("BCEWithLogitsLoss")", R"("Sigmoid", "Flatten")"), ends + "Sigmoid, but BCEWithLogits"));
  CHECK(contains(warnings("bits.csv", R"("KLDivLoss")", ""), ends + "Linear, but KLDivLoss takes log-probabilities"));
  CHECK(contains(warnings("bits.csv", R"("BCELoss")", ""), ends + "Linear, but BCELoss takes probabilities"));
  CHECK(is_quiet(warnings("bits.csv", R"("BCEWithLogitsLoss")", "")));
  CHECK(is_quiet(warnings("bits.csv", R"("BCELoss")", R"("Sigmoid")")));
  CHECK(is_quiet(warnings("signs.csv", R"("SoftMarginLoss")", "")));
  CHECK(is_quiet(warnings("signs.csv", R"("MSELoss")", R"("Tanh")")));

  const auto of_classes = [&](const std::string& loss, const std::string& end) {
    const auto file = write(dir / "d.json", R"({"name": "t", "train": {"epochs": 1}, "optimizer": {"type": "SGD"},
        "loss": )" + loss + R"(, "model": {"type": "Sequential", "layers": [{"type": "Linear", "out_features": 2}, )" + end +
        R"(]}, "data": {"train": {"type": "Spirals"}}})");
    std::string all;
    for (const std::string& w : load_config(file, {}).warnings) all += w + "\n";
    return all;
  };
  CHECK(contains(of_classes(R"("CrossEntropyLoss")", R"("Softmax", "Flatten")"), ends + "Softmax, which CrossEntropyLoss applies"));
  CHECK(contains(of_classes(R"("NLLLoss")", R"("Softmax")"), ends + "Softmax, but NLLLoss takes log-probabilities"));
  CHECK(contains(of_classes(R"("NLLLoss")", R"({"type": "LogSoftmax", "dim": 0})"), "whose sums run over the samples of a batch"));
  CHECK(is_quiet(of_classes(R"("NLLLoss")", R"("LogSoftmax")")));
}

TEST_CASE("accumulation beside an embedding that divides gradients by uses gets a warning") {
  TempDir dir;
  const std::string layers = R"([{"type": "Embedding", "num_embeddings": 20, "embedding_dim": 4, "scale_grad_by_freq": true},
                                 {"type": "Linear", "out_features": 20}])";
  const auto file = write(dir / "c.json", R"({"name": "t", "train": {"epochs": 1}, "optimizer": {"type": "SGD"},
      "loss": {"type": "CrossEntropyLoss"}, "data": {"train": {"type": "CopyTask"}},
      "model": {"type": "Sequential", "layers": )" + layers + "}}");
  const auto warnings = [&](std::vector<std::string> sets) {
    std::string all;
    for (const std::string& w : load_config(file, {.sets = std::move(sets)}).warnings) all += w + "\n";
    return all;
  };
  const std::string text =
      "train.accumulate_steps: is 3, and scale_grad_by_freq counts the uses of a row in each micro-batch, as in PyTorch";
  CHECK_MESSAGE(contains(warnings({"train.accumulate_steps=3"}), text), warnings({"train.accumulate_steps=3"}));
  CHECK(!contains(warnings({}), "scale_grad_by_freq"));
  CHECK(!contains(warnings({"train.accumulate_steps=3", "model.layers.0.scale_grad_by_freq=false"}), "scale_grad_by_freq"));
}

TEST_CASE("a component that is given another one's key says who takes it, or which of its own it is") {
  TempDir dir;
  const auto file = write(dir / "c.json", kGood);
  const auto with = [&](const std::string& set) { return error_of(file, {.sets = {set}}); };
  const auto of = [&](const char* type, const char* key) {
    return with(joined(R"(scheduler={"type": ")", type, R"(", ")", key, R"(": 3})"));
  };
  CHECK(contains(of("OneCycleLR", "epochs"), "epochs: unknown key of OneCycleLR; it lasts for total_steps, which are epochs"));
  CHECK(contains(of("OneCycleLR", "T_max"), "unknown key of OneCycleLR; did you mean \"total_steps\"?"));
  CHECK(contains(of("MultiStepLR", "step_size"), "; did you mean \"milestones\"?"));
  CHECK(contains(of("StepLR", "factor"), "; did you mean \"gamma\"?"));
  CHECK(contains(of("ExponentialLR", "step_size"), "key of ExponentialLR, which StepLR takes; ExponentialLR takes type, gamma"));
  CHECK(contains(of("StepLR", "patience"), "key of StepLR, which ReduceLROnPlateau takes; StepLR takes type, step_size"));
  CHECK(contains(of("StepLR", "max_lr"), "unknown key of StepLR, which OneCycleLR, CyclicLR take; StepLR takes"));
  CHECK(contains(of("ReduceLROnPlateau", "mode"), "key of ReduceLROnPlateau; checkpoint.monitor names the metric"));
  CHECK(contains(of("LambdaLR", "gamma"), "unknown scheduler \"LambdaLR\"; it takes a function"));
  CHECK(contains(of("SequentialLR", "gamma"), "unknown scheduler \"SequentialLR\"; give a list of schedules"));
  CHECK(contains(with(R"(optimizer={"type": "Adagrad", "momentum": 0.9})"), "unknown key of Adagrad, which SGD, "));
  CHECK(contains(with(R"(loss={"type": "MSELoss", "ignore_index": 3})"), "key of MSELoss, which CrossEntropyLoss, NLLLoss take;"));
}

TEST_CASE("what a run would refuse of optimizer, schedule and steps is found when its config is checked") {
  TempDir dir;
  const auto file = write(dir / "c.json", kGood);  // 4 steps
  const auto with = [&](std::vector<std::string> sets) { return error_of(file, {.sets = std::move(sets)}); };
  CHECK(contains(with({R"(optimizer={"type": "SGD", "nesterov": true})"}), ": optimizer: [SGD] nesterov needs momentum > 0"));
  CHECK(
      contains(with({R"(optimizer.groups=[{"match": "nope", "lr": 1}])"}), ": optimizer.groups: match \"nope\" must be found in"));
  CHECK(contains(with({R"(optimizer={"type": "Rprop", "step_sizes": [50, 1]})"}),
                 ": optimizer: [Rprop] step_sizes must be in order"));
  CHECK(contains(with({"model.freeze=true"}), ": optimizer: the model has no parameters to train: all are frozen"));
  const auto schedule = [&](const std::string& text) { return with({"scheduler=" + text}); };
  const std::string cosine = R"({"type": "CosineAnnealingLR", "warmup_steps": 4})";
  CHECK(contains(schedule(cosine), ": scheduler.warmup_steps: must be less than the 4 steps until T_max, got 4"));
  CHECK(with({"scheduler=" + cosine, "train.epochs=2"}).empty());
  CHECK(contains(with({"scheduler=" + cosine, "train.epochs=2", "train.accumulate_steps=2"}), "less than the 4 steps until T_max"));
  CHECK(contains(with({"scheduler=" + cosine, "train.epochs=2", "train.limit_batches=1"}), "less than the 2 steps until T_max"));
  CHECK(contains(with({"scheduler=" + cosine, "train.epochs=2", "train.overfit_batches=2"}), "less than the 4 steps until T_max"));
  CHECK(contains(schedule(R"({"type": "CyclicLR", "base_lr": 1, "max_lr": 0.1})"), ": scheduler: [CyclicLR] max_lr must be >= 1"));
  CHECK(contains(schedule(R"([{"type": "StepLR", "step_size": 3}, "PolynomialLR"])"), ": scheduler.0: needs a \"length\""));
  CHECK(contains(schedule(R"({"type": "StepLR", "step_size": 3, "length": 4})"),
                 ": scheduler.length: is for a schedule that another"));
  CHECK(
      contains(with({"scheduler=OneCycleLR", "optimizer=Adagrad"}), ": scheduler: [OneCycleLR] cycle_momentum needs an optimizer"));
  CHECK(contains(schedule(R"({"type": "OneCycleLR", "total_steps": 3, "cycle_momentum": false})"),
                 ": scheduler.total_steps: must be at least the 4 steps or epochs of training, got 3"));
  CHECK(contains(schedule(R"({"type": "ChainedScheduler", "schedulers": [{"type": "StepLR", "step_size": 3}, "OneCycleLR"]})"),
                 "sets rates whatever the other schedules make of them"));
  const auto warned = load_config(file, {.sets = {R"(scheduler={"type": "StepLR", "step_size": 3, "warmup_steps": 9})"}}).warnings;
  REQUIRE(warned.size() == 1);
  CHECK(contains(warned[0], "scheduler.warmup_steps: 9 steps of warm-up do not end within the run, which takes 4"));

  const auto warnings = [&](std::vector<std::string> sets) { return load_config(file, {.sets = std::move(sets)}).warnings; };
  REQUIRE(warnings({"optimizer.lr=0"}).size() == 1);
  CHECK(contains(warnings({"optimizer.lr=0"})[0], "optimizer.lr: is 0, so no step changes a parameter"));
  REQUIRE(warnings({"optimizer.lr=0", "scheduler=CosineAnnealingLR"}).size() == 1);
  CHECK(contains(warnings({"optimizer.lr=0", "scheduler=CosineAnnealingLR"})[0], "optimizer.lr: makes the rate of each step 0"));
  REQUIRE(warnings({R"(scheduler={"type": "ConstantLR", "factor": 0, "total_iters": 9})"}).size() == 1);
  CHECK(contains(warnings({R"(scheduler={"type": "ConstantLR", "factor": 0, "total_iters": 9})"})[0],
                 "scheduler: makes the rate of each step 0"));
  CHECK(warnings({R"(scheduler={"type": "ConstantLR", "factor": 0, "total_iters": 3})"}).empty());
  CHECK(warnings({R"(optimizer={"type": "SGD", "lr": 1, "groups": [{"match": "bias", "lr": 0}]})"}).empty());

  CHECK(contains(with({"optimizer=LBFGS", "train.accumulate_steps=2"}), ": train.accumulate_steps: must not be given with LBFGS"));
  CHECK(contains(with({"optimizer=LBFGS", "train.clip_grad_norm=1"}), ": train.clip_grad_norm: must not be given with LBFGS"));
  CHECK(contains(with({"optimizer=LBFGS", "amp.dtype=float16"}), ": optimizer: LBFGS evaluates the loss several times a step"));
  CHECK(contains(with({R"(optimizer={"type": "LBFGS", "groups": [{"match": "bias", "lr": 1}]})"}),
                 "takes all parameters in one group"));
  CHECK(with({"optimizer=LBFGS", "amp.dtype=bfloat16"}).empty());

  CHECK(contains(with({"train.checkpoint_activations=nope"}), ": train.checkpoint_activations: \"nope\" is in no module's name"));
  CHECK(contains(with({"train.checkpoint_activations=("}),
                 ": train.checkpoint_activations: must be a regular expression, got \"(\""));
  CHECK(contains(with({R"(data.train={"type": "Random", "input_shape": [4], "target_shape": [1]})", "loss=BCELoss", "amp=true"}),
                 ": loss: [binary_cross_entropy] is unsafe to autocast"));
  CHECK(contains(with({R"(data.train={"type": "Sines", "stratified": true, "range": [0, 0.5]})", "loss=MSELoss"}),
                 ": data.train: [class_labels] needs data with one class a sample"));
  CHECK(contains(with({R"(data.loader.sampler={"type": "weighted", "weights": [0,0,0,0,0,0,0,0,0,0]})"}),
                 "weights: must not all be 0"));
  CHECK(contains(with({R"(data.loader.sampler={"type": "weighted", "num_samples": 65, "replacement": false})"}),
                 ": data.loader.sampler.num_samples: must be at most the 64 samples of data.train without replacement, got 65"));
  CHECK(contains(with({"amp.scaler.init_scale=1e39"}),
                 ": amp.scaler.init_scale: must be a number in [1e-07, 1e+38] or \"auto\", got 1e+39"));
  const std::string never = "train.eval_every=never", val = "data.val=Digits";
  CHECK(contains(with({val, never, R"(train.early_stopping={"patience": 1})"}),
                 ": train.early_stopping: looks at val/accuracy, but"));
  CHECK(contains(with({val, never, "scheduler=ReduceLROnPlateau"}), ": scheduler: ReduceLROnPlateau looks at val/accuracy, but"));
  CHECK(with({val, never, "scheduler=ReduceLROnPlateau", "checkpoint.monitor=train/loss"}).empty());
}

TEST_CASE("a schedule whose rate is 0 in much of the run is warned of, with a change that helps") {
  TempDir dir;
  const auto file = write(dir / "c.json", kGood);
  const auto warnings = [&](const std::string& scheduler) {
    return load_config(file, {.sets = {"train.epochs=6", "scheduler=" + scheduler}}).warnings;  // 24 steps
  };
  const auto warns = [&](const std::string& scheduler, const std::string& text) {
    CAPTURE(scheduler);
    const std::vector<std::string> got = warnings(scheduler);
    REQUIRE(got.size() == 1);
    CAPTURE(got[0]);
    CHECK(contains(got[0], "scheduler: makes the rate " + text));
  };
  const std::string epochs = "; it counts steps: \"interval\": \"epoch\" lets it count epochs";
  const std::string small = "less than a millionth of its largest ";
  warns(R"({"type": "PolynomialLR", "total_iters": 6})", "0 after step 6 of 24, so that no later step changes a weight" + epochs);
  CHECK(warnings(R"({"type": "PolynomialLR", "total_iters": 6, "interval": "epoch"})").empty());
  warns(R"({"type": "ExponentialLR", "gamma": 0.3})", small + "after step 12 of 24, where steps change next to nothing" + epochs);
  warns(R"({"type": "LinearLR", "start_factor": 1, "end_factor": 0, "total_iters": 2, "interval": "epoch"})",
        "0 after step 8 of 24, so that no later step changes a weight; without total_iters it falls to the end of the run");
  warns(R"([{"type": "LinearLR", "length": 2}, {"type": "ExponentialLR", "gamma": 0.3}])", small + "after step 1");
  CHECK(contains(warnings(R"([{"type": "LinearLR", "length": 2}, {"type": "ExponentialLR", "gamma": 0.3}])")[0],
                 "; the schedules count steps: \"interval\": \"epoch\" lets them count epochs"));
  warns(R"({"type": "ExponentialLR", "gamma": 0.0005, "interval": "epoch"})",
        small + "after step 8 of 24, where steps change next to nothing; train --lr-preview prints the rates");
  for (const char* fine :
       {R"("CosineAnnealingLR")", R"("PolynomialLR")", R"({"type": "CosineAnnealingLR", "T_max": 23, "warmup_steps": 3})",
        R"({"type": "LinearLR", "start_factor": 1, "end_factor": 0})", R"({"type": "CosineAnnealingWarmRestarts", "T_0": 4})",
        R"({"type": "OneCycleLR", "cycle_momentum": false})", R"("WSDLR")", R"({"type": "InverseSqrtLR", "rise": 2})",
        R"({"type": "ExponentialLR", "gamma": 0.9})", R"({"type": "MultiStepLR", "milestones": [8, 16]})",
        R"({"type": "StepLR", "step_size": 2, "interval": "epoch"})", R"({"type": "ConstantLR", "factor": 0, "total_iters": 9})"}) {
    CAPTURE(fine);
    CHECK(warnings(fine).empty());
  }
}

TEST_CASE("held-out data shares no samples with the training data, and is no other kind of inputs") {
  TempDir dir;
  const auto file = write(dir / "c.json", kGood);
  const auto with = [&](std::vector<std::string> sets) { return error_of(file, {.sets = std::move(sets)}); };
  const auto warnings = [&](std::vector<std::string> sets) {
    std::string out;
    for (const std::string& w : load_config(file, {.sets = std::move(sets)}).warnings) out += w + '\n';
    return out;
  };
  const std::string fold = R"(data.train={"type": "Spirals", "split": "train", "fold": [0, 5]})";
  const auto val = [](const std::string& rest) { return R"(data.val={"type": "Spirals", "split": "train")" + rest + "}"; };
  CHECK(with({fold, val(R"(, "fold": [0, 5])")}).empty());
  CHECK(contains(with({fold, val(R"(, "fold": [1, 5])")}),
                 ": data.val.fold: must be that of data.train, [0,5], or both share samples"));
  CHECK(contains(with({fold, val(R"(, "fold": [0, 100000])")}), ": data.val.fold: must be that of data.train"));
  const std::string range = R"(data.train={"type": "Spirals", "split": "train", "range": [0, 0.8]})";
  CHECK(warnings({range, val(R"(, "range": [0.8, 1])")}).empty());
  CHECK(contains(warnings({range, val(R"(, "range": [0.7, 1])")}),
                 "data.val.range: shares the samples of [0.7, 0.8) with data.train"));
  CHECK(warnings({range, R"(data.val={"type": "Spirals", "range": [0.7, 1]})"}).empty());  // of another split
  const std::string shares = "data.val.range: shares the samples of [0.7, 1) with data.train";
  CHECK(contains(warnings({R"(data.train={"type": "Spirals", "split": "train"})", val(R"(, "range": [0.7, 1])")}), shares));
  CHECK(contains(warnings({fold, val(R"(, "range": [0.7, 1])")}), shares));
  write(dir / "t.csv", "a,b,c\n1,2,x\n2,3,y\n4,4,x\n");
  const auto table = [&](const std::string& split, const std::string& part) {
    return joined("data.", split, R"(={"type": "CSV", "path": ")", (dir / "t.csv").string(), "\"", part, "}");
  };
  const std::string seen = "data.val: has samples of data.train, which the model has seen";
  const std::vector<std::string> rest = {R"(model={"type": "Linear", "out_features": "auto"})"};
  const auto of = [&](const std::string& train, const std::string& val) {
    return warnings({table("train", train), table("val", val), rest[0]});
  };
  CHECK(contains(of("", ""), seen));
  CHECK(contains(of(R"(, "range": [0, 0.5])", R"(, "range": [0, 0.5])"), seen));
  CHECK(contains(of("", R"(, "range": [0.7, 1])"), shares));
  CHECK(!contains(of(R"(, "range": [0, 0.7])", R"(, "range": [0.7, 1])"), "data.train"));
  CHECK(!contains(of(R"(, "fold": [0, 3])", R"(, "fold": [0, 3])"), "data.train"));

  CHECK(
      contains(with({"data.val.type=Digits", "data.val.transforms=[\"Mixup\"]"}), ": data.val.transforms.0: Mixup mixes samples"));
  const std::string normalized = R"(data.train={"type": "Digits", "transforms": [{"type": "Normalize", "preset": "mnist"}]})";
  CHECK(contains(warnings({normalized, "data.val=Digits"}), "data.val.transforms: has no Normalize, but data.train has"));
  CHECK(contains(with({"data.test=Spirals"}),
                 ": data.test: must have the shapes and classes of data.train, input [1, 28, 28], 10 classes, "
                 "but has input [2], 2 classes"));
  CHECK(contains(warnings({"data.val=Digits", "checkpoint.mode=min"}),
                 "mode: is \"min\", but val/accuracy is better the larger it is"));
  CHECK(contains(warnings({"loss=NLLLoss"}), "ends in Linear, but NLLLoss takes log-probabilities"));
}

TEST_CASE("validate distinguishes data that cannot be read from missing data") {
  TempDir dir;
  write(dir / "c.json", kGood);
  const std::string table = " --set data.root=. --set 'data.train={\"type\": \"CSV\", \"path\": \"t.csv\"}'";
  const Ran absent = run(dir, "validate c.json" + table);
  CHECK(absent.code == 0);
  CHECK(absent.out == "c.json: valid (shapes not checked: the data files are not there)\n");
  write(dir / "t.csv", "1,2,a\n1,x,b\n");
  const Ran bad = run(dir, "validate c.json" + table);
  CHECK(bad.code == 3);
  CHECK(bad.out == "c.json: cannot be trained with: its keys are right, but its data cannot be read\n");
  CHECK(contains(bad.err, "t.csv:2:2: column \"1\" must be a number, got \"x\""));
  CHECK(contains(run(dir, "plan c.json" + table).err, "t.csv:2:2"));
}

TEST_CASE("metrics, and which value is the best's") {
  TempDir dir;
  const auto file = write(dir / "c.json", kGood);
  const auto with = [&](std::vector<std::string> sets) { return error_of(file, {.sets = std::move(sets)}); };
  const std::string val = "data.val=Digits", numbers = R"(data.train={"type": "Random", "input_shape": [4], "target_shape": [2]})";
  CHECK(contains(with({"metrics=[\"acuracy\"]"}), "metrics.0: unknown metric \"acuracy\"; did you mean \"accuracy\"?"));
  CHECK(contains(with({"metrics=[\"top5\"]"}), "metrics.0: unknown metric \"top5\""));
  CHECK(contains(with({R"(metrics=[{"type": "top_k", "k": 11}])"}),
                 "metrics.0.k: must be at most the number of classes, 10, got 11"));
  CHECK(contains(with({"metrics=[\"accuracy\", \"accuracy\"]"}), "metrics.1: two values would be called \"accuracy\""));
  CHECK(contains(with({R"(metrics=[{"type": "accuracy", "name": "loss"}])"}), "metrics.0: two values would be called \"loss\""));
  CHECK(contains(with({numbers, "loss=MSELoss", "metrics=[\"accuracy\"]"}), "metrics.0: accuracy needs data with classes"));
  CHECK(contains(with({val, "checkpoint.monitor=val/acuracy"}),
                 "checkpoint.monitor: must be \"val/loss\", \"val/accuracy\" or \"train/loss\", "
                 "got \"val/acuracy\"; did you mean \"val/accuracy\"?"));
  CHECK(contains(with({numbers, "loss=MSELoss", "data.val=" + numbers.substr(11), "checkpoint.monitor=val/accuracy"}),
                 "checkpoint.monitor: val/accuracy needs data with classes"));
  CHECK(contains(with({"checkpoint.keep_best=1", "checkpoint.monitor=val/accuracy"}), "val/accuracy needs data.val"));

  const auto best = [&](std::vector<std::string> sets) { return load_config(file, {.sets = std::move(sets)}).checkpoint; };
  CHECK(best({val}).monitor == "val/accuracy");
  CHECK(best({val}).mode == "max");
  CHECK(best({val, "checkpoint.monitor=val/loss"}).mode == "min");
  CHECK(best({val, "checkpoint.mode=min"}).mode == "min");
  const CheckpointSection renamed = best({val, R"(metrics=[{"type": "accuracy", "name": "right"}])"});
  CHECK((renamed.monitor == "val/right" && renamed.mode == "max"));

  // A table that is not there says nothing about classes.
  const std::string csv = R"(data.train={"type": "CSV", "path": "absent.csv"})",
                    csv_val = R"(data.val={"type": "CSV", "path": "absent.csv"})";
  CHECK(with({csv, csv_val, "metrics=[\"accuracy\"]", "checkpoint.monitor=val/accuracy"}) == "");
}

TEST_CASE("shapes are inferred") {
  TempDir dir;
  const auto file = write(dir / "c.json", kGood);
  const Config mlp = load_config(file);
  CHECK(mlp.json["model"]["in_features"] == 784);
  CHECK(mlp.json["model"]["out_features"] == 10);
  const std::string layers =
      R"(model={"type": "Sequential", "layers": ["Flatten", {"type": "Linear", "out_features": 32, "name": "fc"}, "GELU",
    {"type": "Sequential", "layers": [{"type": "Linear", "out_features": "auto"}]}]})";
  const Config seq = load_config(file, {.sets = {layers}});
  CHECK(seq.json["model"]["layers"][1]["in_features"] == 784);
  CHECK(seq.json["model"]["layers"][3]["layers"][0]["in_features"] == 32);
  REQUIRE(seq.layers.size() == 4);
  CHECK(seq.layers[1].name == "fc");
  CHECK(seq.layers[3].name == "3.0");
  CHECK(seq.layers[3].parameters == 330);
  const auto net = build_model(seq.json["model"]);
  CHECK(net->named_parameters()[0].name == "fc.weight");
  CHECK(net->named_parameters()[2].name == "3.0.weight");

  CHECK(contains(error_of(file, {.sets = {layers, "model.layers.1.in_features=100"}}),
                 "model.layers.1.in_features: must be 784 for an input of shape [784], got 100"));
  CHECK(contains(error_of(file, {.sets = {R"(model={"type": "Sequential", "layers": [{"type": "Linear", "out_features": 10}]})"}}),
                 "put \"Flatten\" before the last Linear"));
  const std::string twins = R"(model={"type": "Sequential", "layers": [
    {"type": "ReLU", "name": "a"}, {"type": "ReLU", "name": "a"}, "Flatten", {"type": "Linear", "out_features": 10}]})";
  CHECK(contains(error_of(file, {.sets = {twins}}), "two layers are called \"a\""));
}

TEST_CASE("patterns are checked with the config and matched in linear time") {
  TempDir dir;
  const auto file = write(dir / "c.json", kGood);
  const auto groups = [&](const std::string& match) {
    return ConfigOptions{.sets = {R"(optimizer.groups=[{"match": ")" + match + R"(", "lr": 0.5}])"}};
  };
  CHECK(contains(error_of(file, groups("[")), "optimizer.groups.0.match: must be a regular expression, got \"[\": missing ]"));
  CHECK(contains(error_of(file, groups("(?=a)")), "optimizer.groups.0.match: must be a regular expression"));
  CHECK(contains(error_of(file, groups(std::string(16'000, '('))), "optimizer.groups.0.match: must not be longer than 1000 bytes"));
  CHECK(contains(error_of(file, groups(std::string(1000, '('))), "must be a regular expression"));
  CHECK(contains(error_of(file, groups("((a{1000}){1000}){1000}")), "must be a regular expression"));
  CHECK(contains(error_of(file, groups("a\\u0000b")), "a string holds a NUL character"));
  std::string many = R"({"match": "a"})";
  for (int i = 0; i < 100; ++i) many += R"(, {"match": "a"})";
  CHECK(contains(error_of(file, {.sets = {"optimizer.groups=[" + many + "]"}}),
                 "optimizer.groups: must be a list of at most 100 objects, got [{"));
  const auto optimizer = [&](const std::string& match) {
    const Config c = load_config(file, groups(match));
    const auto model = build_model(c.json["model"]);
    return build_optimizer(c.json["optimizer"], *model)->describe();
  };
  for (const char* match : {"bias", "^0\\\\.bias$", "weight|bias", "[0-2]+\\\\.(weight|bias)"}) CHECK_NOTHROW(optimizer(match));
  // A matcher that tries one way after the other takes longer than the age of the universe.
  const std::clock_t start = std::clock();
  CHECK_THROWS_WITH_AS(optimizer("(((((.*)*)*)*)*)*y"), doctest::Contains("but is in none"), ConfigError);
  CHECK(std::clock() - start < 5 * CLOCKS_PER_SEC);
}

TEST_CASE("--set: a length of the run, or a fold, takes the place of what the config has in its stead, and a warning says so") {
  TempDir dir;
  const auto file =
      write(dir / "c.json", R"({"model": {"type": "MLP", "hidden": [8], "out_features": "auto"}, "loss": "CrossEntropyLoss",
    "optimizer": "SGD", "data": {"train": {"type": "Digits", "size": 64, "range": [0, 0.5]},
    "val": {"type": "Digits", "size": 64, "range": [0.5, 1]}, "loader": {"batch_size": 16}}, "train": {"epochs": 2}})");
  const Config steps = load_config(file, {.sets = {"train.max_steps=50"}});
  CHECK(steps.json["train"]["epochs"].is_null());
  CHECK(steps.json["train"]["max_steps"] == 50);
  REQUIRE(steps.warnings.size() == 1);
  CHECK(steps.warnings[0] == "--set train.max_steps=50: train.max_steps: takes the place of epochs, which is 2");
  const auto other = write(dir / "d.json", R"({"extends": "c.json", "train": {"epochs": null, "max_steps": 9}})");
  const Config epochs = load_config(other, {.sets = {"train.epochs=3"}});
  CHECK(epochs.json["train"]["max_steps"].is_null());
  CHECK(epochs.json["train"]["epochs"] == 3);
  const Config fold = load_config(file, {.sets = {"data.fold=[1,4]"}});
  CHECK(fold.json["data"]["val"]["range"] == Json{0.0, 1.0});
  CHECK(fold.warnings.size() == 2);
  // Both given by the user, one switched off, or a fold beside a range that is set as well: as before.
  CHECK(contains(error_of(file, {.sets = {"train.epochs=3", "train.max_steps=5"}}), "must not be given together with epochs"));
  CHECK(load_config(file, {.sets = {"train.max_steps=null"}}).warnings.empty());
  CHECK(contains(error_of(file, {.sets = {"data.fold=[1,4]", "data.val.range=[0,0.3]"}}),
                 "fold: must not be given together with range"));
}
