// SPDX-License-Identifier: Apache-2.0
// Weights of torchvision and of Hugging Face in models of configs: configs/fine_tune, made narrow as the files of
// scripts/make_fine_tune_goldens.py are.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>

#include "apps/session/session.h"
#include "apps/use/generator.h"
#include "framework/io/weights/safetensors.h"
#include "framework/ops/ops.h"
#include "tests/apps/support.h"
#include "tests/support/source_dir.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

std::string golden(const std::string& name) { return halfstep_source_dir() + "/tests/apps/fine_tune/" + name; }

Json published(const std::string& name) {
  return Json::parse(read(configs() / "fine_tune" / name), nullptr, true, /*ignore_comments=*/true);
}

// From 64 channels to 2.
void narrow(Json& layer) {
  if (layer.is_object() && layer.contains("out_channels")) layer["out_channels"] = layer["out_channels"].get<int>() / 32;
  for (Json& below : layer) {
    if (below.is_structured()) narrow(below);
  }
}

// resnet18_head.json, 2 channels wide, on random pictures of `classes` classes.
Json narrow_resnet(int classes, const std::string& file = golden("resnet18.safetensors")) {
  Json out = published("resnet18_head.json");
  narrow(out["model"]["layers"]);
  out["model"]["weights"]["path"] = file;
  out["device"] = "cpu";
  const Json pictures = {{"type", "Random"}, {"num_batches", 4}, {"input_shape", {3, 32, 32}}, {"classes", classes}};
  out["data"] = {{"train", pictures}, {"val", pictures}, {"loader", {{"batch_size", 8}}}};
  out["train"]["epochs"] = 2;
  out["scheduler"] = nullptr;
  return out;
}

// gpt2.json, 16 wide, on a text that is written to `dir`.
Json narrow_gpt2(const TempDir& dir, const std::string& file) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "First Citizen:\nBefore we proceed any further, hear me speak.\n\nAll:\nSpeak, speak.\n\n";
  write(dir / "text.txt", text);
  Json out = published("gpt2.json");
  Json& layers = out["model"]["layers"];
  layers[0]["embedding_dim"] = 16;
  layers[1]["max_len"] = 32;
  layers[3].update(Json{{"num_layers", 2}, {"nhead", 2}, {"dim_feedforward", 64}});
  out["model"]["weights"]["path"] = file;
  out["device"] = "cpu";
  out["amp"] = false;
  out["scheduler"] = nullptr;
  Json& data = out["data"];
  data["tokenizer_file"] = halfstep_source_dir() + "/tests/data/tokenizers/gpt2.json";
  data["seq_len"] = 32;
  for (const char* split : {"train", "val"}) data[split]["path"] = (dir / "text.txt").string();
  return out;
}

std::map<std::string, std::vector<float>> saved(const TempDir& dir, const std::string& run) {
  std::map<std::string, std::vector<float>> out;
  for (const auto& [name, t] : load_checkpoint(resolve_checkpoint(dir / ("runs/" + run))).model)
    out[name] = t.to(DType::f32).to_vector<float>();
  return out;
}

}  // namespace

TEST_CASE("ResNet-18: torchvision's weights give torchvision's outputs") {
  const TempDir dir;
  const TensorMap want = load_safetensors(golden("resnet18_outputs.safetensors")).tensors;
  for (const char* file : {"resnet18.safetensors", "resnet18.pt"}) {
    CAPTURE(file);
    Json config = narrow_resnet(6, golden(file));
    config["model"]["weights"]["skip"] = Json::array();
    config["amp"] = false;
    write(dir / "all.json", config.dump());
    Session s = make_session(load_config(dir / "all.json"), nullptr, FirstValues::with_files);
    CHECK(s.weights_read == std::vector<std::string>{"weights: " + golden(file) + ": 122 tensors"});
    s.model->eval();
    const NoGrad off;
    const Tensor y = (*s.model)(want.at("x"));
    CHECK((y - want.at("y")).abs().amax().item<double>() < 1e-5);
  }
}

