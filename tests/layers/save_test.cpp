// Modules to safetensors files and back.
#include "layers/save.h"

#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include "framework/io/safetensors.h"
#include "layers/layers.h"
#include "tests/io/files.h"

using namespace halfstep;

namespace {

struct Tied : Module {
  std::shared_ptr<Linear> encoder = add("encoder", std::make_shared<Linear>(3, 3, false));
  std::shared_ptr<Linear> head = add("head", std::make_shared<Linear>(3, 3));
  Tied() { head->share_weight(encoder->weight); }
  Tensor forward(const Tensor& x) override { return (*head)((*encoder)(x)); }
  std::string describe() const override { return "Tied"; }
};

std::vector<float> values(const Tensor& t) { return t.to_vector<float>(); }

}  // namespace

TEST_CASE("a module's file is its state, and fills another module") {
  const testing::TempDir folder;
  Sequential net(std::make_shared<Linear>(4, 3), std::make_shared<ReLU>(), std::make_shared<Linear>(3, 2));
  save(net, folder / "net.safetensors", {{"epoch", "3"}});
  const TensorFile file = load_safetensors(folder / "net.safetensors");
  CHECK(file.tensors.size() == 4);
  CHECK(file.metadata == std::map<std::string, std::string>{{"epoch", "3"}, {"format", "pt"}});

  Sequential other(std::make_shared<Linear>(4, 3), std::make_shared<ReLU>(), std::make_shared<Linear>(3, 2));
  const LoadReport report = load(other, folder / "net.safetensors");
  CHECK((report.missing.empty() && report.unexpected.empty()));
  for (size_t i = 0; i < 4; ++i) CHECK(values(other.parameters()[i]) == values(net.parameters()[i]));
}

TEST_CASE("a part of a file by its prefix, names of another program, and what does not fit") {
  const testing::TempDir folder;
  const auto path = folder / "parts.safetensors";
  const Tensor w = full({2, 2}, 5), b = full({2}, 6);
  save_safetensors(path, {{"model.proj.kernel", w}, {"model.proj.b", b}, {"optimizer.step", ones({})}});
  Linear layer(2, 2);
  const auto rename = [](const std::string& name) { return name == "proj.kernel" ? "weight" : "bias"; };
  load(layer, path, {.prefix = "model.", .rename = rename});
  CHECK(values(layer.weight) == values(w));
  CHECK(values(layer.bias) == values(b));
  CHECK_THROWS_WITH_AS(load(layer, path, {.prefix = "modle."}), doctest::Contains("begins with \"modle.\""), ValueError);
  CHECK_THROWS_WITH_AS(load(layer, path), doctest::Contains("missing: weight"), ValueError);
  const LoadReport report = load(layer, path, {.strict = false});
  CHECK(report.missing == std::vector<std::string>{"weight", "bias"});
  CHECK(report.unexpected.size() == 3);
  CHECK_THROWS_AS(load(layer, folder / "absent.safetensors"), IoError);
}

TEST_CASE("a shared weight is saved once, under its first name, as safetensors.torch.save_model does") {
  const testing::TempDir folder;
  const auto path = folder / "tied.safetensors";
  Tied net;
  save(net, path);
  const TensorFile file = load_safetensors(path);
  CHECK(file.tensors.size() == 2);
  CHECK(file.tensors.contains("encoder.weight"));
  CHECK(file.metadata.at("head.weight") == "encoder.weight");
  Tied other;
  CHECK(load(other, path).missing.empty());
  CHECK(values(other.head->weight) == values(net.encoder->weight));

  // Two layers with weights of their own do miss one.
  Sequential apart;
  apart.push_back("encoder", std::make_shared<Linear>(3, 3, false)).push_back("head", std::make_shared<Linear>(3, 3));
  CHECK_THROWS_WITH_AS(load(apart, path), doctest::Contains("missing: head.weight"), ValueError);
}
