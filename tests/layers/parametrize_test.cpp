// SPDX-License-Identifier: Apache-2.0
// Parametrizations: values, gradients, state and text against PyTorch (scripts/make_parametrize_goldens.py), and what becomes of
// them where modules are copied, moved, saved, trained and called in a region.
#include "layers/module/parametrize.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>

#include "amp/autocast/autocast.h"
#include "amp/step/train_step.h"
#include "framework/autograd/autograd.h"
#include "framework/autograd/gradcheck.h"
#include "framework/io/weights/safetensors.h"
#include "layers/layers.h"
#include "layers/module/functional_call.h"
#include "layers/module/save.h"
#include "optim/optimizers.h"
#include "tests/io/files.h"
#include "tests/layers/support.h"
#include "tests/support/errors.h"
#include "tests/support/source_dir.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

using Strings = std::vector<std::string>;

// As the script makes them.
std::shared_ptr<Module> made(const std::string& key) {
  if (key == "weight_norm") return make<Linear>(weight_norm(Linear(5, 4)));
  if (key == "weight_norm_dim1") return make<Conv2d>(weight_norm(Conv2d(2, 3, 3), "weight", 1));
  if (key == "weight_norm_all") return make<Linear>(weight_norm(Linear(5, 4), "weight", std::nullopt));
  if (key == "weight_norm_bias") return make<Linear>(weight_norm(Linear(5, 4), "bias"));
  if (key == "spectral_norm") return make<Linear>(spectral_norm(Linear(5, 4)));
  if (key == "spectral_norm_conv") return make<Conv2d>(spectral_norm(Conv2d(2, 3, 3), "weight", {.n_power_iterations = 3}));
  if (key == "spectral_norm_transposed") return make<ConvTranspose2d>(spectral_norm(ConvTranspose2d(2, 3, 3)));
  if (key == "spectral_norm_dim2") return make<Conv2d>(spectral_norm(Conv2d(2, 3, 3), "weight", {.dim = 2}));
  if (key == "spectral_norm_bias") return make<Linear>(spectral_norm(Linear(5, 4), "bias"));
  if (key == "orthogonal") return make<Linear>(orthogonal(Linear(5, 5)));
  if (key == "orthogonal_tall") return make<Linear>(orthogonal(Linear(3, 5)));
  if (key == "orthogonal_wide") return make<Linear>(orthogonal(Linear(5, 3)));
  if (key == "orthogonal_exp_wide") return make<Linear>(orthogonal(Linear(5, 3), "weight", {.orthogonal_map = "matrix_exp"}));
  if (key == "orthogonal_cayley") return make<Linear>(orthogonal(Linear(4, 4), "weight", "cayley"));
  if (key == "orthogonal_cayley_tall") return make<Linear>(orthogonal(Linear(3, 5), "weight", "cayley", false));
  if (key == "orthogonal_plain_exp") return make<Linear>(orthogonal(Linear(4, 4), "weight", {.use_trivialization = false}));
  if (key == "orthogonal_plain") return make<Linear>(orthogonal(Linear(5, 3), "weight", {.use_trivialization = false}));
  if (key == "orthogonal_square_householder") return make<Linear>(orthogonal(Linear(4, 4), "weight", "householder", false));
  if (key == "orthogonal_conv") return make<Conv2d>(orthogonal(Conv2d(2, 3, 3)));
  REQUIRE(key == "weight_norm_lstm");
  const auto lstm = make<LSTM>(3, 4);
  weight_norm(weight_norm(lstm, "weight_ih_l0"), "weight_hh_l0");
  return lstm;
}

std::string joined_names(const StateDict& state) {
  std::string out;
  for (const NamedTensor& t : state) out += (out.empty() ? "" : " ") + t.name;
  return out;
}

StateDict with_prefix(const TensorFile& file, const std::string& prefix) {
  StateDict out;
  for (const auto& [name, t] : file.tensors) {
    if (name.starts_with(prefix)) out.push_back({name.substr(prefix.size()), t});
  }
  return out;
}

Tensor triu_symmetric(const Tensor& w) { return triu(w) + triu(w, 1).t(); }

// original -> exp(original), and back.
struct Exp : Module {
  Tensor forward(const Tensor& x) override { return exp(x); }
  Tensor right_inverse(const Tensor& value) const { return log(value); }
};
// original -> scale * original, with a parameter of its own.
struct Scaled : Module {
  Parameter scale = register_parameter("scale", full({1}, 2.0));
  Tensor forward(const Tensor& x) override { return x * scale; }
};