TEST_CASE("ResNet-18: first a new head learns, then all parameters") {
  const TempDir dir;
  write(dir / "resnet18_head.json", narrow_resnet(4).dump());
  Ran r = run(dir, "validate resnet18_head.json");
  CAPTURE(r.err);
  CHECK(contains(r.out, "resnet18.safetensors: 120 tensors; fc.weight, fc.bias keep their first values"));
  r = run(dir, "train resnet18_head.json");
  REQUIRE(r.code == 0);
  CHECK(contains(r.out, "resnet18.safetensors: 120 tensors; fc.weight, fc.bias keep their first values"));
  CHECK(contains(r.out, " (68 trained) on cpu"));  // 4 * 16 + 4
  const TensorMap file = load_safetensors(golden("resnet18.safetensors")).tensors;
  const auto head = saved(dir, "resnet18_head");
  CHECK(head.at("layer3.0.shortcut.0.weight") == file.at("layer3.0.downsample.0.weight").to_vector<float>());
  CHECK(head.at("layer4.1.body.bn2.weight") == file.at("layer4.1.bn2.weight").to_vector<float>());
  CHECK(head.at("fc.weight").size() == 4 * 16);
  CHECK(head.at("bn1.running_mean") != file.at("bn1.running_mean").to_vector<float>());  // as in PyTorch, frozen or not

  fs::copy_file(configs() / "fine_tune/resnet18_all.json", dir / "resnet18_all.json");
  r = run(dir, "train resnet18_all.json");
  CAPTURE(r.err);
  REQUIRE(r.code == 0);
  CHECK(contains(r.out, "weights: runs/resnet18_head/step-0000000"));
  CHECK(contains(r.out, " (best): 122 tensors\n"));
  CHECK(contains(r.out, ", lr of groups 0.001, 0.0001, 12 steps"));
  const auto all = saved(dir, "resnet18_all");
  for (const auto& weights : all) {
    const std::string& name = weights.first;
    CAPTURE(name);
    CHECK(weights.second != head.at(name));
  }
  const auto moved = [&](const std::string& name) {
    double most = 0;
    for (size_t i = 0; i < all.at(name).size(); ++i) most = std::max(most, std::abs(double(all.at(name)[i] - head.at(name)[i])));
    return most;
  };
  CHECK(moved("fc.weight") > 3 * moved("layer1.0.body.conv1.weight"));
}

TEST_CASE("Lookahead begins at the weights of the file") {
  const TempDir dir;
  Json config = narrow_resnet(4);
  config["train"]["lookahead"] = {{"k", 1}, {"alpha", 0.001}};
  config["model"]["freeze"] = nullptr;
  config["optimizer"]["lr"] = 1e-6;
  write(dir / "slow.json", config.dump());
  REQUIRE(run(dir, "train slow.json").code == 0);
  const TensorMap file = load_safetensors(golden("resnet18.safetensors")).tensors;
  const auto got = saved(dir, "resnet18_head").at("conv1.weight"), want = file.at("conv1.weight").to_vector<float>();
  for (size_t i = 0; i < got.size(); ++i) CHECK(got[i] == doctest::Approx(want[i]).epsilon(1e-3));
}

