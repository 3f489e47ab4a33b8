// SPDX-License-Identifier: Apache-2.0
// Containers, copies of modules, shared parameters.
#include "layers/containers/containers.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "framework/autograd/grad_mode.h"
#include "framework/base/log.h"
#include "layers/layers.h"
#include "optim/optimizers.h"
#include "tests/layers/support.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

using Names = std::vector<std::string>;

// An embedding and an output layer with one weight, as in GPT-2.
struct Tied : Module {
  Part<Linear> encoder, head;
  explicit Tied(int64_t n = 3) : encoder(this, "encoder", n, n, false), head(this, "head", n, n, false) {
    head->weight = encoder->weight;
  }
  Tensor forward(const Tensor& x) override { return head(encoder(x)); }
};

struct Parts : Module {
  Part<ModuleList> layers{this, "layers", std::make_shared<Linear>(2, 2), std::make_shared<ReLU>()};
  Part<ModuleDict> heads{this, "heads"};
  Part<ParameterList> scales{this, "scales", ParameterList(std::vector<Tensor>{ones({2}), ones({3})})};
  Part<ParameterDict> named{this, "named"};
  Parts() {
    heads->insert("left", std::make_shared<Linear>(2, 1, false));
    named->insert("temperature", full({}, 0.5));
  }
  Tensor forward(const Tensor& x) override { return heads["left"](layers[0](x)); }
};

}  // namespace

TEST_CASE("lists and maps of modules and parameters have PyTorch's names") {
  Parts m;
  CHECK(names(m.state_dict()) ==
        Names{"layers.0.weight", "layers.0.bias", "heads.left.weight", "scales.0", "scales.1", "named.temperature"});
  CHECK(m.layers->size() == 2);
  CHECK(m.layers->at<Linear>(0).weight.shape() == Shape{2, 2});
  CHECK_THROWS_WITH_AS(m.layers->at<Linear>(1), "[ModuleList] module 1 is ReLU(), not of the requested type", ValueError);
  CHECK_THROWS_WITH_AS(m.heads->at<ReLU>("left"),
                       "[ModuleDict] \"left\" is Linear(in_features=2, out_features=1, bias=False), not of the requested type",
                       ValueError);
  Sequential pair{ReLU(), Linear(2, 3)};
  CHECK(pair.at<Linear>(1).out_features() == 3);
  CHECK_THROWS_WITH_AS(pair.at<Linear>(0), "[Sequential] layer 0 is ReLU(), not of the requested type", ValueError);
  CHECK_THROWS_WITH_AS(m.layers[2], "[ModuleList] index must be below 2, got 2", IndexError);
  CHECK(m.heads->contains("left"));
  CHECK_THROWS_WITH_AS(m.heads["letf"], "[ModuleDict] there is no \"letf\"; did you mean \"left\"?", ValueError);
  CHECK(m.scales[1].requires_grad());
  CHECK(m.named["temperature"].item<float>() == 0.5f);
  CHECK(m.str().find("(layers): ModuleList(\n    (0): Linear(") != std::string::npos);
  CHECK(m(ones({4, 2})).shape() == Shape{4, 1});
}

TEST_CASE("a clone has the values and none of the memory") {
  auto net = make<Sequential>();
  net->push_back("a", make<Linear>(3, 4));
  net->push_back("b", make<ReLU>());
  net->push_back("c", make<Linear>(4, 2, false));
  dynamic_cast<Linear&>(*(*net)[0]).weight.set_requires_grad(false);
  net->children()[1]->eval();
  net->to(DType::f64);
  const Generator::State random = default_generator().state();
  const std::shared_ptr<Module> copy = net->clone();
  CHECK(default_generator().state().offset == random.offset);
  CHECK(copy->str() == net->str());
  const StateDict mine = net->state_dict(), theirs = copy->state_dict();
  CHECK(names(mine) == names(theirs));
  for (size_t i = 0; i < mine.size(); ++i) {
    CHECK(mine[i].tensor.to_vector<double>() == theirs[i].tensor.to_vector<double>());
    CHECK(mine[i].tensor.dtype() == theirs[i].tensor.dtype());
    CHECK(mine[i].tensor.data_ptr() != theirs[i].tensor.data_ptr());
  }
  CHECK(!copy->parameters()[0].requires_grad());
  CHECK(copy->parameters()[1].requires_grad());
  CHECK(copy->training());
  CHECK(!copy->children()[1]->training());
  const Tensor x = randn({5, 3}, {.dtype = DType::f64});
  CHECK((*copy)(x).to_vector<double>() == (*net)(x).to_vector<double>());
  copy->parameters()[1].detach().fill_(7);
  CHECK(net->parameters()[1].to_vector<double>() != copy->parameters()[1].to_vector<double>());
}

