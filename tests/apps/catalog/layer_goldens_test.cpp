// SPDX-License-Identifier: Apache-2.0
// Every layer and loss of the catalogues, built from its JSON: against PyTorch (scripts/make_layer_goldens.py), against
// differences, in a region, on meta, and through a state_dict.
#include "tests/apps/catalog/layer_goldens.h"

#include <set>

#include "amp/autocast/autocast.h"
#include "apps/catalog/losses.h"
#include "framework/autograd/grad_mode.h"
#include "framework/autograd/gradcheck.h"
#include "tests/apps/support.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

// What a layer's op does in a region (docs/ops.md); all others keep the dtype that comes in.
enum class Computes : uint8_t { low, wide, as_given };
Computes policy(const Golden& g) {
  const std::string type = g.type();
  static const std::set<std::string> low{
      "Linear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "MultiheadAttention",
      "PReLU",  "RNN",    "LSTM",   "GRU",    "RNNCell",         "LSTMCell",        "GRUCell"};
  static const std::set<std::string> wide{"Softmax",
                                          "Softmin",
                                          "LogSoftmax",
                                          "Softmax2d",
                                          "Softplus",
                                          "LayerNorm",
                                          "GroupNorm",
                                          "RMSNorm",
                                          "UnitNorm",
                                          "Upsample",
                                          "UpsamplingNearest2d",
                                          "UpsamplingBilinear2d",
                                          "PositionalEncoding",
                                          "PositionEmbedding",
                                          "TransformerEncoder",
                                          "TransformerEncoderLayer"};
  const Json& args = g.json["args"];  // a block that normalises first gives a sum of its input and 16-bit numbers
  if (type.starts_with("TransformerEncoder") && args.value("norm_first", false) && !args.value("norm", false))
    return Computes::as_given;
  return low.contains(type) ? Computes::low : wide.contains(type) ? Computes::wide : Computes::as_given;
}

bool of_a_test(const Component& c) { return c.doc.ends_with("of this program"); }

}  // namespace

TEST_CASE("every layer and loss of the catalogues has a case made with PyTorch, and its arguments and defaults") {
  std::set<std::string> covered;
  for (const char* what : {"layer", "loss"}) {
    for (const Golden& g : goldens(what)) covered.insert(g.type());
  }
  // Where a config says it otherwise: it has no None of its own, and Linear and the like can take their widths from the input.
  // The first dimension of a config's batches are its samples.
  const std::set<std::string> otherwise{"Softmax.dim",
                                        "Softmin.dim",
                                        "LogSoftmax.dim",
                                        "Upsample.recompute_scale_factor",
                                        "RNN.batch_first",
                                        "LSTM.batch_first",
                                        "GRU.batch_first",
                                        "MultiheadAttention.batch_first",
                                        "TransformerEncoderLayer.batch_first",
                                        "TransformerEncoder.batch_first"};
  // Options that PyTorch does not have, or takes with a call, and the result of a layer where PyTorch's returns several tensors.
  const std::set<std::string> ours{"reduction", "is_causal"},
      own{"BatchNorm1d.sync", "BatchNorm2d.sync", "BatchNorm3d.sync", "RNN.output",  "LSTM.output",
          "GRU.output",       "RNN.stateful",     "LSTM.stateful",    "GRU.stateful"};
  const auto check_row = [&](const Component& c) {
    CAPTURE(c.type);
    REQUIRE(covered.contains(c.type));
    const Json defaults = Json::parse(file().metadata.at("defaults " + c.type));
    for (const auto& item : defaults.items()) {
      const std::string& name = item.key();
      CAPTURE(name);
      const auto field = std::find_if(c.fields.begin(), c.fields.end(), [&](const Field& f) { return f.key == name; });
      REQUIRE(field != c.fields.end());
      if (!otherwise.contains(c.type + "." + name)) CHECK(field->fallback == item.value());
    }
    for (const Field& f : c.fields) {
      CAPTURE(f.key);
      CHECK((ours.contains(f.key) || own.contains(c.type + "." + f.key) || defaults.contains(f.key)));
    }
  };
  for (const ModuleRow& row : module_catalog().rows()) {
    if (!row.follow && !of_a_test(row.component)) check_row(row.component);
  }
  for (const LossRow& row : loss_catalog().rows()) {
    if (!of_a_test(row.component)) check_row(row.component);
  }
}