struct Normed : Module {
  Part<Linear> a{this, "a", weight_norm(Linear(4, 6))};
  Part<Linear> b{this, "b", spectral_norm(Linear(6, 2))};
  Tensor forward(const Tensor& x) override { return b(tanh(a(x))); }
};

}  // namespace

TEST_CASE("weight_norm, spectral_norm and orthogonal: values, gradients, buffers, names and text are PyTorch's") {
  const TensorFile file = load_safetensors(halfstep_source_dir() + "/tests/layers/parametrize_goldens.safetensors");
  int cases = 0;
  for (const auto& row : file.metadata) {
    const std::string &key = row.first, &text = row.second;
    if (key.ends_with(" state")) continue;
    ++cases;
    CAPTURE(key);
    const auto layer = made(key);
    CHECK(layer->str() == text);
    CHECK(joined_names(layer->state_dict()) == file.metadata.at(key + " state"));
    layer->to(DType::f64);
    layer->load_state_dict(with_prefix(file, key + "/p."));
    std::map<std::string, Tensor> want;
    for (const NamedTensor& t : with_prefix(file, key + "/")) want[t.name] = t.tensor;
    const auto near = [&](const Tensor& got, const std::string& name) {
      CAPTURE(name);
      REQUIRE(got.shape() == want.at(name).shape());
      CHECK(largest(got - want.at(name)) < 1e-12);
    };
    const Tensor x = want.at("x").clone().set_requires_grad();
    const Tensor y = (*layer)(x);
    near(y, "y");
    near((*layer)(x), "y2");  // before the backward of the first, which must not notice
    sum(y * cos(arange(double(y.numel()), {.dtype = DType::f64})).reshape(y.shape())).backward();
    near(x.grad(), "g.x");
    for (const NamedTensor& p : layer->named_parameters()) near(p.tensor.grad(), "g." + p.name);
    for (const NamedTensor& b : layer->named_buffers()) near(b.tensor, "s." + b.name);
    layer->eval();
    near((*layer)(x), "e");
    near((*layer)(x), "e");
  }
  CHECK(cases == 20);
}

TEST_CASE("a function as a parametrization, and its removal") {
  manual_seed(1);
  Linear layer(3, 3);
  const Tensor weight = layer.weight;
  SGD optimizer(layer.parameters(), {.lr = 0.1});
  CHECK(!is_parametrized(layer));
  register_parametrization(layer, "weight", triu_symmetric);
  CHECK(is_parametrized(layer));
  CHECK(is_parametrized(layer, "weight"));
  CHECK(!is_parametrized(layer, "bias"));
  CHECK(testing::names(layer.named_parameters()) == Strings{"bias", "parametrizations.weight.original"});
  CHECK(parametrizations(layer, "weight").original().same(weight));  // so the optimizer trains it
  CHECK(weight.label() == "parametrizations.weight.original");
  const Tensor x = randn({2, 3});
  const Tensor value = triu_symmetric(weight);
  CHECK(layer(x).to_vector<float>() == linear(x, value, layer.bias).to_vector<float>());
  layer(x).square().sum().backward();
  optimizer.step();
  const Tensor now = parametrizations(layer, "weight").value();
  CHECK(now.to_vector<float>() == triu_symmetric(weight).to_vector<float>());
  CHECK(now.to_vector<float>() != value.to_vector<float>());
  CHECK(now.to_vector<float>() == now.t().contiguous().to_vector<float>());

  Linear as_it_is = layer;
  remove_parametrizations(layer, "weight");
  CHECK(!is_parametrized(layer));
  CHECK(layer.weight.same(weight));
  CHECK(layer.weight.to_vector<float>() == now.to_vector<float>());
  CHECK(testing::names(layer.state_dict()) == Strings{"weight", "bias"});
  CHECK(layer.str() == "Linear(in_features=3, out_features=3, bias=True)");
  optimizer.zero_grad();
  layer(x).sum().backward();
  optimizer.step();
  CHECK(!layer.has_hooks());
  remove_parametrizations(as_it_is, "weight", /*leave_parametrized=*/false);
  CHECK(as_it_is.weight.to_vector<float>() != now.to_vector<float>());
  CHECK(triu_symmetric(as_it_is.weight).to_vector<float>() == now.to_vector<float>());
}

