// SPDX-License-Identifier: Apache-2.0
// The metadata of a capsule: the parts of the input are what is known of its step, its config, data.json and state, with digests
// that fit.
#include "apps/train/capsule.h"

#include "apps/use/model_file.h"
#include "framework/io/files/checksum.h"
#include "framework/io/weights/safetensors.h"
#include "framework/ops/ops.h"
#include "tests/fuzz/fuzz.h"

HALFSTEP_FUZZ_HARNESS(capsule) {
  using namespace halfstep;
  using namespace halfstep::app;
  const auto part = fuzz::parts(fuzz::text_of(data, size), 4);
  const auto path = fuzz::folder() / "capsule.safetensors";
  fuzz::typed([&] {
    const TensorMap tensors{{"input.0", ones({2, 3})}, {"target.0", ones({2})}, {"model.weight", ones({3})}};
    std::map<std::string, std::string> metadata{{"halfstep.capsule", "1"},
                                                {"halfstep.step", std::string(part[0])},
                                                {"halfstep.config", std::string(part[1])},
                                                {"halfstep.data", std::string(part[2])},
                                                {"halfstep.state", std::string(part[3])},
                                                {"halfstep.tensors", sha256(tensors)}};
    metadata["halfstep.sha256"] = metadata_digest(metadata);
    save_safetensors(path, tensors, metadata);
  });
  fuzz::typed([&] {
    const Capsule c = read_capsule(path);
    if (c.about.number < 1 || c.batches.empty()) fuzz::found("a capsule without a step");
    checkpoint_of(c, path);
  });
  return 0;
}
