// SPDX-License-Identifier: Apache-2.0
// Modules to safetensors files and back.
#include "layers/module/save.h"

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "framework/io/weights/safetensors.h"
#include "framework/tensor/memory.h"
#include "layers/layers.h"
#include "tests/io/files.h"
#include "tests/support/source_dir.h"

using namespace halfstep;

namespace {

struct TiedPair : Module {
  Part<Linear> encoder{this, "encoder", 3, 3, false};
  Part<Linear> head{this, "head", 3, 3};
  TiedPair() { head->weight = encoder->weight; }
  Tensor forward(const Tensor& x) override { return head(encoder(x)); }
  std::string describe() const override { return "TiedPair"; }
};

std::vector<float> floats_of(const Tensor& t) { return t.to_vector<float>(); }

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
  for (size_t i = 0; i < 4; ++i) CHECK(floats_of(other.parameters()[i]) == floats_of(net.parameters()[i]));
}

TEST_CASE("a part of a file by its prefix, names of another program, and what does not fit") {
  const testing::TempDir folder;
  const auto path = folder / "parts.safetensors";
  const Tensor w = full({2, 2}, 5.0), b = full({2}, 6.0);
  save_safetensors(path, {{"model.proj.kernel", w}, {"model.proj.b", b}, {"optimizer.step", ones({})}});
  Linear layer(2, 2);
  const auto rename = [](const std::string& name) { return name == "proj.kernel" ? "weight" : "bias"; };
  load(layer, path, {.prefix = "model.", .rename = rename});
  CHECK(floats_of(layer.weight) == floats_of(w));
  CHECK(floats_of(layer.bias) == floats_of(b));
  CHECK_THROWS_WITH_AS(load(layer, path, {.prefix = "modle."}), doctest::Contains("begins with \"modle.\""), ValueError);
  CHECK_THROWS_WITH_AS(load(layer, path), doctest::Contains("missing: weight"), ValueError);
  const LoadReport report = load(layer, path, {.strict = false});
  CHECK(report.missing == std::vector<std::string>{"weight", "bias"});
  CHECK(report.unexpected.size() == 3);
  CHECK_THROWS_AS(load(layer, folder / "absent.safetensors"), IoError);
  const auto both = [](const std::string&) { return "weight"; };
  CHECK_THROWS_WITH_AS(load(layer, path, {.strict = false, .prefix = "model.", .rename = both}), doctest::Contains("twice: weight"),
                       ValueError);
}

TEST_CASE("a shared weight is saved once, under its first name, as safetensors.torch.save_model does") {
  const testing::TempDir folder;
  const auto path = folder / "tied.safetensors";
  TiedPair net;
  save(net, path);
  const TensorFile file = load_safetensors(path);
  CHECK(file.tensors.size() == 2);
  CHECK(file.tensors.contains("encoder.weight"));
  CHECK(file.metadata.at("head.weight") == "encoder.weight");
  TiedPair other;
  CHECK(load(other, path).missing.empty());
  CHECK(floats_of(other.head->weight) == floats_of(net.encoder->weight));

  // Two layers with weights of their own do miss one.
  Sequential apart;
  apart.push_back("encoder", std::make_shared<Linear>(3, 3, false)).push_back("head", std::make_shared<Linear>(3, 3));
  CHECK_THROWS_WITH_AS(load(apart, path), doctest::Contains("missing: head.weight"), ValueError);
}

TEST_CASE("views of one tensor that order its elements otherwise are states of their own") {
  struct Views : Module {
    Tensor table = arange(4.0).reshape({2, 2});
    ModuleBuffer rows = register_buffer("rows", table);
    ModuleBuffer columns = register_buffer("columns", table.t());
    ModuleBuffer repeated = register_buffer("repeated", table[0].expand({2, 2}));
  };
  const auto values = [](const StateDict& state, const char* name) { return state[name].contiguous().to_vector<float>(); };
  const Views net;
  const StateDict state = net.state_dict();
  CHECK(values(state, "rows") == std::vector<float>{0, 1, 2, 3});
  CHECK(values(state, "columns") == std::vector<float>{0, 2, 1, 3});
  CHECK(values(state, "repeated") == std::vector<float>{0, 1, 0, 1});
  const testing::TempDir folder;
  save(net, folder / "views.safetensors");
  CHECK(load_safetensors(folder / "views.safetensors").tensors.size() == 3);
}