TEST_CASE("parametrizations one after the other, with parameters of their own") {
  Linear layer(2, 2, false);
  layer.weight = ones({2, 2});
  register_parametrization(layer, "weight", Scaled());
  register_parametrization(layer, "weight", [](const Tensor& w) { return w + 1.0; });
  CHECK(testing::names(layer.named_parameters()) == Strings{"parametrizations.weight.original", "parametrizations.weight.0.scale"});
  CHECK(layer(ones({1, 2})).to_vector<float>() == std::vector<float>{6, 6});
  CHECK(parametrizations(layer, "weight").size() == 2);
  CHECK(parametrizations(layer, "weight")[0]->describe() == "Scaled");
  layer(ones({1, 2})).sum().backward();
  CHECK(layer.parameters()[1].grad().item<float>() == 4);
  CHECK(layer.parameters()[0].grad().to_vector<float>() == std::vector<float>{2, 2, 2, 2});
  CHECK_THROWS_WITH_AS(layer.weight = ones({2, 2}),
                       doctest::Contains("[Parameter] a value cannot be assigned through Function(), which has no right_inverse"),
                       ValueError);
}

TEST_CASE("an assignment goes through right_inverse") {
  Linear layer(2, 1, false);
  layer.weight = tensor({2.0, 3.0}, {1, 2});
  register_parametrization(layer, "weight", Exp());
  const Tensor value = parametrizations(layer, "weight").value();
  CHECK(largest(value - tensor({2.0, 3.0}, {1, 2})) < 1e-6);  // as before, by right_inverse
  CHECK(largest(exp(parametrizations(layer, "weight").original()) - value) == 0);
  layer.weight = tensor({4.0, 5.0}, {1, 2});
  CHECK(largest(layer(ones({1, 2})) - full({1, 1}, 9.0)) < 1e-5);
  weight_norm(layer = Linear(2, 1, false));
  layer.weight = tensor({3.0, 4.0}, {1, 2});
  CHECK(parametrizations(layer, "weight").original(0).item<float>() == 5);
  CHECK(layer(ones({1, 2})).item<float>() == doctest::Approx(7));
  CHECK_THROWS_AS(parametrizations(layer, "weight").original(2), IndexError);
}

TEST_CASE("between calls the member has a shape and no values") {
  Linear layer = weight_norm(Linear(3, 2));
  CHECK(layer.weight.shape() == Shape{2, 3});
  CHECK_THROWS_AS(layer.weight.to_vector<float>(), MetaError);
  CHECK_THROWS_AS(layer.weight.sum().item<float>(), MetaError);
  CHECK_THROWS_AS(linear(ones({1, 3}), layer.weight), DeviceError);
  layer(ones({1, 3}));
  CHECK_THROWS_AS(layer.weight.to_vector<float>(), MetaError);
  CHECK_THROWS_AS(layer(ones({1, 4})), ShapeError);  // also after an error
  CHECK_THROWS_AS(layer.weight.to_vector<float>(), MetaError);
  SGD wrong({layer.weight}, {.lr = 0.1});
  CHECK_THROWS_AS(wrong.step(), ValueError);
  layer.to(DType::f64);
  CHECK(layer.weight.dtype() == DType::f64);
  CHECK(layer(ones({1, 3}, {.dtype = DType::f64})).dtype() == DType::f64);
}

TEST_CASE("a copy computes from its own originals; a moved and an assigned module from those that come with it") {
  manual_seed(3);
  Normed net;
  net.eval();
  const Tensor x = randn({5, 4});
  const auto y = net(x).to_vector<float>();
  Normed copy = net;
  const auto clone = net.clone();
  CHECK(testing::names(copy.state_dict()) == testing::names(net.state_dict()));
  CHECK(copy(x).to_vector<float>() == y);
  {
    const NoGrad off;
    for (const Tensor& p : net.parameters()) p.fill_(0.5);
  }
  CHECK(net(x).to_vector<float>() != y);
  CHECK(copy(x).to_vector<float>() == y);
  CHECK((*clone)(x).to_vector<float>() == y);
  copy(x).sum().backward();
  for (const Tensor& p : copy.parameters()) CHECK(p.grad().defined());
  for (const Tensor& p : net.parameters()) CHECK(!p.grad().defined());
  net = Normed(copy);
  CHECK(net(x).to_vector<float>() == y);
  Normed moved = std::move(copy);
  CHECK(moved(x).to_vector<float>() == y);
  *net.a = Linear(4, 6);
  CHECK(!is_parametrized(net.a));
  CHECK(net(x).shape() == Shape{5, 2});
  *net.a = weight_norm(Linear(4, 6));
  CHECK(is_parametrized(net.a, "weight"));
  CHECK(testing::names(net.a->named_parameters())[1] == "parametrizations.weight.original0");
  CHECK(net.a->parameters()[1].label() == "a.parametrizations.weight.original0");
  net(x).sum().backward();
}