TEST_CASE("GPT-2: Hugging Face's weights, in both layouts, give PyTorch's tokens; training continues from them") {
  const Json want = Json::parse(read(golden("gpt2_tokens.json")));
  for (const char* file : {"gpt2.safetensors", "gpt2.pt"}) {
    CAPTURE(file);
    const TempDir dir;
    write(dir / "gpt2.json", narrow_gpt2(dir, golden(file)).dump());
    Ran r = run(dir, "train gpt2.json --set train.epochs=0");
    CAPTURE(r.err);
    REQUIRE(r.code == 0);
    CHECK(contains(r.out, "tensors\n"));
    CHECK(contains(r.out, "done: 0 steps, as train.epochs says; the first values are saved"));
    fs::remove(dir / "text.txt");
    for (const Json& c : want["cases"]) {
      write(dir / "prompt.txt", c["prompt"].get<std::string>());
      const Json got = run(dir, "generate runs/gpt2 --prompt-file prompt.txt --temperature 0 --json --length " +
                                    std::to_string(c["tokens"].size()))
                           .json();
      CHECK(got["prompt_tokens"] == c["prompt_tokens"]);
      CHECK(got["tokens"] == c["tokens"]);
      CHECK(got["by_steps"] == true);
    }
    narrow_gpt2(dir, golden(file));  // the text
    r = run(dir, "train gpt2.json --overwrite --json --set optimizer.lr=0.003 --set train.epochs=4");
    REQUIRE(r.code == 0);
    const double before = run(dir, "train gpt2.json --json --set train.epochs=0 --set output_dir=runs/before").json()["val.loss"];
    CHECK(r.json()["val.loss"].get<double>() < before - 2);
    const auto state = saved(dir, "gpt2");
    CHECK_FALSE(state.contains("lm_head.weight"));  // it is wte.weight
    CHECK(run(dir, "eval runs/gpt2").code == 0);
  }
}

TEST_CASE("GPT-2: scores are PyTorch's to 1e-4") {
  const TempDir dir;
  write(dir / "gpt2.json", narrow_gpt2(dir, golden("gpt2.safetensors")).dump());
  Session s = make_session(load_config(dir / "gpt2.json"), nullptr, FirstValues::with_files);
  s.model->eval();
  const NoGrad off;
  const Json want = Json::parse(read(golden("gpt2_tokens.json")));
  const auto ids = want["cases"][0]["prompt_tokens"].get<std::vector<int64_t>>();
  const Tensor y = (*s.model)(from_vector(ids, {1, int64_t(ids.size())}));
  for (int64_t i = 0; i < 8; ++i) CHECK(y[0][-1][i].item<double>() == doctest::Approx(want["logits"][size_t(i)]).epsilon(1e-4));
}

TEST_CASE("files of the published sizes: all names and shapes are matched") {
  // A file that has a header and a hole: on the device meta nothing is read.
  const TempDir dir;
  const auto write_hole = [&](const std::string& list, const std::string& cut, const std::string& more,
                              const std::string& without) {
    Json header;
    std::istringstream lines(read(fs::path(halfstep_source_dir()) / "examples" / list) + more);
    std::string line;
    uint64_t end = 0;
    while (std::getline(lines, line)) {
      std::string name = line.substr(0, line.find(' '));
      if (name.starts_with(cut)) name.erase(0, cut.size());
      if (name == without) continue;
      const Json shape = Json::parse(line.substr(line.find(' ')));
      const bool counts = name.ends_with("num_batches_tracked");
      uint64_t bytes = counts ? 8 : 4;
      for (const Json& n : shape) bytes *= n.get<uint64_t>();
      header[name] = {{"dtype", counts ? "I64" : "F32"}, {"shape", shape}, {"data_offsets", {end, end + bytes}}};
      end += bytes;
    }
    const std::string text = header.dump();
    const uint64_t size = text.size();
    std::ofstream(dir / "hole.safetensors", std::ios::binary) << std::string(reinterpret_cast<const char*>(&size), 8) << text;
    fs::resize_file(dir / "hole.safetensors", 8 + size + end);
  };
  const auto says = [&](Json config) {
    config["model"]["weights"]["path"] = "hole.safetensors";
    write(dir / "config.json", config.dump());
    const Ran r = run(dir, "validate config.json");
    return r.out + r.err;
  };
  Json resnet = narrow_resnet(1000);
  resnet["model"]["layers"] = published("resnet18_head.json")["model"]["layers"];
  resnet["model"]["weights"]["skip"] = Json::array();
  write_hole("resnet18.txt", "", "", "");
  CHECK(contains(says(resnet), "weights: hole.safetensors: 122 tensors\n"));

  Json gpt2 = narrow_gpt2(dir, "");
  gpt2["model"]["layers"] = published("gpt2.json")["model"]["layers"];
  gpt2["data"]["vocab_size"] = 50257;
  const std::string masks = "transformer.h.0.attn.bias [1, 1, 1024, 1024]\ntransformer.h.11.attn.masked_bias []\n";
  write_hole("gpt2_small.txt", "", "", "");
  CHECK(contains(says(gpt2), "weights: hole.safetensors: 149 tensors\n"));
  write_hole("gpt2_small.txt", "transformer.", masks, "lm_head.weight");  // as it is published
  CHECK(contains(says(gpt2), "weights: hole.safetensors: 148 tensors\n"));
  write_hole("gpt2_small.txt", "transformer.", masks, "wpe.weight");
  CHECK(contains(says(gpt2), "missing: wpe.weight"));
}