TEST_CASE("a shared parameter is counted, listed and updated once, and stays shared in a clone") {
  const auto net = make<Tied>(3);
  CHECK(net->parameter_count() == 9);
  CHECK(names(net->named_parameters()) == Names{"encoder.weight"});
  CHECK(names(net->state_dict()) == Names{"encoder.weight", "head.weight"});
  CHECK(net->head->weight.same(net->encoder->weight));
  const auto before = net->encoder->weight.to_vector<float>();
  SGD optimizer(net->parameters(), {.lr = 1});
  sum((*net)(ones({1, 3}))).backward();
  const auto grad = net->encoder->weight.grad().to_vector<float>();
  optimizer.step();
  for (size_t i = 0; i < before.size(); ++i) CHECK(net->head->weight.to_vector<float>()[i] == doctest::Approx(before[i] - grad[i]));

  const auto copy = std::static_pointer_cast<Tied>(net->clone());
  CHECK(copy->head->weight.same(copy->encoder->weight));
  CHECK(copy->head->weight.to_vector<float>() == net->head->weight.to_vector<float>());
  copy->to(DType::f64);
  CHECK(copy->head->weight.data_ptr() == copy->encoder->weight.data_ptr());
}

namespace {

std::vector<std::string>& warnings() {
  static std::vector<std::string> all;
  return all;
}

struct Forgets : Module {
  Linear lost{2, 2};
  Part<Linear> fc{this, "fc", 2, 2};
  Tensor forward(const Tensor& x) override { return fc(lost(x)); }
};

}  // namespace

TEST_CASE("a layer that is called and is no part of the module is warned of, once, unless it is frozen") {
  warnings().clear();
  const logging::Capture capture([](logging::Level, std::string_view m) { warnings().emplace_back(m); });
  const Tensor x = ones({1, 2});
  Forgets net;
  {
    const NoGrad off;
    net(x);
  }
  net.lost.requires_grad_(false);
  net(x);
  CHECK(warnings().empty());
  net.lost.requires_grad_(true);
  net(x);
  net(x);
  REQUIRE(warnings().size() == 1);
  CHECK(warnings()[0].rfind("Forgets calls Linear(in_features=2, out_features=2, bias=True), which is not a part of it: ", 0) == 0);
  // A module outside of the call's tree, one after the other, and one that shares its parameters.
  Linear head(2, 2);
  head(net.fc(x));
  net.lost.weight = net.fc->weight, net.lost.bias = net.fc->bias;
  Forgets other;
  other.lost.weight = other.fc->weight, other.lost.bias = other.fc->bias;
  other(x);
  CHECK(warnings().size() == 1);
}

TEST_CASE("containers: a loop may take its modules by reference") {
  ModuleList list{Linear(2, 3), ReLU(), Linear(3, 1)};
  Tensor x = ones({4, 2});
  for (auto& layer : list) x = layer(x);
  CHECK(x.shape() == Shape{4, 1});
  Sequential net{Linear(2, 3), Tanh()};
  for (auto& layer : net) layer->requires_grad_(false);
  for (const Tensor& p : net.parameters()) CHECK(!p.requires_grad());
}