TEST_CASE("parametrized modules are saved, loaded and cast") {
  manual_seed(4);
  const TempDir dir;
  Normed net, other;
  net.eval();
  other.eval();
  const Tensor x = randn({5, 4});
  save(net, dir / "net.safetensors");
  load(other, dir / "net.safetensors");
  CHECK(other(x).to_vector<float>() == net(x).to_vector<float>());
  Linear plain(4, 6);
  CHECK_THROWS_WITH_AS(net.a->load_state_dict(plain.state_dict()), doctest::Contains("parametrizations.weight.original0"),
                       ValueError);
}

TEST_CASE("in a region the weight is computed in float32 and used in 16 bits") {
  manual_seed(5);
  Linear layer = weight_norm(Linear(8, 4));
  const Tensor x = randn({3, 8});
  for (int i = 0; i < 2; ++i) {
    const Autocast region(Device::cpu, DType::bf16);
    const Tensor y = layer(x);
    CHECK(y.dtype() == DType::bf16);
    const Tensor value = parametrizations(layer, "weight").value();
    CHECK(value.dtype() == DType::f32);
    CHECK(y.to_vector<float>() == linear(x, value, layer.bias).to_vector<float>());
    y.to(DType::f32).sum().backward();
    for (const Tensor& p : layer.parameters()) CHECK(p.grad().dtype() == DType::f32);
    const NoGrad off;
    parametrizations(layer, "weight").original(0).mul_(2.0);  // a copy in 16 bits that was kept would be wrong now
  }
}

TEST_CASE("second derivatives go through a parametrization") {
  manual_seed(6);
  Linear layer = weight_norm(Linear(3, 2));
  layer.bias = ones({2});  // Exp has a logarithm of it
  layer.to(DType::f64);
  register_parametrization(layer, "bias", Exp());
  const Tensor x = randn({2, 3}, {.dtype = DType::f64});
  const StateDict own = layer.named_parameters();
  const auto f = [&](const Tensors& in) {
    StateDict given = own;
    for (size_t i = 0; i < in.size(); ++i) given[i].tensor = in[i];
    return Tensors{functional_call(layer, given, x).square().sum()};
  };
  const Tensors originals = layer.parameters();
  gradcheck(f, originals);
  gradgradcheck(f, originals);
}

TEST_CASE("a parametrized net trains in TrainStep, which does not record it") {
  manual_seed(7);
  Normed net;
  CHECK(net.any_hooks());
  Sequential fused{weight_norm(Linear(4, 8)), ReLU(), Linear(8, 2)};
  CHECK(fused.any_hooks());
  const Tensor x = randn({16, 4}), t = randn({16, 2});
  for (Module* m : {static_cast<Module*>(&net), static_cast<Module*>(&fused)}) {
    AdamW optimizer(m->parameters(), {.lr = 0.05});
    GradScaler scaler({.enabled = false});
    const MSELoss loss;
    TrainStep step(*m, loss, optimizer, scaler, nullptr, {});
    const float before = mse_loss((*m)(x), t).item<float>();
    for (int i = 0; i < 30; ++i) step(x, t);
    CHECK(mse_loss((*m)(x), t).item<float>() < 0.8f * before);
  }
  // As the layers one by one: Sequential does not take the weight without its computation.
  const Tensor value = parametrizations(fused[0], "weight").value();
  CHECK(largest(fused(x) - fused[2](relu(linear(x, value, fused[0]->parameters()[0])))) < 1e-6);
}