TEST_CASE("docs/fine_tuning.md has the lines of configs/fine_tune") {
  const std::string page = read(fs::path(halfstep_source_dir()) / "docs/fine_tuning.md"), begin = "```json";
  // Is all that the page has in the config? A list of "..." is any.
  const std::function<void(const Json&, const Json&)> within = [&](const Json& part, const Json& whole) {
    CAPTURE(part.dump());
    if (part == Json::array({"..."})) return;
    if (!part.is_object()) {
      CHECK(part == whole);
      return;
    }
    for (const auto& [key, value] : part.items()) {
      REQUIRE(whole.contains(key));
      within(value, whole[key]);
    }
  };
  std::vector<std::string> names = {"resnet18_head.json", "resnet18_all.json", "gpt2.json", "bert.json"};
  size_t at = 0;
  for (const std::string& name : names) {
    CAPTURE(name);
    at = page.find(begin, at);
    REQUIRE(at != std::string::npos);
    at = page.find('\n', at) + 1;  // behind "fragment", which marks a part of a config
    const std::string block = page.substr(at, page.find("```", at) - at);
    within(Json::parse(block.starts_with("{") ? block : "{" + block + "}"), published(name));
  }
  CHECK(page.find(begin, at) == std::string::npos);
}

TEST_SUITE("data") {
  TEST_CASE("fine-tuning on real pictures and a real text") {
    const char* const data = std::getenv("HALFSTEP_DATA");
    if (!data) {
      MESSAGE("SKIPPED: set HALFSTEP_DATA to the folder that holds cifar10/ and tinyshakespeare/");
      std::puts("SKIPPED: set HALFSTEP_DATA to the folder that holds cifar10/ and tinyshakespeare/");
      return;
    }
    const TempDir dir;
    Json head = narrow_resnet(10);
    for (const char* key : {"data", "train", "scheduler"}) head[key] = published("resnet18_head.json")[key];
    write(dir / "resnet18_head.json", head.dump());
    fs::copy_file(configs() / "fine_tune/resnet18_all.json", dir / "resnet18_all.json");
    Ran r = run(dir, "train resnet18_head.json --json --set optimizer.lr=0.01");
    REQUIRE_MESSAGE(r.code == 0, r.err);
    CHECK(r.json()["val.accuracy"].get<double>() > 0.13);  // of 16 features that nobody trained; chance is 0.1
    r = run(dir, "train resnet18_all.json --json --set optimizer.lr=0.01 --set optimizer.groups.0.lr=0.02");
    REQUIRE_MESSAGE(r.code == 0, r.err);
    CHECK(r.json()["val.accuracy"].get<double>() > 0.25);

    Json gpt2 = narrow_gpt2(dir, golden("gpt2.safetensors"));
    for (const char* split : {"train", "val"}) gpt2["data"][split] = published("gpt2.json")["data"][split];
    write(dir / "gpt2.json", gpt2.dump());
    const double before = run(dir, "train gpt2.json --json --set train.epochs=0 --set output_dir=runs/before").json()["val.loss"];
    r = run(dir, "train gpt2.json --json --set optimizer.lr=0.003 --set train.limit_batches=400");
    REQUIRE_MESSAGE(r.code == 0, r.err);
    const double after = r.json()["val.loss"];
    CAPTURE(before);
    CAPTURE(after);
    CHECK(after < before - 1);
    CHECK(after < 5.2);  // of 420 tokens; all alike would give 6.04
  }
}
