// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>

#include "framework/io/safetensors.h"
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
