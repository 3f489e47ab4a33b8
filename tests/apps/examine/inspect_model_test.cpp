// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>

#include "framework/io/weights/safetensors.h"
#include "framework/ops/ops.h"
#include "tests/apps/tiny_run.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

TEST_CASE("inspect: a run, a checkpoint and files of weights") {
  const Folder dir;
  REQUIRE(dir.train().code == 0);
  const Ran text = run(dir, "inspect r --values");
  CHECK(text.code == 0);
  for (const char* part :
       {"a run of tiny", "step 12", "latest", "all digests hold", "3 classes", "weight", "3 x 4", "2 tensors, 15 numbers"})
    CHECK_MESSAGE(contains(text.out, part), text.out);
  const Json json = run(dir, "inspect r --values --json").json();
  CHECK(json["kind"] == "run");
  CHECK(json["checkpoints"].size() == 4);
  CHECK(json["tensors"][0]["numbers"].get<int>() + json["tensors"][1]["numbers"].get<int>() == 15);
  CHECK(json["tensors"][0]["max"].get<double>() >= json["tensors"][0]["mean"].get<double>());
  CHECK(run(dir, "inspect r/step-00000006 --json").json()["step"] == 6);

  REQUIRE(run(dir, "export r --to safetensors --out m.safetensors").code == 0);
  CHECK(run(dir, "inspect m.safetensors --json").json()["kind"] == "exported");
  save_safetensors(dir / "w.safetensors", {{"a", full({2}, NAN)}, {"b", ones({3, 1})}});
  const Ran broken = run(dir, "inspect w.safetensors --values");
  CHECK_MESSAGE(contains(broken.out, "warning: 1 tensor holds values that are NaN or infinite"), broken.out);

  // A damaged checkpoint is named; the run can still be looked at.
  replace_in(dir / "r/step-00000003/state.json", "\"format\"", "\"farmot\"");
  CHECK(contains(run(dir, "inspect r").out, "step 3         "));
  CHECK(contains(run(dir, "inspect r").out, "damaged: "));
  CHECK(run(dir, "inspect r/step-00000003").code == 3);
  CHECK(run(dir, "inspect").code == 2);
  CHECK(contains(run(dir, "inspect tiny.json").err, "halfstep inspect data tiny.json"));
  CHECK(run(dir, "inspect nothing").code == 3);
}

TEST_CASE("inspect: weights of other programs, in all their forms") {
  const Folder dir;
  const std::string files = halfstep_source_dir() + "/tests/io/torch/", hub = halfstep_source_dir() + "/tests/apps/fine_tune/";
  const auto json = [&](const std::string& arguments) {
    const Ran r = run(dir, "inspect --json " + arguments);
    CHECK_MESSAGE(r.code == 0, r.err);
    return r.json();
  };
  CHECK(json(files + "objects.pt")["key"] == "model_state");
  CHECK(contains(run(dir, "inspect " + files + "objects.pt").out, ", those of the key \"model_state\"\n"));
  const Ran several = run(dir, "inspect " + files + "two_models.pt");
  CHECK(several.code == 3);
  CHECK(contains(several.err, "or halfstep inspect --key model"));
  CHECK(json(files + "two_models.pt --key state_dict")["key"] == "state_dict");
  CHECK(run(dir, "inspect " + files + "two_models.pt --key ema").code == 3);
  CHECK(contains(run(dir, "inspect --key model " + hub + "resnet18.safetensors").err, "a key is for files of torch.save"));
  const Json mixed = json(files + "mixed.pt");
  REQUIRE(mixed["tensors"].size() == 3);
  CHECK((mixed["tensors"][0]["name"] == "w" && !mixed["tensors"][0].contains("unread")));
  CHECK((mixed["tensors"][1]["dtype"] == "ComplexFloatStorage" && mixed["tensors"][1]["unread"] == true));
  CHECK(mixed["others"] == 1);
  CHECK(contains(run(dir, "inspect " + files + "mixed.pt").out, "2 of them are of a kind that halfstep does not have"));
  for (const char* path : {"roberta", "roberta/model.safetensors.index.json"}) {
    const Json roberta = json(hub + path);
    CHECK(roberta["files"].size() == 3);
    CHECK(roberta["tensors"].size() == 41);
  }
  CHECK(json(hub + "bert")["tensors"].size() == 41);
  write(dir / "net.onnx", std::string("\x08\x08\x12\x07pytorch", 11));
  write(dir / "net.pt", std::string("\x08\x08\x12\x07pytorch", 11));
  for (const char* name : {"net.onnx", "net.pt"}) {
    const Ran onnx = run(dir, std::string("inspect ") + name);
    CHECK(onnx.code == 3);
    CHECK_MESSAGE(contains(onnx.err, "a model in ONNX, which halfstep export writes and nothing reads\nhelp: "), onnx.err);
    CHECK(contains(onnx.err, ".pt"));
  }
}
