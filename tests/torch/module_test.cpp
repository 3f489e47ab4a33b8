// SPDX-License-Identifier: Apache-2.0
// Modules, holders and containers.
#include <doctest/doctest.h>

#include "tests/torch/support.h"

namespace {

struct NetImpl : torch::nn::Cloneable<NetImpl> {
  explicit NetImpl(int64_t hidden) : hidden(hidden) { reset(); }
  void reset() override {
    fc1 = register_module("fc1", torch::nn::Linear(3, hidden));
    fc2 = register_module("fc2", torch::nn::Linear(torch::nn::LinearOptions(hidden, 2).bias(false)));
    scale = register_parameter("scale", torch::ones({1}));
    seen = register_buffer("seen", torch::zeros({1}));
  }
  torch::Tensor forward(torch::Tensor x) { return fc2(torch::relu(fc1(x))) * scale; }
  int64_t hidden;
  torch::nn::Linear fc1 = nullptr, fc2 = nullptr;
  torch::Tensor scale, seen;
};
TORCH_MODULE(Net);

struct TwoInputs : torch::nn::Module {
  torch::Tensor forward(torch::Tensor a, int times) { return a * times; }
};
struct WithDefault : torch::nn::Module {
  torch::Tensor forward(torch::Tensor a, int times = 3) { return a * times; }
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(3)})
};

}  // namespace

TEST_CASE("torch: a holder's copies are the same module, a clone is another") {
  Net net(4);
  Net same = net;
  CHECK(same.ptr() == net.ptr());
  same->fc1->weight.data().fill_(1);
  CHECK(net->fc1->weight[0][0].item<float>() == 1);
  auto other = std::dynamic_pointer_cast<NetImpl>(net->clone());
  other->fc1->weight.data().fill_(2);
  CHECK(net->fc1->weight[0][0].item<float>() == 1);
  CHECK(!other->scale.is_same(net->scale));
  CHECK(other->parameters().size() == 4);
  Net empty = nullptr;
  CHECK(empty.is_empty());
  CHECK(has(message_of([&] { empty->hidden = 1; }), "Accessing empty ModuleHolder"));
}

TEST_CASE("torch: names, in the order of registration") {
  Net net(4);
  CHECK(net->named_parameters().keys() == std::vector<std::string>{"scale", "fc1.weight", "fc1.bias", "fc2.weight"});
  CHECK(net->named_parameters(false).keys() == std::vector<std::string>{"scale"});
  CHECK(net->named_buffers().keys() == std::vector<std::string>{"seen"});
  CHECK(net->named_children().keys() == std::vector<std::string>{"fc1", "fc2"});
  CHECK(net->modules().size() == 3);
  CHECK(net->modules(false).size() == 2);
  CHECK(has(message_of([&] { net->register_parameter("a.b", torch::ones({1})); }), "must not contain a dot (got 'a.b')"));
  CHECK(has(message_of([&] { net->register_buffer("seen", {}); }), "Buffer 'seen' already defined"));
  CHECK(has(message_of([&] { net->named_parameters()["nothing"]; }), "'nothing' is not defined"));
  NetImpl on_stack(2);
  CHECK(has(message_of([&] { on_stack.modules(); }), "not stored in a shared_ptr"));
}

TEST_CASE("torch: modes, gradients and conversions reach all modules") {
  Net net(4);
  net->eval();
  CHECK(!net->fc1->is_training());
  net->train();
  net(torch::ones({2, 3})).sum().backward();
  CHECK(net->scale.grad().defined());
  net->zero_grad(false);
  CHECK(net->fc2->weight.grad().abs().sum().item<float>() == 0);
  net->zero_grad();  // without an argument it drops gradients, as in libtorch 2
  CHECK(!net->fc2->weight.grad().defined());
  net->to(torch::kDouble);
  CHECK(net->fc1->weight.dtype() == torch::kDouble);  // the member is the parameter
  const torch::Tensor after = net(torch::ones({2, 3}, torch::kDouble));
  CHECK(after.dtype() == torch::kDouble);
  after.sum().backward();
  CHECK(net->fc1->weight.grad().dtype() == torch::kDouble);
  int count = 0;
  net->apply([&](torch::nn::Module&) { ++count; });
  CHECK(count == 3);
  CHECK(net->children()[0]->as<torch::nn::Linear>()->options.in_features() == 3);
  CHECK(net->children()[0]->as<torch::nn::Conv2d>() == nullptr);
}

TEST_CASE("torch: modules print as a tree") {
  torch::nn::Sequential s({{"first", torch::nn::Linear(3, 4)}, {"act", torch::nn::ReLU()}});
  CHECK(printed(*s) ==
        "torch::nn::Sequential(\n  (first): torch::nn::Linear(in_features=3, out_features=4, bias=true)\n  (act): "
        "torch::nn::ReLU()\n)");
  CHECK(has(printed(NetImpl(2)), "(fc2): torch::nn::Linear(in_features=2, out_features=2, bias=false)"));
}