TEST_CASE("a module is filled from a file of torch.save, which its content and not its name decides") {
  const testing::TempDir folder;
  const std::filesystem::path files = std::filesystem::path(halfstep_source_dir()) / "tests/io/torch";
  for (const char* name : {"layer.pt", "layer.old.pt", "checkpoint.pt"}) {
    std::filesystem::copy_file(files / name, folder / name);
    std::filesystem::rename(folder / name, folder / "net.safetensors");
    Sequential net{Linear(3, 2), BatchNorm1d(2)};
    const LoadReport report = load(net, folder / "net.safetensors");
    CHECK((report.missing.empty() && report.unexpected.empty()));
    CHECK(floats_of(net.parameters()[0]) == std::vector<float>{0, 1, 2, 3, 4, 5});
    CHECK(floats_of(net.parameters()[3]) == std::vector<float>{0, 1});
    Linear part(3, 2);
    load(part, folder / "net.safetensors", {.prefix = "0."});
    CHECK(floats_of(part.bias) == std::vector<float>{0, 1});
    save(net, folder / "net.pt");
    Sequential again{Linear(3, 2), BatchNorm1d(2)};
    load(again, folder / "net.pt");
    CHECK(floats_of(again.parameters()[0]) == floats_of(net.parameters()[0]));
  }
  Sequential whole{Linear(3, 2), BatchNorm1d(2)};
  load(whole, files / "whole_model.pt");  // a model that was pickled itself
  CHECK(floats_of(whole.parameters()[0]) == std::vector<float>{0, 1, 2, 3, 4, 5});
}

TEST_CASE("a module that was planned on meta is filled from a file") {
  const testing::TempDir folder;
  const auto path = folder / "tied.safetensors";
  TiedPair written;
  save(written, path);
  const auto planned = [] {
    const DefaultDevice on(Device::meta);
    return TiedPair();
  };
  TiedPair net = planned();
  CHECK_THROWS_WITH_AS(net.to(Device::cpu),
                       "[Module::to] \"encoder.weight\" is on the device meta, so it has no values to bring to cpu\n"
                       "help: to_empty(device), then load or initialise the weights; load() with a device does both",
                       MetaError);
  load(net, path);  // fits, and stays a plan
  CHECK(net.encoder->weight.device() == Device::meta);
  load(net, path, {.device = Device::cpu});
  CHECK(floats_of(net(ones({1, 3}))) == floats_of(written(ones({1, 3}))));
  CHECK(net.head->weight.same(net.encoder->weight));
  net(ones({1, 3})).sum().backward();

  TiedPair unfit = planned();
  save_safetensors(path, {{"encoder.weight", zeros({3, 3})}});
  CHECK_THROWS_WITH_AS(load(unfit, path, {.device = Device::cpu}), doctest::Contains("missing: head.bias"), ValueError);
  CHECK_THROWS_WITH_AS(load(unfit, path, {.strict = false, .device = Device::cpu}),
                       doctest::Contains("a module on the device meta needs all its tensors, but"), ValueError);
  CHECK(unfit.encoder->weight.device() == Device::meta);
}

TEST_CASE("to_empty gives memory without values") {
  Sequential net{Conv2d(1, 2, 3), BatchNorm2d(2)};
  net.to(MemoryFormat::channels_last);
  const Tensor weight = net.parameters()[0];
  net.to_empty(Device::meta);
  CHECK(weight.device() == Device::meta);
  net.to_empty(Device::cpu);
  CHECK((weight.device() == Device::cpu && weight.requires_grad() && weight.shape() == Shape{2, 1, 3, 3}));
  init::ones_(weight);
  CHECK(weight.sum().item() == 18);
}

TEST_CASE("tensors that are skipped keep their values, and matrices can be turned") {
  const testing::TempDir folder;
  const auto path = folder / "w.safetensors";
  const Tensor weight = reshape(arange(6.0), {2, 3}).to(DType::f32);
  save_safetensors(path, {{"body.kernel", weight}, {"mask", ones({4})}, {"head.weight", ones({7, 3})}});
  Sequential net{{"body", Linear(2, 3)}, {"head", Linear(3, 5)}};
  const std::vector<float> head = floats_of(net.at<Linear>(1).weight), bias = floats_of(net.at<Linear>(0).bias);
  const auto ends = [](const char* end) { return [=](const std::string& name) { return name.ends_with(end); }; };
  const auto skip = [](const std::string& name) { return name == "mask" || name == "body.bias" || name.starts_with("head."); };
  LoadOptions options{.rename = [](const std::string& name) { return name == "body.kernel" ? "body.weight" : name; },
                      .skip = skip,
                      .transpose = ends("kernel")};
  load(net, path, options);
  CHECK(floats_of(net.at<Linear>(0).weight) == std::vector<float>{0, 3, 1, 4, 2, 5});
  CHECK(floats_of(net.at<Linear>(0).bias) == bias);
  CHECK(floats_of(net.at<Linear>(1).weight) == head);
  const StateForModule read = read_state(net, path, options);
  CHECK(read.skipped == std::vector<std::string>{"body.bias", "head.weight", "head.bias"});

  options.transpose = ends("weight");  // the name after `rename`
  load(net, path, options);
  options.transpose = ends("mask");
  options.skip = ends("bias");
  CHECK_THROWS_WITH_AS(load(net, path, options), "[load] mask must be a matrix to be transposed, got [4]", ValueError);
  options.transpose = {};
  options.skip = ends("s");
  CHECK_THROWS_WITH_AS(load(net, path, options), doctest::Contains("unexpected: mask"), ValueError);
  Sequential planned = [] {
    const DefaultDevice on(Device::meta);
    return Sequential{{"body", Linear(2, 3)}, {"head", Linear(3, 5)}};
  }();
  options.device = Device::cpu;
  options.transpose = ends("kernel");
  options.skip = skip;
  CHECK_THROWS_AS(load(planned, path, options), ValueError);  // a skipped tensor would have no value
}

