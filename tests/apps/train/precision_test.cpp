// SPDX-License-Identifier: Apache-2.0
// amp.modules, amp.policy and train.guard: what a config asks for is done in training, evaluation, prediction and plans.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

#include "apps/train/plan.h"
#include "apps/use/predictor.h"
#include "framework/autograd/grad_mode.h"
#include "framework/io/checkpoint/checkpoint.h"
#include "framework/ops/ops.h"
#include "tests/apps/config/load.h"
#include "tests/apps/tiny_run.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

constexpr const char* kMixed = R"({
  "model": {"type": "Sequential", "layers": ["Flatten", {"type": "Linear", "out_features": 16, "name": "first"}, "ReLU",
    {"type": "Residual", "name": "block", "body": [{"type": "Linear", "out_features": 16}, {"type": "LayerNorm"}]},
    {"type": "Linear", "out_features": "auto", "name": "head"}, {"type": "LogSoftmax", "dim": -1, "name": "scores"}]},
  "loss": "NLLLoss", "optimizer": {"type": "Adam", "lr": 0.01}, "device": "cpu", "output_dir": "r",
  "amp": {"dtype": "float16", "modules": {"block": "float32", "block\\.body\\.1": "bfloat16"}, "policy": {"log_softmax": "keep"}},
  "data": {"train": {"type": "Digits", "size": 60}, "val": {"type": "Digits", "size": 40}, "loader": {"batch_size": 16}},
  "logging": {"every": 1}, "train": {"epochs": 4}})";

std::string output(const TempDir& dir, const std::string& command) {
  const Ran ran = run(dir, command);
  CAPTURE(ran.err);
  REQUIRE(ran.code == 0);
  return ran.out;
}

std::vector<LoggedCall> calls_of(const Config& config, const std::string& layer, StepPass pass = StepPass::forward) {
  std::vector<LoggedCall> out;
  for (const LoggedCall& call : plan_step(config).calls)
    if (call.layer == layer && call.pass == pass && call.op != "view") out.push_back(call);
  return out;
}

void same_weights(const fs::path& a, const fs::path& b, bool equal = true) {
  const auto x = load_checkpoint(a).model, y = load_checkpoint(b).model;
  REQUIRE(x.size() == y.size());
  bool same = true;
  for (const auto& [name, tensor] : x) same = same && tensor.to_vector<double>() == y.at(name).to_vector<double>();
  CHECK(same == equal);
}

double last_value(const fs::path& run, const std::string& key) {
  double out = NAN;
  for (const Json& line : lines_of(run / "metrics.jsonl"))
    if (line.contains(key)) out = line[key];
  return out;
}

}  // namespace

TEST_CASE("amp.modules and amp.policy in a plan: dtypes and reasons, of layers and of a step") {
  TempDir dir;
  const Config config = load_config(write(dir / "c.json", kMixed));
  const auto dtype = [&](const std::string& name) {
    for (const LayerRow& row : config.layers)
      if (row.name == name) return joined(row.dtype);
    return std::string("none");
  };
  CHECK(dtype("first") == "float16");
  CHECK(dtype("block.body.0") == "float32");
  CHECK(dtype("block.body.1") == "float32");  // of bfloat16, given to a module in float32
  CHECK(dtype("head") == "float16");
  CHECK(dtype("scores") == "float16");

  const auto first = calls_of(config, "first to 2"), inner = calls_of(config, "block.body.0"),
             norm = calls_of(config, "block.body.1"), scores = calls_of(config, "scores");
  REQUIRE(inner.size() == 1);
  CHECK(inner[0].compute == DType::f32);
  CHECK(inner[0].reason == "computes in float32, set for block.body.0");
  REQUIRE(!norm.empty());
  CHECK(contains(norm[0].reason, ", set for block.body.1"));
  REQUIRE(scores.size() == 1);
  CHECK(scores[0].compute == DType::f16);
  CHECK(scores[0].reason == "takes the dtype it is given, policy set to keep");
  const Json json = Json::parse(output(dir, "plan c.json --json"));
  CHECK(json["amp"] == "float16");
  const std::string text = output(dir, "plan c.json --out p.json") + read(dir / "p.json");
  CHECK(contains(text, "computes in float32, set for block.body.0"));
  CHECK(contains(text, "policy set to keep"));

  // Without mixed precision both do nothing.
  const Config plain = load_config(dir / "c.json", {.no_amp = true});
  for (const LayerRow& row : plain.layers) CHECK(row.dtype == DType::f32);
  for (const LoggedCall& call : plan_step(plain).calls) {
    CHECK(!is_half(call.compute));
    CHECK(!contains(call.reason, "set "));
  }
}

