// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "tests/torch/support.h"

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

struct Affine : torch::autograd::Function<Affine> {
  static torch::Tensor forward(AutogradContext* ctx, torch::Tensor x, double factor, torch::Tensor shift = {}) {
    ctx->saved_data["factor"] = factor;
    ctx->saved_data["steps"] = 3;
    ctx->save_for_backward({x, shift});
    return shift.defined() ? x * factor + shift : x * factor;
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    CHECK(ctx->saved_data["steps"].toInt() == 3);
    const variable_list saved = ctx->get_saved_variables();
    CHECK(saved.size() == 2);
    return {gradients[0] * ctx->saved_data["factor"].toDouble(), torch::Tensor(),
            saved[1].defined() ? gradients[0] : torch::Tensor()};
  }
};
struct SortedWithPlaces : torch::autograd::Function<SortedWithPlaces> {
  static variable_list forward(AutogradContext* ctx, torch::Tensor x) {
    auto [values, places] = x.sort();
    ctx->mark_non_differentiable({places});
    ctx->save_for_backward({places});
    return {values, places};
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    return {torch::zeros_like(gradients[0]).scatter(0, ctx->get_saved_variables()[0], gradients[0])};
  }
};
// Takes a list of tensors and a number.
struct WeightedSum : torch::autograd::Function<WeightedSum> {
  static torch::Tensor forward(AutogradContext* ctx, torch::TensorList terms, double weight) {
    ctx->saved_data["weight"] = weight;
    return (terms[0] + terms[1]) * weight;
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const torch::Tensor g = gradients[0] * ctx->saved_data["weight"].toDouble();
    return {g, g * 10, torch::Tensor()};
  }
};
// Writes into its input through a pointer, and says so.
struct SetFirst : torch::autograd::Function<SetFirst> {
  static torch::Tensor forward(AutogradContext* ctx, torch::Tensor x) {
    x.data_ptr<float>()[0] = 7;
    ctx->mark_dirty({x});
    return x;
  }
  static variable_list backward(AutogradContext*, variable_list gradients) { return {gradients[0] * 2}; }
};
struct TooFew : torch::autograd::Function<TooFew> {
  static torch::Tensor forward(AutogradContext*, torch::Tensor a, torch::Tensor b) { return a * b; }
  static variable_list backward(AutogradContext*, variable_list gradients) { return {gradients[0]}; }
};

}  // namespace

TEST_CASE("torch: backward, gradients that are read and replaced") {
  const torch::Tensor x = torch::tensor({1.0, 2.0}, torch::requires_grad());
  CHECK(!x.grad().defined());
  (x * x).sum().backward();
  CHECK(x.grad().equal(torch::tensor({2.0, 4.0})));
  x.grad().zero_();
  CHECK(x.grad().equal(torch::zeros({2})));
  x.mutable_grad() = torch::ones({2});
  CHECK(x.grad().sum().item<double>() == 2);
  x.mutable_grad().reset();
  CHECK(!x.grad().defined());
  const torch::Tensor y = x * x;
  CHECK(y.grad_fn()->name() == "MulBackward0");
  CHECK(y.grad_fn()->next_edges().at(0).function->name() == "torch::autograd::AccumulateGrad");
}

TEST_CASE("torch: gradients of some leaves, of higher order, and of nothing") {
  const torch::Tensor a = torch::tensor(2.0, torch::requires_grad()), b = torch::tensor(3.0, torch::requires_grad());
  torch::autograd::backward({a * b}, {}, {}, false, variable_list{a});
  CHECK(a.grad().item<double>() == 3);
  CHECK(!b.grad().defined());
  const torch::Tensor first = torch::autograd::grad({a * a * a}, {a}, {}, {}, true)[0];
  CHECK(torch::autograd::grad({first}, {a})[0].item<double>() == 12);
  CHECK(!torch::autograd::grad({a * 1}, {b}, {}, {}, false, true)[0].defined());
  CHECK_THROWS_AS(torch::autograd::backward({a * b}, {}, {}, false, variable_list{}), c10::Error);
}

TEST_CASE("torch: guards turn recording off and on") {
  const torch::Tensor x = torch::ones({1}, torch::requires_grad());
  {
    torch::NoGradGuard off;
    CHECK(!torch::GradMode::is_enabled());
    CHECK(!(x * 2).requires_grad());
    torch::AutoGradMode on(true);
    CHECK((x * 2).requires_grad());
  }
  auto off = std::make_unique<torch::NoGradGuard>();  // as some programs do where a condition decides
  auto on = std::make_unique<torch::AutoGradMode>(true);
  off.reset();
  CHECK(torch::GradMode::is_enabled());
  on.reset();
  CHECK(torch::GradMode::is_enabled());
  torch::InferenceMode fast;
  CHECK(torch::InferenceMode::is_enabled());
  CHECK_THROWS_AS(torch::InferenceMode(false), c10::Error);
}

