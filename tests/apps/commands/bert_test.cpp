// SPDX-License-Identifier: Apache-2.0
// BERT and RoBERTa of Hugging Face in models of configs: configs/fine_tune/bert.json, made narrow as the files of
// scripts/make_bert_goldens.py are.
#include <doctest/doctest.h>

#include "apps/session/session.h"
#include "framework/io/weights/safetensors.h"
#include "framework/ops/ops.h"
#include "tests/apps/support.h"
#include "tests/data/array_files.h"
#include "tests/support/source_dir.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

std::string hub_file(const std::string& name) { return halfstep_source_dir() + "/tests/apps/fine_tune/" + name; }

// bert.json, 16 wide, with all weights of the file. The data is never read by the model.
Json narrow_bert(const TempDir& dir, const std::string& folder) {
  std::string tokens, classes;
  for (int64_t i = 0; i < 24 * 10; ++i) tokens.append(1, char(2 + i * i % 48)).append(7, '\0');
  for (int64_t i = 0; i < 24; ++i) classes.append(1, char(i % 3)).append(7, '\0');
  write(dir / "tokens.npz", halfstep::testing::zip({{"x.npy", halfstep::testing::npy("<i8", "(24, 10)", tokens)},
                                                    {"y.npy", halfstep::testing::npy("<i8", "(24,)", classes)}},
                                                   false));
  Json out = Json::parse(read(configs() / "fine_tune/bert.json"), nullptr, true, /*ignore_comments=*/true);
  Json& layers = out["model"]["layers"];
  layers[0]["embedding_dim"] = 16;
  layers[1]["max_len"] = 12;
  layers[4].update(Json{{"num_layers", 2}, {"nhead", 2}, {"dim_feedforward", 32}});
  layers[6]["out_features"] = 16;
  out["model"]["weights"]["path"] = folder;
  out["model"]["weights"]["skip"] = Json::array();
  out["device"] = "cpu";
  out["amp"] = false;
  out["scheduler"] = nullptr;
  out["data"]["root"] = dir.path().string();
  for (const char* split : {"train", "val"}) out["data"][split]["vocab_size"] = 50;
  return out;
}

Json narrow_roberta(const TempDir& dir, const std::string& folder) {
  Json out = narrow_bert(dir, folder);
  out["model"]["layers"][2]["eps"] = out["model"]["layers"][4]["layer_norm_eps"] = 1e-5;
  Json& weights = out["model"]["weights"];
  weights["part"] = Json::array({{{"match", "position_embeddings"}, {"start", 2}}});
  weights["rename"][0] = {{"match", "^roberta\\."}};
  weights["rename"].push_back({{"match", "^classifier\\.dense\\."}, {"replace", "pooler."}});
  weights["rename"].push_back({{"match", "^classifier\\.out_proj\\."}, {"replace", "classifier."}});
  return out;
}

}  // namespace

TEST_CASE("BERT and RoBERTa: a folder of Hugging Face, whole or in several files, gives PyTorch's scores") {
  const TempDir dir;
  const TensorMap want = load_safetensors(hub_file("bert_outputs.safetensors")).tensors;
  const auto scores = [&](const Json& config, const std::string& said) {
    write(dir / "bert.json", config.dump());
    Session s = make_session(load_config(dir / "bert.json"), nullptr, FirstValues::with_files);
    REQUIRE(s.weights_read.size() == 1);
    CHECK_MESSAGE(contains(s.weights_read[0], said), s.weights_read[0]);
    s.model->eval();
    const NoGrad off;
    return (*s.model)(want.at("tokens"));
  };
  const std::string joined = "; 5 are joined: positions.weight of positions.weight, token_type.weight, and 4 more";
  CHECK((scores(narrow_bert(dir, hub_file("bert")), "bert: 32 tensors" + joined) - want.at("bert")).abs().amax().item<double>() <
        1e-5);
  const Json roberta = narrow_roberta(dir, hub_file("roberta"));
  CHECK((scores(roberta, "roberta: 32 tensors in 3 files" + joined) - want.at("roberta")).abs().amax().item<double>() < 1e-5);
  const Json index = narrow_roberta(dir, hub_file("roberta/model.safetensors.index.json"));
  CHECK((scores(index, "index.json: 32 tensors in 3 files" + joined) - want.at("roberta")).abs().amax().item<double>() < 1e-5);
}

TEST_CASE("BERT trains from a file with a new head, and its run is used without the file") {
  const TempDir dir;
  Json config = narrow_bert(dir, hub_file("bert"));
  config["model"]["weights"]["skip"] = Json::array({"^classifier\\."});
  config["optimizer"]["lr"] = 0.01;
  write(dir / "bert.json", config.dump());
  Ran r = run(dir, "validate bert.json");
  CHECK_MESSAGE(contains(r.out, "classifier.weight, classifier.bias keep their first values; 5 are joined"), (r.out + r.err));
  r = run(dir, "train bert.json");
  CHECK_MESSAGE(r.code == 0, r.err);
  r = run(dir, "predict runs/bert tokens.npz");
  CHECK_MESSAGE(r.code == 0, r.err);
}

TEST_CASE("weights: files of several that are not all there, or are of another model") {
  const TempDir dir;
  fs::copy(hub_file("roberta"), dir / "part");
  write(dir / "bert.json", narrow_roberta(dir, "part").dump());
  const auto says = [&](const std::string& text) {
    const Ran r = run(dir, "validate bert.json");
    CHECK(r.code == 2);
    CHECK_MESSAGE(contains(r.err, text), r.err);
  };
  CHECK(run(dir, "validate bert.json").code == 0);
  fs::rename(dir / "part/model-00002-of-00003.safetensors", dir / "2");
  says("must have all 3 files of the index beside it, but 1 is missing: model-00002-of-00003.safetensors\nhelp: ");
  fs::copy_file(dir / "part/model-00003-of-00003.safetensors", dir / "part/model-00002-of-00003.safetensors");
  says(": its files lack ");
  fs::remove(dir / "part/model.safetensors.index.json");
  says("part: the folder has no weights: no model.safetensors, ");
  const Ran one = run(dir, "validate bert.json --set model.weights.path=part/model-00001-of-00003.safetensors");
  CHECK_MESSAGE(contains(one.err, "help: the file is one of several: the path of their folder"), one.err);
  write(dir / "part/model.safetensors.index.json", R"({"weight_map": {"a": "../2"}})");
  says("\"a\" must be in a file beside the index, got \"../2\"");
  write(dir / "part/model.safetensors.index.json", R"({"weight_map": {"a": 3}})");
  says("\"a\" must be in a file beside the index, got 3");
  write(dir / "part/model.safetensors.index.json", "{\"weight_map\": ");
  says("is not valid JSON: ");
  write(dir / "part/model.safetensors.index.json", "{}");
  says("must have \"weight_map\" with the file of each tensor");
}