TEST_CASE("torch: a Sequential of modules of any signature") {
  torch::nn::Sequential s(torch::nn::Linear(3, 4), torch::nn::Functional(torch::relu), torch::nn::Dropout(0.5), NetImpl(2));
  CHECK(s->size() == 4);
  CHECK(message_of([&] { s->forward(torch::ones({1, 3})); }) != "nothing was thrown");  // NetImpl takes 3 numbers, not 4
  torch::nn::Sequential pair;
  pair->push_back("times", TwoInputs());
  CHECK(pair->forward(torch::ones({1}), 4).item<float>() == 4);
  CHECK(has(message_of([&] { pair->forward(torch::ones({1})); }), "expects 2 argument(s), but received 1"));
  CHECK(has(message_of([&] { pair->forward(torch::ones({1}), 2.5); }), "Expected argument #1 to be of type int"));
  CHECK(has(message_of([&] { pair->forward<int>(torch::ones({1}), 2); }), "you asked for type int"));
  CHECK(torch::nn::Sequential(WithDefault())->forward(torch::ones({1})).item<float>() == 3);
  CHECK(has(message_of([] { torch::nn::Sequential()->forward(torch::ones({1})); }), "empty Sequential"));
  CHECK(s->at<torch::nn::LinearImpl>(0).options.out_features() == 4);
  CHECK(has(message_of([&] { s->at<torch::nn::ReLUImpl>(0); }), "Attempted to cast module of type"));
  auto copy = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(s->clone());
  CHECK(copy->size() == 4);
  CHECK(copy->ptr(0) != s->ptr(0));
}

TEST_CASE("torch: lists and maps of modules and parameters") {
  torch::nn::ModuleList list(torch::nn::Linear(2, 3), torch::nn::ReLU());
  list->insert(1, torch::nn::Linear(3, 3));
  CHECK(list->size() == 3);
  CHECK(list->named_children().keys() == std::vector<std::string>{"0", "1", "2"});
  CHECK(has(message_of([&] { list->at<torch::nn::Conv2dImpl>(0); }), "Unable to cast module[0]"));
  CHECK(has(message_of([&] { list->ptr(3); }), "Index out of range"));
  torch::nn::ModuleDict dict(torch::OrderedDict<std::string, std::shared_ptr<torch::nn::Module>>{
      {"a", torch::nn::Linear(2, 3).ptr()}, {"b", torch::nn::ReLU().ptr()}});
  CHECK(dict->keys() == std::vector<std::string>{"a", "b"});
  CHECK(dict->pop("a")->as<torch::nn::Linear>() != nullptr);
  CHECK(dict->size() == 1);
  torch::nn::ParameterList parameters(torch::ones({2}), torch::zeros({3}));
  CHECK(parameters->size() == 2);
  CHECK(parameters->at(1).numel() == 3);
  torch::nn::ParameterDict named;
  named->insert("w", torch::ones({2}, torch::requires_grad()));
  CHECK((*named)["w"].requires_grad());
}

TEST_CASE("torch: an ordered dict") {
  torch::OrderedDict<std::string, int> d{{"x", 1}, {"y", 2}};
  d.insert("z", 3);
  d.erase("y");
  CHECK(d.keys() == std::vector<std::string>{"x", "z"});
  CHECK(d["z"] == 3);
  CHECK(d[1].key() == "z");
  CHECK(d.find("y") == nullptr);
  CHECK(has(message_of([&] { d.insert("x", 5); }), "Key 'x' already defined"));
  CHECK(has(message_of([&] { d[size_t(9)]; }), "Index 9 is out of bounds"));
}

TEST_CASE("torch: a dict of parameters updates the parameters that it has") {
  torch::nn::ParameterDict dict, wider;
  dict->insert("scale", torch::ones({1}));
  wider->insert("scale", torch::zeros({1}));
  dict->update(*wider);
  CHECK(dict["scale"].item<float>() == 0);
  wider->insert("shift", torch::ones({1}));
  CHECK(has(message_of([&] { dict->update(*wider); }), "Parameter 'shift' is not defined"));
}

TEST_CASE("torch: what templates ask of modules") {
  CHECK(torch::detail::is_module<torch::nn::LinearImpl>::value);
  CHECK(!torch::detail::is_module<int>::value);
  using Returned = torch::detail::return_type_of_forward_t<torch::nn::LinearImpl, torch::Tensor>;
  CHECK(std::is_same_v<Returned, torch::Tensor>);
  CHECK(std::is_void_v<torch::detail::return_type_of_forward_t<torch::nn::Module>>);
  CHECK(torch::detail::check_not_lvalue_references<int, const int&>());
  CHECK(!torch::detail::check_not_lvalue_references<int&>());
  int sum = 0;
  torch::apply([&](int i) { sum += i; }, 1, 2, 3);
  CHECK(sum == 6);
}
