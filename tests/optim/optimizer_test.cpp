// SPDX-License-Identifier: Apache-2.0
// What all optimizers share: groups, validation, named state.
#include <doctest/doctest.h>

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "framework/autograd/grad_mode.h"
#include "tests/optim/problem.h"

using namespace halfstep;

namespace {
Tensor param(const Shape& shape = {2}) { return ones(shape, {.requires_grad = true}); }
}  // namespace

TEST_CASE("hyper-parameters outside their domain are refused") {
  const std::vector<Tensor> p{param()};
  CHECK_THROWS_WITH_AS(SGD(p, {.lr = -1}), "[optimizer] lr must be >= 0, got -1", ValueError);
  CHECK_THROWS_WITH_AS(SGD(p, {.momentum = -0.5}), "[SGD] momentum must be in [0, 1), got -0.5", ValueError);
  CHECK_THROWS_WITH_AS(SGD(p, {.weight_decay = -0.5}), "[SGD] weight_decay must be >= 0, got -0.5", ValueError);
  CHECK_THROWS_WITH_AS(SGD(p, {.nesterov = true}),
                       "[SGD] nesterov needs momentum > 0 and dampening 0, got momentum 0 and dampening 0", ValueError);
  CHECK_THROWS_WITH_AS(SGD(p, {.momentum = 0.9, .dampening = 0.1, .nesterov = true}),
                       "[SGD] nesterov needs momentum > 0 and dampening 0, got momentum 0.9 and dampening 0.1", ValueError);
  CHECK_THROWS_WITH_AS(Adam(p, {.betas = {1, 0.999}}), "[Adam] betas must be in [0, 1), got 1", ValueError);
  CHECK_THROWS_WITH_AS(Adam(p, {.betas = {0.9, -0.1}}), "[Adam] betas must be in [0, 1), got -0.1", ValueError);
  CHECK_THROWS_WITH_AS(AdamW(p, {.eps = -1}), "[AdamW] eps must be >= 0, got -1", ValueError);
  CHECK_THROWS_WITH_AS(AdamW(p, {.weight_decay = -1}), "[AdamW] weight_decay must be >= 0, got -1", ValueError);
}

TEST_CASE("parameters that cannot be optimized are refused") {
  const Tensor p = param();
  p.set_label("fc.weight");
  CHECK_THROWS_WITH_AS(SGD(std::vector<Tensor>{}), "[optimizer] needs at least one parameter, got an empty list", ValueError);
  CHECK_THROWS_WITH_AS(SGD(std::vector<ParamGroup>{}), "[optimizer] needs at least one parameter, got an empty list", ValueError);
  CHECK_THROWS_WITH_AS(SGD(std::vector<Tensor>{p, p}),
                       "[optimizer] each parameter may appear once, parameter 1 (fc.weight) appears again", ValueError);
  CHECK_THROWS_WITH_AS(SGD(std::vector<Tensor>{Tensor()}), "[optimizer] parameter 0 is undefined", ValueError);
  CHECK_THROWS_WITH_AS(SGD(std::vector<Tensor>{param() * 2.0}),
                       "[optimizer] can only optimize leaf tensors, parameter 0 was computed by an operation\n"
                       "help: pass the parameter itself, not a cast, view or result of it",
                       ValueError);
  CHECK_THROWS_WITH_AS(SGD(std::vector<Tensor>{arange(3)}), "[optimizer] parameters must be floating point, parameter 0 is int64",
                       DTypeError);
  CHECK_THROWS_WITH_AS(SGD(std::vector<Tensor>{ones({2, 3}).t()}),
                       "[optimizer] parameters must be contiguous, parameter 0 has shape [3, 2] and strides [1, 3]\n"
                       "help: use p.detach().contiguous().set_requires_grad() as the parameter",
                       ShapeError);
}