TEST_CASE("amp.modules and amp.policy: trained, resumed to the bit, evaluated and predicted with") {
  TempDir dir;
  write(dir / "c.json", kMixed);
  const std::string train = "train c.json --quiet --threads 1 ";
  output(dir, train + "--set output_dir=whole");
  output(dir, train + "--set output_dir=parts --set train.epochs=2");
  output(dir, train + "--set output_dir=parts --resume auto");
  same_weights(dir / "whole", dir / "parts");
  output(dir, train + "--set output_dir=other --set 'amp.modules={}'");
  same_weights(dir / "whole", dir / "other", false);
  output(dir, train + "--set output_dir=third --set 'amp.policy={}'");
  same_weights(dir / "whole", dir / "third", false);

  // The stored config has both.
  const double loss = last_value(dir / "whole", "val/loss");
  const auto evaluated = [&](const std::string& options) {
    return Json::parse(output(dir, "eval whole/latest --json --threads 1" + options))["val.loss"].get<double>();
  };
  CHECK(evaluated("") == loss);
  const double wide = evaluated(" --set 'amp.policy={}'");  // float32: finer than the 16-bit scores of log_softmax
  CHECK(wide != loss);
  CHECK(evaluated(" --set 'amp.policy={}' --set 'amp.modules={}'") != wide);
  CHECK(evaluated(" --no-amp") != loss);

  const Predictor predictor(dir / "whole/latest", {.device = "cpu"});
  const ModelParts& parts = predictor.parts();
  const NoGrad off;
  const Tensor x = rand({5, 1, 28, 28});
  std::vector<float> expected;
  {
    const Autocast region(Device::cpu,
                          AutocastOptions{.dtype = DType::f16, .policies = OpPolicies{{"log_softmax", CastPolicy::keep}}});
    const Tensor y = (*parts.model)(x);
    CHECK(y.dtype() == DType::f16);
    expected = y.to(DType::f32).to_vector<float>();
  }
  CHECK(predictor(x).to_vector<float>() == expected);
}

TEST_CASE("--no-amp: the same run as of a config without amp") {
  TempDir dir;
  write(dir / "c.json", kMixed);
  output(dir, "train c.json --quiet --threads 1 --set output_dir=a --no-amp");
  Json json = Json::parse(kMixed);
  json.erase("amp");
  write(dir / "d.json", json.dump());
  output(dir, "train d.json --quiet --threads 1 --set output_dir=b");
  same_weights(dir / "a", dir / "b");
}

