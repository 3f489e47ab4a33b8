// SPDX-License-Identifier: Apache-2.0
// The metadata of an exported model: the parts of the input are its golden samples, config, data.json, metrics and step.
#include "apps/use/model_file.h"
#include "framework/io/weights/safetensors.h"
#include "framework/ops/ops.h"
#include "tests/fuzz/fuzz.h"

HALFSTEP_FUZZ_HARNESS(model) {
  using namespace halfstep;
  using namespace halfstep::app;
  const auto part = fuzz::parts(fuzz::text_of(data, size), 5);
  fuzz::typed([&] {
    const Proof proof = read_proof(std::string(part[0]), "m");
    const Proof again = read_proof(to_text(proof), "m");
    if (to_text(again) != to_text(proof)) fuzz::found("other golden samples come back");
  });
  const auto path = fuzz::folder() / "model.safetensors";
  fuzz::typed([&] {
    std::map<std::string, std::string> metadata{{"halfstep.file", "1"},
                                                {"halfstep.proof", std::string(part[0])},
                                                {"halfstep.config", std::string(part[1])},
                                                {"halfstep.data", std::string(part[2])},
                                                {"halfstep.metrics", std::string(part[3])},
                                                {"halfstep.step", std::string(part[4])}};
    metadata["halfstep.sha256"] = metadata_digest(metadata);
    save_safetensors(path, {{"weight", ones({2})}}, metadata);
  });
  fuzz::typed([&] {
    const StoredModel model = load_model(path);
    stored_config(model.contents);
    stored_data(model.contents);
    if (stored_step(model.contents) < 0) fuzz::found("a negative step");
  });
  return 0;
}