TEST_CASE("groups have their own rate and decay; parameters without a gradient are left alone") {
  const Tensor a = param(), b = param(), c = param();
  SGD opt(std::vector<ParamGroup>{{{a, c}, {}, {}}, {{b}, 0.5, 0.1}}, {.lr = 1});
  CHECK(opt.lr() == 1);
  CHECK(opt.lr(1) == 0.5);
  a.set_grad(ones({2}));
  b.set_grad(ones({2}));
  opt.step();
  CHECK(a.to_vector<float>() == std::vector<float>{0, 0});
  CHECK(b.to_vector<float>() == std::vector<float>{1 - 0.5f * 1.1f, 1 - 0.5f * 1.1f});
  CHECK(c.to_vector<float>() == std::vector<float>{1, 1});
  CHECK(c.version() == 0);
  opt.set_lr(0.25, 1);
  CHECK(opt.lr(1) == 0.25);
  CHECK(opt.initial_lr(1) == 0.5);
  CHECK(opt.parameters().size() == 3);
  CHECK_THROWS_WITH_AS(opt.set_lr(1, 2), "[optimizer] group must be below 2, got 2", IndexError);
  opt.zero_grad();
  CHECK(!a.grad().defined());
}

TEST_CASE("a closure's loss is returned and is evaluated with recording on") {
  const Tensor p = param();
  SGD opt({p}, {.lr = 0.5});
  const NoGrad off;
  const std::optional<Tensor> loss = opt.step([&] {
    opt.zero_grad();
    Tensor l = (p * p).sum();
    l.backward();
    return l;
  });
  REQUIRE(loss.has_value());
  CHECK(loss->item<float>() == 2);
  CHECK(p.to_vector<float>() == std::vector<float>{0, 0});
  CHECK(!opt.step().has_value());
}

TEST_CASE("gradients of any strides step, and are left contiguous") {
  const Tensor p = param({2, 3}), q = param({2, 3});
  SGD opt({p, q}, {.lr = 1});
  p.set_grad(tensor({1, 2, 3, 4, 5, 6}, {3, 2}, {}).t());
  q.set_grad(full({}, 2.0).expand({2, 3}));
  opt.step();
  CHECK(p.to_vector<float>() == std::vector<float>{0, -2, -4, -1, -3, -5});
  CHECK(q.to_vector<float>() == std::vector<float>(6, -1));
}

TEST_CASE("state: lazy, zero, counted as optimizer memory, named as in PyTorch") {
  const Tensor p = problem::parameter(), q = problem::parameter();
  Adam opt({p, q}, {.amsgrad = true});
  CHECK(problem::states(opt).empty());
  problem::set_gradient(q, 0);
  opt.step();
  std::vector<std::string> names;
  for (const auto& [name, t] : problem::states(opt)) names.push_back(name);
  CHECK(names == std::vector<std::string>{"1.exp_avg", "1.exp_avg_sq", "1.max_exp_avg_sq", "1.step"});
  CHECK(opt.state_dict().at("1.exp_avg").shape() == Shape{6});
  CHECK(opt.state_dict().at("1.step").shape() == Shape{});
  CHECK(opt.state_dict().at("1.step").item<float>() == 1);

  SGD sgd({p}, {.lr = 0.1, .momentum = 0.9});
  problem::set_gradient(p, 0);
  sgd.step();
  CHECK(sgd.state_dict().contains("0.momentum_buffer"));
}

TEST_CASE("a loaded state continues bit for bit") {
  for (const problem::Setting& setting : problem::settings()) {
    CAPTURE(setting.name);
    const Tensor p = problem::parameter(DType::f32, setting.shape);
    const auto optimizer = setting.make({p});
    for (int t = 0; t < 7; ++t) {
      problem::set_gradient(p, t);
      optimizer->step();
    }
    const Tensor q = p.detach().clone();
    q.set_requires_grad();
    const auto resumed = setting.make({q});
    problem::set_gradient(q, 3);
    resumed->step();  // state that the load must replace
    q.detach().copy_(p.detach());
    std::map<std::string, Tensor> saved;
    for (const auto& [name, t] : optimizer->state_dict()) saved[name] = t.clone();
    resumed->load_state_dict(saved);
    for (int t = 7; t < 12; ++t) {
      problem::set_gradient(p, t);
      problem::set_gradient(q, t);
      optimizer->step();
      resumed->step();
    }
    CHECK(problem::bytes(p) == problem::bytes(q));
    CHECK(problem::bytes(*optimizer) == problem::bytes(*resumed));
  }
}