TEST_CASE("amp.modules and amp.policy: what is wrong with them") {
  TempDir dir;
  write(dir / "c.json", kMixed);
  const auto with = [&](const std::string& set) { return error_of(dir / "c.json", {.sets = {set}}); };
  CHECK(contains(with(R"(amp.modules={"blok": "float32"})"),
                 "amp.modules: \"blok\" is in no module's name; did you mean \"block\"?"));
  CHECK(contains(with(R"(amp.modules={"block": "fp32"})"),
                 "amp.modules.block: must be \"float32\", \"float16\" or \"bfloat16\", got \"fp32\"; did you mean \"float32\"?"));
  CHECK(contains(with(R"(amp.modules={"block": "half"})"), "; did you mean \"float16\"?"));
  CHECK(contains(with(R"(amp.modules={"block": "float64"})"), "amp.modules.block: must be"));
  CHECK(contains(with(R"(amp.modules={"(": "float32"})"), "amp.modules.(: must be a regular expression, got \"(\""));
  CHECK(contains(with(R"(amp.modules=["block"])"), "amp.modules: must be an object of at most 100 regular expressions"));
  CHECK(contains(with(R"(amp.modules={"block": "float32", "bloc.": "bfloat16"})"), "match equally much of \"block\""));
  CHECK(with(R"(amp.modules={"block": "float32", "bloc.": "float32", "": "bfloat16", "nothing": null})").empty());
  CHECK(contains(with(R"(amp.policy={"log_sofmax": "keep"})"),
                 "amp.policy.log_sofmax: there is no op \"log_sofmax\" to set a policy for; did you mean \"log_softmax\"?"));
  CHECK(contains(with(R"(amp.policy={"log_softmax": "fp32"})"), "; did you mean \"f32\"?"));
  CHECK(contains(with(R"(amp.policy={"relu": "f32_output"})"), "amp.policy.relu: relu has no dtype of its result to choose"));
  CHECK(contains(with(R"(amp.policy={"matmul": "f32"})"), "amp.policy.matmul: matmul has no policy of its own"));
  CHECK(contains(with(R"(amp.policy={"log_softmax": "banned"})"), "is unsafe to autocast"));
  // In float16 somewhere: the scaler is on.
  CHECK(load_config(dir / "c.json", {.sets = {"amp.dtype=bfloat16", R"(amp.modules={"head": "float16"})"}}).scaler.enabled);
  CHECK(!load_config(dir / "c.json", {.sets = {"amp.dtype=bfloat16"}}).scaler.enabled);
}

TEST_CASE("train.guard skips steps whose gradients are not finite, in float32 and bfloat16") {
  TempDir dir;
  write(dir / "c.json", R"({"model": {"type": "Linear", "out_features": "auto"}, "loss": "MSELoss", "device": "cpu",
    "optimizer": {"type": "Adam", "lr": 0.01}, "output_dir": "r", "checkpoint": {"every": "never"}, "logging": {"every": 1},
    "data": {"train": {"type": "Random", "num_batches": 4, "input_shape": [4], "target_shape": [1]}, "loader": {"batch_size": 8}},
    "train": {"epochs": 2, "guard": true}})");
  for (const char* amp : {"false", "true"}) {
    const Config config = load_config(dir / "c.json", {.sets = {std::string("amp=") + amp}});
    CHECK(config.scaler.enabled);
    CHECK(config.scaler.fixed);
    CHECK(config.scaler.init_scale == 1);
    CHECK(config.warnings.empty());
    const Ran ran = run(dir, joined("train c.json --json --set amp=", amp, " --set output_dir=amp-", amp));
    REQUIRE(ran.code == 0);
    CHECK(ran.json()["steps_skipped"] == 0);
    CHECK(ran.json()["scale"] == 1.0);
  }
  CHECK(!load_config(dir / "c.json", {.sets = {"train.guard=false"}}).scaler.enabled);
  CHECK(!load_config(dir / "c.json", {.sets = {"amp.dtype=float16"}}).scaler.fixed);
  CHECK(contains(error_of(dir / "c.json", {.sets = {"optimizer=LBFGS"}}), "train.guard: must not be true with LBFGS"));

  // A rate that explodes: the loss of the third step is inf, and every one after it.
  const std::string explode = R"(train c.json --json --set 'optimizer={"type": "SGD", "lr": 1e20}' --set output_dir=)";
  const Ran guarded = run(dir, explode + "b"), plain = run(dir, explode + "c --set train.guard=false");
  REQUIRE(guarded.code == 0);
  CHECK(guarded.json()["steps_skipped"] == 6);
  CHECK(guarded.json()["steps_applied"] == 2);
  CHECK(contains(guarded.err, "step 2 (epoch 1): the loss is not finite"));
  const Ran silent = run(dir, explode + "d --set diagnostics.explain=false");
  CHECK(contains(silent.err, "note: step 3 was skipped: its loss was not finite"));
  CHECK(plain.code == 4);
}

TEST_CASE("convolutions of many channels lie in channels_last by themselves, on a CPU in bfloat16") {
  const auto lies = [](int channels, const std::vector<std::string>& options) {
    Json json = Json::parse(R"({
      "model": {"type": "Sequential", "layers": [{"type": "Conv2d", "in_channels": 1, "kernel_size": 3},
        {"type": "Conv2d", "out_channels": 8, "kernel_size": 3}, "Flatten", {"type": "Linear", "out_features": "auto"}]},
      "loss": "CrossEntropyLoss", "optimizer": "SGD", "device": "cpu", "amp": {"dtype": "bfloat16"},
      "data": {"train": {"type": "Digits", "size": 20}, "loader": {"batch_size": 4}}, "train": {"epochs": 1}})");
    json["model"]["layers"][0]["out_channels"] = json["model"]["layers"][1]["in_channels"] = channels;
    const Session s = make_session(resolve_config(json, "layout", {.sets = options}));
    return s.model->parameters()[2].format() == MemoryFormat::channels_last;
  };
  CHECK(lies(16, {}));
  CHECK_FALSE(lies(8, {}));
  CHECK_FALSE(lies(16, {"amp.enabled=false"}));
  CHECK_FALSE(lies(16, {"amp.dtype=float16"}));
  CHECK_FALSE(lies(16, {"performance.channels_last=false"}));
  CHECK(lies(8, {"performance.channels_last=true"}));
}