TEST_CASE("torch: a function of one's program has its own gradient") {
  const torch::Tensor x = torch::ones({2}, torch::requires_grad()), shift = torch::ones({2}, torch::requires_grad());
  Affine::apply(x, 2.5).sum().backward();
  CHECK(x.grad().equal(torch::full({2}, 2.5)));
  Affine::apply(x, 2.0, shift).sum().backward();
  CHECK(x.grad().equal(torch::full({2}, 4.5)));
  CHECK(shift.grad().equal(torch::ones({2})));
  const torch::Tensor z = torch::tensor({3.0, 1.0}, torch::requires_grad());
  const variable_list out = SortedWithPlaces::apply(z);
  CHECK(!out[1].requires_grad());
  (out[0] * torch::tensor({10.0, 20.0})).sum().backward();
  CHECK(z.grad().equal(torch::tensor({20.0, 10.0})));
  CHECK_THROWS_AS(TooFew::apply(x, shift).sum().backward(), c10::Error);
}

TEST_CASE("torch: hooks see gradients") {
  const torch::Tensor x = torch::ones({1}, torch::requires_grad());
  double seen = 0;
  x.register_hook([&](torch::Tensor g) { seen = g.item<double>(); });
  x.register_hook([](torch::Tensor g) { return g * 2; });
  (x * 3).backward();
  CHECK(seen == 3);
  CHECK(x.grad().item<double>() == 6);
}

TEST_CASE("torch: functions of lists, functions that write into their input, and gradients that are undefined") {
  const torch::Tensor a = torch::ones({2}, torch::requires_grad()), b = torch::ones({2}, torch::requires_grad());
  const variable_list both{a, b};
  WeightedSum::apply(torch::TensorList(both), 3.0).sum().backward();
  CHECK(a.grad().equal(torch::full({2}, 3.0)));
  CHECK(b.grad().equal(torch::full({2}, 30.0)));
  const torch::Tensor copy = a.clone();
  const int64_t version = copy._version();
  const torch::Tensor out = SetFirst::apply(copy);
  CHECK(out.is_same(copy));
  CHECK(copy._version() > version);
  a.mutable_grad().reset();
  out.sum().backward();
  CHECK(a.grad().equal(torch::full({2}, 2.0)));
  b.mutable_grad().reset();
  torch::autograd::UndefinedGrad().apply({b * 2})[0].sum().backward();
  CHECK(!b.grad().defined());
}

TEST_CASE("torch: gradients of tensors in the middle, and the warnings of libtorch") {
  struct Collect : torch::WarningHandler {
    Collect() { torch::Warning::set_warning_handler(this); }
    ~Collect() override { torch::Warning::set_warning_handler(before); }
    void process(const torch::SourceLocation&, const std::string& message, const bool) override { text += message; }
    torch::WarningHandler* before = torch::Warning::get_warning_handler();
    std::string text;
  } warnings;
  const torch::Tensor x = torch::tensor({1.0, 2.0}, torch::requires_grad());
  const torch::Tensor z = x * x;
  CHECK(!z.grad().defined());
  CHECK(has(warnings.text, "not a leaf Tensor is being accessed"));
  (z * x).sum().backward({}, false, false, variable_list{x, z});
  CHECK(x.grad().equal(torch::tensor({3.0, 12.0})));
  CHECK(z.grad().equal(torch::tensor({1.0, 2.0})));
  warnings.text.clear();
  const torch::Tensor y = x * 2;
  y.retain_grad();
  CHECK(y.retains_grad());
  CHECK(!y.grad().defined());
  CHECK(warnings.text.empty());
  {
    torch::Warning::WarnAlways always;
    (x * x).sum().backward({}, {}, true);
  }
  CHECK(has(warnings.text, "Using backward() with create_graph=True"));
  CHECK(has(message_of([&] { torch::autograd::grad({x * 2}, {}); }), "grad requires non-empty inputs."));
  CHECK(has(message_of([&] { torch::ones({2}).sum().backward(); }), "element 0 of tensors does not require grad"));
  CHECK(has(message_of([&] { (x * 2).backward(); }), "grad can be implicitly created only for scalar outputs"));
  const torch::Tensor unused = torch::ones({1}, torch::requires_grad());
  CHECK(has(message_of([&] { torch::autograd::grad({x.sum() * 2}, {unused}); }), "Set allow_unused=True"));
  const torch::Tensor own = torch::autograd::make_variable(x, true);
  CHECK(own.is_leaf());
  CHECK(own.data_ptr() == x.data_ptr());
}