TEST_CASE("a state that does not fit is refused as a whole, every fault named") {
  const Tensor p = problem::parameter();
  Adam opt({p});
  problem::set_gradient(p, 0);
  opt.step();
  const std::string before = problem::bytes(opt);
  const std::map<std::string, Tensor> bad{{"0.exp_avg", zeros({5})},
                                          {"0.momentum_buffer", zeros({6})},
                                          {"1.step", zeros({})},
                                          {"step", zeros({})},
                                          {"0.step", zeros({})}};
  CHECK_THROWS_WITH_AS(opt.load_state_dict(bad),
                       "[optimizer.load_state_dict] the state does not fit Adam(lr=0.001, betas=(0.9, 0.999), eps=1e-08):\n"
                       "  0.exp_avg: must be [6], got [5]\n"
                       "  0.momentum_buffer: Adam(lr=0.001, betas=(0.9, 0.999), eps=1e-08) has no such state\n"
                       "  1.step: the optimizer has 1 parameters\n"
                       "  step: a key must be <parameter>.<name>, as in 0.step\n"
                       "  0.exp_avg: missing\n"
                       "  0.exp_avg_sq: missing",
                       ValueError);
  CHECK(problem::bytes(opt) == before);
  opt.load_state_dict({});
  CHECK(problem::states(opt).empty());
}

TEST_CASE("PyTorch's SGD state has no step count: a momentum buffer counts as one step") {
  const Tensor p = problem::parameter();
  SGD opt({p}, {.lr = 1, .momentum = 0.5});
  opt.load_state_dict({{"0.momentum_buffer", full({6}, 2.0)}});
  p.set_grad(zeros({6}));
  opt.step();
  CHECK(p.to_vector<double>().front() == problem::start(0) - 1);
}

TEST_CASE("optimizers describe themselves") {
  const std::vector<Tensor> p{param()};
  CHECK(SGD(p, {.lr = 0.1, .momentum = 0.9, .nesterov = true}).describe() == "SGD(lr=0.1, momentum=0.9, nesterov=True)");
  CHECK(AdamW(p).describe() == "AdamW(lr=0.001, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.01)");
  CHECK(AdamW(p, {.weight_decay = 0}).describe() == "AdamW(lr=0.001, betas=(0.9, 0.999), eps=1e-08, weight_decay=0)");
}

TEST_CASE("a group may have options of its own, and groups may be added") {
  const Tensor a = param(), b = param(), c = param();
  SGD opt(std::vector<ParamGroup>{{.params = {a}},
                                  {.params = {b}, .weight_decay = 0.5, .options = SGDOptions{.lr = 2, .momentum = 0.5}}},
          {.lr = 1});
  CHECK(opt.lr(0) == 1);
  CHECK(opt.lr(1) == 2);
  CHECK(opt.options(1).momentum == 0.5);
  for (int t = 0; t < 2; ++t) {
    for (const Tensor& p : {a, b}) p.set_grad(ones(p.shape()));
    opt.step();
  }
  CHECK(a.to_vector<float>()[0] == -1);
  CHECK(b.to_vector<float>()[0] == -3.5f);  // 1 - 2 * 1.5, then the gradient is 1 + 0.5 * -2 and the buffer 0.75
  opt.add_param_group({.params = {c}, .lr = 0.25});
  for (const Tensor& p : {a, b, c}) p.set_grad(ones(p.shape()));
  opt.step();
  CHECK(c.to_vector<float>()[0] == 0.75f);
  CHECK(opt.parameters().size() == 3);
  CHECK_THROWS_WITH_AS(opt.add_param_group({.params = {a}}),
                       "[optimizer] each parameter may appear once, parameter 3 appears again", ValueError);
  CHECK_THROWS_WITH_AS(opt.add_param_group({.params = {}}),
                       "[optimizer] needs at least one parameter, got an empty list for group 3", ValueError);
  CHECK_THROWS_WITH_AS(opt.add_param_group({.params = {param()}, .options = AdamOptions{}}),
                       "[SGD] options of a group must be SGDOptions, got those of another optimizer", ValueError);
  CHECK_THROWS_WITH_AS(Rprop(std::vector<ParamGroup>{{.params = {param()}, .weight_decay = 0.1}}),
                       "[Rprop] has no weight_decay, got 0.1", ValueError);
}