TEST_CASE("layers print, hold and compute what PyTorch's do, in float64 and float32") {
  for (const Golden& g : goldens("layer")) {
    CAPTURE(g.json.dump());
    for (DType dtype : {DType::f64, DType::f32}) {
      // PyTorch's Hardsigmoid multiplies by 1/6 in float32.
      const double tolerance = dtype == DType::f32 ? kTolerance : g.type() == "Hardsigmoid" ? 1e-8 : 1e-10;
      const auto module = make(g, dtype);
      CHECK((module->children().empty() ? module->describe() : module->str()) == g.json["repr"].get<std::string>());
      Json state = Json::array();
      for (const NamedTensor& n : module->state_dict()) {
        const bool whole = n.tensor.dtype() == DType::i64;
        CHECK((whole || n.tensor.dtype() == dtype));
        state.push_back(
            {n.name, std::vector<int64_t>(n.tensor.shape().begin(), n.tensor.shape().end()), whole ? "int64" : "float32"});
      }
      CHECK(state == g.json["state"]);

      check_values(g, *module, dtype, tolerance);
    }
  }
}

TEST_CASE("layers' gradients are those of differences" * doctest::test_suite("values")) {
  for (const Golden& g : goldens("layer")) {
    CAPTURE(g.json.dump());
    const auto module = make(g, DType::f64);
    module->train(!g.random());
    const Tensor x = input(g, DType::f64);
    if (x.requires_grad()) CHECK_NOTHROW(gradcheck([&](const Tensors& in) { return Tensors{(*module)(in[0])}; }, {x}));
    if (g.json["args"].contains("max_norm")) continue;  // differences would be scaled away; so would they be divided by uses
    if (g.json["args"].contains("scale_grad_by_freq")) continue;
    const Tensor y = (*module)(x), weight = waves(y.shape(), DType::f64);
    module->zero_grad();
    y.backward(weight);
    const auto value = [&] {
      const NoGrad off;
      return ((*module)(x)*weight).sum().item<double>();
    };
    for (const NamedTensor& p : module->named_parameters()) {
      CAPTURE(p.name);
      const std::vector<double> gradient = p.tensor.grad().to_vector<double>();
      double* const elements = p.tensor.data_ptr<double>();
      for (size_t i = 0; i < gradient.size(); ++i) {
        const double saved = elements[i], step = 1e-6;
        elements[i] = saved + step;
        const double up = value();
        elements[i] = saved - step;
        const double numeric = (up - value()) / (2 * step);
        elements[i] = saved;
        CHECK(std::abs(gradient[i] - numeric) <= 1e-6 + 1e-4 * std::abs(numeric));
      }
    }
  }
}

TEST_CASE("layers in a region: float32 weights and gradients, outputs as the op's policy says") {
  for (const Golden& g : goldens("layer")) {
    CAPTURE(g.json.dump());
    for (bool training : {true, false}) {
      for (DType given : {DType::f32, DType::bf16}) {
        CAPTURE(given);
        const auto module = make(g, DType::f32);
        module->train(training);
        const Tensor x = input(g, given);
        Tensor y;
        {
          const Autocast region(Device::cpu, DType::bf16);
          y = (*module)(x);
        }
        DType want = given;
        if (policy(g) == Computes::low) want = DType::bf16;
        if (policy(g) == Computes::wide || g.type().starts_with("Embedding")) want = DType::f32;
        CHECK(y.dtype() == want);
        CHECK(y.numel() == g.tensors.at(g.random() ? "e" : "y").numel());
        y.backward(ones_like(y));
        for (const NamedTensor& p : module->named_parameters()) {
          CHECK(p.tensor.dtype() == DType::f32);
          CHECK(p.tensor.grad().dtype() == DType::f32);
        }
        if (x.requires_grad()) CHECK(x.grad().dtype() == given);
      }
    }
  }
}