TEST_CASE("integers are not taken for weights") {
  const testing::TempDir folder;
  const auto path = folder / "w.safetensors";
  Linear layer(2, 1);
  save_safetensors(path, {{"weight", ones({1, 2}, {.dtype = DType::i8})}, {"bias", ones({1}, {.dtype = DType::f64})}});
  CHECK_THROWS_WITH_AS(load(layer, path),
                       "[load_state_dict] the state does not fit Linear(in_features=2, out_features=1, bias=True):\n"
                       "  dtype: weight must be floating, got int8",
                       ValueError);
  CHECK_THROWS_AS(load(layer, path, {.strict = false}), ValueError);
}

TEST_CASE("a parameter that is replaced does not stay in memory") {
  const auto live = [] { return allocator(Device::cpu).stats().live; };
  Linear layer(256, 256), other(256, 256);
  const size_t before = live();
  layer.weight = other.weight;
  CHECK(live() <= before - 256 * 256 * sizeof(float));
}

TEST_CASE("a state and tensors under names are saved as a module is") {
  const testing::TempDir folder;
  TiedPair net;
  save(net, folder / "net.safetensors");
  save(net.state_dict(), folder / "state.safetensors");
  const TensorFile file = load_safetensors(folder / "state.safetensors");
  CHECK(file.tensors.size() == load_safetensors(folder / "net.safetensors").tensors.size());  // shared ones once
  TiedPair other;
  load(other, folder / "state.safetensors");
  CHECK(floats_of(other.head->weight) == floats_of(net.head->weight));
  save({{"x", tensor({1.0, 2.0})}}, folder / "x.safetensors");
  CHECK(floats_of(load_safetensors(folder / "x.safetensors").tensors.at("x")) == std::vector<float>{1, 2});
}

TEST_CASE("length and direction of weight normalisation, which PyTorch wrote, become the weight of a plain layer") {
  const std::filesystem::path path = halfstep_source_dir() + "/tests/layers/parametrize_goldens.safetensors";
  const TensorFile file = load_safetensors(path);
  const auto old_name = [](std::string name) {
    const std::string place = "parametrizations.weight.original";
    const std::string mine = name.back() == '0' ? "weight_g" : "weight_v";
    if (const size_t at = name.find(place); at != name.npos) name.replace(at, place.size() + 1, mine);
    return name;
  };
  for (const std::string key : {"weight_norm", "weight_norm_dim1", "weight_norm_all"}) {
    for (const bool old : {false, true}) {
      CAPTURE(key);
      CAPTURE(old);
      const std::shared_ptr<Module> layer = key == "weight_norm_dim1" ? std::shared_ptr<Module>(make<Conv2d>(2, 3, 3))
                                                                      : std::shared_ptr<Module>(make<Linear>(5, 4));
      layer->to(DType::f64);
      LoadOptions options{.prefix = key + "/p."};
      if (old) options.rename = old_name;
      const StateForModule read = read_state(*layer, path, options);
      REQUIRE(read.joined.size() == 1);
      CHECK(read.joined[0] == (old ? "weight of weight_g, weight_v"
                                   : "weight of parametrizations.weight.original0, parametrizations.weight.original1"));
      load(*layer, path, options);
      CHECK(allclose((*layer)(file.tensors.at(key + "/x")), file.tensors.at(key + "/y"), 1e-10, 1e-10));
    }
  }
  const testing::TempDir folder;
  Linear plain(2, 2, false);
  const auto message = [&](const Tensor& g) {
    save_safetensors(folder / "g.safetensors", {{"weight_g", g}, {"weight_v", full({2, 2}, 3.0)}});
    std::string out;
    try {
      load(plain, folder / "g.safetensors");
    } catch (const ValueError& e) { out = e.what(); }
    return out;
  };
  CHECK(message(full({2, 1}, 2.0)).empty());
  CHECK(floats_of(plain.weight)[0] == doctest::Approx(2 / std::sqrt(2.0)));
  CHECK(message(ones({3, 1})).find("unexpected: weight_g") != std::string::npos);  // no length of these rows
  Linear normed = weight_norm(Linear(2, 2, false));
  CHECK(read_state(normed, path, {.strict = false, .prefix = "weight_norm/p."}).joined.empty());  // it has both itself
}