TEST_CASE("Muon leaves to AdamW the parameters that are not matrices, and those of groups that ask for it") {
  const Tensor weight = param({3, 4}), bias = param({3}), filters = param({2, 3, 3, 3}), embedding = param({5, 2});
  Muon opt(std::vector<ParamGroup>{{.params = {weight, bias, filters}},
                                   {.params = {embedding}, .options = MuonOptions{.matrices = false, .adamw_lr = 0.5}}},
           {.lr = 0.1, .adamw_lr = 0.01});
  REQUIRE(opt.param_groups().size() == 3);
  CHECK(opt.param_groups()[0].params.size() == 2);
  CHECK(opt.lr(0) == 0.1);
  CHECK(opt.lr(1) == 0.01);
  CHECK(opt.lr(2) == 0.5);
  for (const Tensor& p : {weight, bias, filters, embedding}) p.set_grad(ones(p.shape()));
  opt.step();
  std::vector<std::string> names;
  for (const auto& [name, t] : problem::states(opt)) names.push_back(name);
  CHECK(names == std::vector<std::string>{"0.momentum_buffer", "0.step", "1.momentum_buffer", "1.step", "2.exp_avg", "2.exp_avg_sq",
                                          "2.step", "3.exp_avg", "3.exp_avg_sq", "3.step"});
  CHECK(bias.to_vector<float>()[0] == doctest::Approx(0.989));
}

TEST_CASE("what is written into param_groups() counts from the next step on") {
  const Tensor a = param(), b = param();
  const auto step = [&](Optimizer& opt) {
    for (const Tensor& p : {a, b}) {
      p.detach().fill_(1);
      p.set_grad(ones({2}));
    }
    opt.step();
    return std::pair(a.to_vector<float>()[0], b.to_vector<float>()[0]);
  };
  SGD opt(std::vector<ParamGroup>{{.params = {a}}, {.params = {b}, .lr = 0.25}}, {.lr = 1});
  CHECK(step(opt) == std::pair(0.f, 0.75f));
  for (ParamGroup& group : opt.param_groups()) group.lr = 0.5;
  CHECK(opt.lr(0) == 0.5);
  CHECK(opt.lr(1) == 0.5);
  CHECK(step(opt) == std::pair(0.5f, 0.5f));
  for (auto& group : opt.param_groups()) CHECK(*group.lr == 0.5);
  opt.param_groups()[1].weight_decay = 1;
  CHECK(step(opt) == std::pair(0.5f, 0.f));
  opt.param_groups()[1].as<SGDOptions>().weight_decay = 0.5;       // the other place of the same value
  CHECK(*std::as_const(opt).param_groups()[1].weight_decay == 1);  // as last taken over
  CHECK(step(opt) == std::pair(0.5f, 0.25f));
  CHECK(*opt.param_groups()[1].weight_decay == 0.5);
  opt.options(0).lr = 0.125;
  CHECK(opt.lr() == 0.125);
  opt.options(0).maximize = true;
  CHECK(step(opt) == std::pair(1.125f, 0.25f));
  opt.param_groups()[0].options = SGDOptions{.lr = 2};
  CHECK(step(opt) == std::pair(-1.f, 0.25f));
  opt.set_lr(0.75);
  CHECK(opt.lr(0) == 0.75);
  CHECK(opt.lr(1) == 0.75);
  opt.options(0).momentum = 0.5;
  step(opt);
  CHECK(step(opt).first == 1 - 0.75f * 1.5f);
  CHECK(opt.initial_lr(0) == 1);
}