TEST_CASE("layers on meta give the shape and dtype that they give on the CPU, without values") {
  for (const Golden& g : goldens("layer")) {
    CAPTURE(g.json.dump());
    const auto host = make(g, DType::f32);
    std::shared_ptr<Module> module;
    {
      const DefaultDevice on(Device::meta);
      module = build_model(checked(g, module_family()));
    }
    for (bool training : {true, false}) {
      host->train(training);
      module->train(training);
      const Tensor x = input(g, DType::f32), there = x.detach().to(Device::meta);
      if (x.requires_grad()) there.set_requires_grad();
      const Tensor y = (*module)(there), want = (*host)(x);
      CHECK(y.device() == Device::meta);
      CHECK(y.shape() == want.shape());
      CHECK(y.dtype() == want.dtype());
      CHECK(y.requires_grad() == want.requires_grad());
    }
  }
}

TEST_CASE("a layer's state_dict, saved and loaded, makes another of its kind the same") {
  TempDir dir;
  for (const Golden& g : goldens("layer")) {
    CAPTURE(g.json.dump());
    const auto first = make(g, DType::f32);
    const Tensor x = input(g, DType::f32);
    first->train(!g.random());
    (*first)(x);  // which moves running statistics
    TensorMap saved;
    for (const NamedTensor& n : first->state_dict()) saved[n.name] = n.tensor;
    save_safetensors(dir / "state.safetensors", saved);
    const auto second = build_model(checked(g, module_family()));
    StateDict state;
    for (const auto& [name, t] : load_safetensors(dir / "state.safetensors").tensors) state.push_back({name, t});
    second->load_state_dict(state);
    first->eval();
    second->eval();
    CHECK((*first)(x).to_vector<float>() == (*second)(x).to_vector<float>());
  }
}

TEST_CASE("losses compute what PyTorch's do, in float64, float32 and 16 bits") {
  for (const Golden& g : goldens("loss")) {
    CAPTURE(g.json.dump());
    Json self = checked(g, loss_family());
    self["reduction"] = g.json["reduction"];
    const std::unique_ptr<Loss> loss = loss_catalog().row(self).make(self);
    CHECK(loss->describe() == g.json["repr"].get<std::string>());
    for (DType dtype : {DType::f64, DType::f32}) {
      const double tolerance = dtype == DType::f64 ? 1e-10 : 2e-5;
      const Tensor x = input(g, dtype), t = g.at("t", dtype);
      const Tensor y = (*loss)(x, t);
      CHECK(y.dtype() == dtype);
      compare("loss", y, g.at("y", DType::f64), tolerance);
      y.backward(waves(y.shape(), dtype));
      compare("gradient", x.grad(), g.at("g.x", DType::f64), tolerance);
    }
    CHECK_NOTHROW(
        gradcheck([&](const Tensors& in) { return Tensors{(*loss)(in[0], g.at("t", DType::f64))}; }, {input(g, DType::f64)}));
    const Tensor low = input(g, DType::bf16);
    const Autocast region(Device::cpu, DType::bf16);
    if (g.type() == "BCELoss") {
      CHECK_THROWS_AS((*loss)(low, g.at("t", DType::f32)), AmpError);
      continue;
    }
    const Tensor y = (*loss)(low, g.at("t", DType::f32));
    CHECK(y.dtype() == DType::f32);
    compare("loss of 16-bit outputs", y, g.at("y", DType::f64), 0.05);
    const DefaultDevice on(Device::meta);
    const Tensor there = (*loss)(low.detach().to(Device::meta), g.at("t", DType::f32).to(Device::meta));
    CHECK(there.shape() == y.shape());
  }
}