TEST_CASE("spectral_norm: the largest singular value is 1, and evaluation leaves the buffers") {
  manual_seed(8);
  Linear layer = spectral_norm(Linear(20, 40), "weight", 50);
  const Tensor w = parametrizations(layer, "weight").value().detach();
  // w^T w has no eigenvalue above 1, and one near it.
  Tensor v = normalize(randn({20}), 2, {0});
  for (int i = 0; i < 200; ++i) v = normalize(mv(matmul(w.t(), w), v), 2, {0});
  CHECK(std::sqrt(norm(mv(matmul(w.t(), w), v)).item<double>()) == doctest::Approx(1).epsilon(1e-4));
  const auto u = layer.buffers()[0].to_vector<float>();
  layer.eval();
  layer(ones({1, 20}));
  CHECK(layer.buffers()[0].to_vector<float>() == u);
  CHECK(testing::names(layer.state_dict()) ==
        Strings{"bias", "parametrizations.weight.original", "parametrizations.weight.0._u", "parametrizations.weight.0._v"});
}

TEST_CASE("a parametrized module in itself keeps its weights to the end of the outer call") {
  struct Twice : Module {
    Parameter gain = register_parameter("gain", full({1}, 2.0));
    bool inner = false;
    Tensor forward(const Tensor& x) override {
      if (inner) return x * gain;
      inner = true;
      const Tensor y = (*this)(x);
      inner = false;
      return y * gain;
    }
  } twice;
  register_parametrization(twice, "gain", [](const Tensor& g) { return g + 1.0; });
  CHECK(twice(ones({1})).item<float>() == 9);
  CHECK_THROWS_AS(twice.gain.item<float>(), MetaError);
}

TEST_CASE("parametrizations refuse what does not fit") {
  Linear layer(3, 2);
  refuses<ValueError>(
      "[register_parametrization] Linear(in_features=3, out_features=2, bias=True) has no parameter \"wieght\", did you "
      "mean weight?",
      [&] { register_parametrization(layer, "wieght", triu_symmetric); });
  refuses<ValueError>(
      "[register_parametrization] Function() must give a tensor of the parameter's shape and dtype, [2, 3] and float32, "
      "got [6] and float32",
      [&] { register_parametrization(layer, "weight", [](const Tensor& w) { return w.flatten(); }); });
  CHECK(!is_parametrized(layer));
  CHECK(layer(ones({1, 3})).shape() == Shape{1, 2});
  refuses<ValueError>("[remove_parametrizations] \"weight\" of Linear(in_features=3, out_features=2, bias=True) has none",
                      [&] { remove_parametrizations(layer, "weight"); });
  refuses<ValueError>("[parametrizations] \"bias\" of Linear(in_features=3, out_features=2, bias=True) has none",
                      [&] { parametrizations(layer, "bias"); });
  refuses<ValueError>("[spectral_norm] n_power_iterations must be >= 1, got 0", [&] { spectral_norm(layer, "weight", 0); });
  refuses<IndexError>("[spectral_norm] dim must be one of the 2 of the weight, got 2",
                      [&] { spectral_norm(layer, "weight", {.dim = 2}); });
  refuses<IndexError>("[weight_norm] dim must be one of the 2 of the weight, got 5", [&] { weight_norm(layer, "weight", 5); });
  CHECK(!is_parametrized(layer));
  weight_norm(layer);
  CHECK_THROWS_WITH_AS(remove_parametrizations(layer, "weight", false), doctest::Contains("has 2 originals"), ValueError);
  layer.recompute_in_backward(true);
  CHECK_THROWS_WITH_AS(layer(ones({1, 3})), doctest::Contains("has parametrizations"), ValueError);
  // One original stays what it was; two are new, and an optimizer of the former weight says so.
  Linear trained(3, 2);
  SGD optimizer(trained.parameters(), {.lr = 0.1});
  spectral_norm(trained);
  optimizer.step();
  weight_norm(trained, "bias");
  CHECK_THROWS_WITH_AS(optimizer.step(), doctest::Contains("was replaced in its module"), ValueError);
}

TEST_CASE("a frozen parameter stays frozen, and its name is kept") {
  Linear layer(3, 2);
  layer.requires_grad_(false);
  weight_norm(layer);
  for (const Tensor& p : layer.parameters()) CHECK(!p.requires_grad());
  remove_parametrizations(layer, "weight");
  CHECK(!layer.weight.requires_grad());
  CHECK(layer.weight.label() == "weight");
}