TEST_CASE("every option of every optimizer counts when it is written between steps") {
  // One that was written is like one that was built so, from its first step.
  const auto same = [](auto changed, auto built, const auto& change) {
    const Tensor p = problem::parameter(DType::f32, {2, 3}), q = problem::parameter(DType::f32, {2, 3});
    auto late = changed({p});
    auto early = built({q});
    change(late);
    for (int t = 0; t < 3; ++t) {
      problem::set_gradient(p, t);
      problem::set_gradient(q, t);
      late.step();
      early.step();
    }
    CHECK(problem::bytes(p) == problem::bytes(q));
    CHECK(problem::bytes(late) == problem::bytes(early));
  };
  const auto make = []<class O>(std::type_identity<O>, typename O::Options options) {
    return [options](std::vector<Tensor> params) { return O(std::move(params), options); };
  };
  same(
      make(std::type_identity<Adam>{}, {}),
      make(std::type_identity<Adam>{}, {.lr = 0.1, .betas = {0.5, 0.7}, .eps = 0.1, .weight_decay = 0.2, .amsgrad = true}),
      [](Adam& opt) { opt.options() = {.lr = 0.1, .betas = {0.5, 0.7}, .eps = 0.1, .weight_decay = 0.2, .amsgrad = true}; });
  same(make(std::type_identity<LAMB>{}, {}), make(std::type_identity<LAMB>{}, {.lr = 0.1, .weight_decay = 0.5}), [](LAMB& opt) {
    for (ParamGroup& group : opt.param_groups()) group.lr = 0.1, group.weight_decay = 0.5;
  });
  same(make(std::type_identity<Muon>{}, {}), make(std::type_identity<Muon>{}, {.lr = 0.1, .momentum = 0.5, .ns_steps = 2}),
       [](Muon& opt) {
         opt.set_lr(0.1);
         opt.options().momentum = 0.5;
         opt.options().ns_steps = 2;
       });
  same(make(std::type_identity<Adafactor>{}, {}), make(std::type_identity<Adafactor>{}, {.lr = 0.1, .d = 2}), [](Adafactor& opt) {
    opt.param_groups()[0].lr = 0.1;
    opt.options().d = 2;
  });
  same(make(std::type_identity<RMSprop>{}, {}), make(std::type_identity<RMSprop>{}, {.alpha = 0.5, .momentum = 0.9}),
       [](RMSprop& opt) { opt.param_groups()[0].as<RMSpropOptions>() = {.alpha = 0.5, .momentum = 0.9}; });
}

TEST_CASE("a step refuses what is written into a group that a constructor would refuse") {
  const Tensor p = param();
  p.set_grad(ones({2}));
  SGD opt({p}, {.lr = 0.5});
  const auto refused = [&](const auto& write, const std::string& text) {
    write(opt.param_groups()[0]);
    CHECK_THROWS_WITH_AS(opt.step(), doctest::Contains(text.c_str()), ValueError);
    CHECK(p.to_vector<float>() == std::vector<float>{1, 1});
  };
  refused([](ParamGroup& g) { g.lr = -1; }, "[optimizer] lr must be >= 0, got -1");
  opt.set_lr(0.5);
  refused([](ParamGroup& g) { g.weight_decay = -2; }, "[SGD] weight_decay must be >= 0, got -2");
  opt.param_groups()[0].weight_decay = 0;
  refused([](ParamGroup& g) { g.as<SGDOptions>().momentum = 1.5; }, "[SGD] momentum must be in [0, 1), got 1.5");
  opt.options().momentum = 0;
  refused([](ParamGroup& g) { g.options = AdamOptions{}; }, "[SGD] options of a group must be SGDOptions");
  CHECK_THROWS_AS(opt.param_groups()[0].as<SGDOptions>(), ValueError);
  opt.param_groups()[0].options = SGDOptions{.lr = 0.5};
  const std::vector<Tensor> before = opt.param_groups()[0].params;
  refused([](ParamGroup& g) { g.params = {param()}; }, "[optimizer] the parameters of group 0 were exchanged");
  opt.param_groups()[0].params = before;
  opt.step();
  CHECK(p.to_vector<float>() == std::vector<float>{0.5f, 0.5f});

  Rprop without({param()});
  without.param_groups()[0].weight_decay = 0.1;
  CHECK_THROWS_WITH_AS(without.step(), "[Rprop] has no weight_decay, got 0.1", ValueError);
  Muon muon({param({3, 4})});
  muon.options().matrices = false;
  CHECK_THROWS_WITH_AS(muon.step(), doctest::Contains("matrices and adamw_lr of a group cannot change"), ValueError);
}

TEST_CASE("Adafactor without memory of its second moment forgets all of it") {
  const Tensor p = param({2, 2}), q = param({3});
  Adafactor opt({p, q}, {.beta2_decay = 0});
  for (const double size : {3e18, 1e-3}) {  // the first squares to more than 2^24 times the second
    p.set_grad(full({2, 2}, size));
    q.set_grad(full({3}, size));
    opt.step();
  }
  CHECK(opt.state_dict().at("0.row_var").to_vector<double>()[0] * 1e6 == doctest::Approx(1));
  CHECK(opt.state_dict().at("0.col_var").to_vector<double>()[0] * 1e6 == doctest::Approx(1));
  CHECK(opt.state_dict().at("1.variance").to_vector<double>()[0] * 1e6 == doctest::Approx(1));
}
