// SPDX-License-Identifier: Apache-2.0
// What an optimizer's state holds besides moments: options, groups, kinds of averages.
#include <doctest/doctest.h>

#include <map>
#include <string>

#include "optim/averages.h"
#include "optim/lbfgs.h"
#include "optim/schedule_parts.h"
#include "tests/optim/problem.h"

using namespace halfstep;

namespace {

using State = std::map<std::string, Tensor>;

std::vector<ParamGroup> two_groups() {
  std::vector<ParamGroup> out;
  out.push_back({.params = {problem::parameter(), problem::parameter()}});
  out.push_back({.params = {problem::parameter()}, .lr = 0.5});
  return out;
}

void step(Optimizer& o, int t) {
  for (const Tensor& p : o.parameters()) problem::set_gradient(p, t);
  o.step();
}

}  // namespace

TEST_CASE("options that were changed by hand are part of an optimizer's state, of every group") {
  NAdam source(two_groups(), {.lr = 0.1}), other(two_groups(), {.lr = 0.3, .betas = {0.5, 0.6}});
  source.set_lr(0.01, 1);
  source.options(0).betas = {0.7, 0.8};
  source.options(1).weight_decay = 0.25;
  source.options(1).decoupled_weight_decay = true;
  step(source, 0);
  const State state = source.state_dict();
  CHECK(state.at("param_groups.1.lr").item() == 0.01);
  CHECK(state.at("param_groups.0.betas").to_vector<double>() == std::vector<double>{0.7, 0.8});
  CHECK(state.at("param_groups.0.size").item() == 2);
  other.load_state_dict(state);
  CHECK(other.lr(0) == 0.1);
  CHECK(other.lr(1) == 0.01);
  CHECK(other.options(0).betas == NumberTuple<2>{0.7, 0.8});
  CHECK(other.options(1).weight_decay == 0.25);
  CHECK(*other.param_groups()[1].weight_decay == 0.25);
  CHECK(other.options(1).decoupled_weight_decay);
  CHECK(!other.options(0).decoupled_weight_decay);
  CHECK(problem::bytes(other) == problem::bytes(source));
}

TEST_CASE("states follow the options that come with them, and texts are options, too") {
  const Tensor p = problem::parameter(), q = problem::parameter();
  SGD with({p}, {.lr = 0.1, .momentum = 0.9}), without({q}, {.lr = 0.2});
  step(with, 0);
  without.load_state_dict(with.state_dict());  // has a momentum_buffer
  CHECK(without.options().momentum == 0.9);
  LBFGS a({problem::parameter()}, {.line_search_fn = "strong_wolfe"}), b({problem::parameter()});
  b.load_state_dict(a.state_dict());
  CHECK(b.options().line_search_fn == "strong_wolfe");
}

TEST_CASE("a state is a copy: a later step does not change it, and it leads back") {
  const Tensor p = problem::parameter();
  RMSprop o({p}, {.lr = 0.1, .momentum = 0.5});
  step(o, 0);
  const std::string then = problem::bytes(o);
  const State state = o.state_dict(), views = o.state_tensors();
  step(o, 1);
  CHECK(problem::bytes(o) != then);
  CHECK(problem::bytes(views.at("0.square_avg")) == problem::bytes(o.state_dict().at("0.square_avg")));
  o.load_state_dict(state);
  CHECK(problem::bytes(o) == then);
}

TEST_CASE("a state without options, as of an older halfstep, leaves those of the groups") {
  Adam source({problem::parameter()}, {.lr = 0.1}), other({problem::parameter()}, {.lr = 0.3});
  step(source, 0);
  State old;
  for (const auto& [key, t] : source.state_dict())
    if (!key.starts_with("param_groups.")) old[key] = t;
  other.load_state_dict(old);
  CHECK(other.lr() == 0.3);
  CHECK(other.state_dict().at("0.step").item() == 1);
}

TEST_CASE("what does not fit a state's options is refused, and nothing has changed") {
  Adam source(two_groups(), {.lr = 0.1});
  step(source, 0);
  const auto refused = [&](const std::string& key, const Tensor& value, const char* says) {
    Adam other(two_groups(), {.lr = 0.3});
    State state = source.state_dict();
    state[key] = value;
    const std::string before = problem::bytes(other);
    CHECK_THROWS_WITH_AS(other.load_state_dict(state), doctest::Contains(says), ValueError);
    CHECK(problem::bytes(other) == before);
  };
  refused("param_groups.0.size", tensor({3.0}), "it has groups of 3, 1 parameters, here are groups of 2, 1");
  refused("param_groups.1.betas", tensor({0.5, 1.5}), "betas must be in [0, 1), got 1.5");
  refused("param_groups.0.lr", full({}, -1.0), "param_groups.0.lr must be >= 0, got -1");
  refused("param_groups.0.warmth", full({}, 1.0), "the option \"warmth\" of a state has no place in Adam(");
  refused("param_groups.0.eps", tensor({1.0, 2.0}), "the option \"eps\"");
  Adam one({problem::parameter(), problem::parameter(), problem::parameter()}, {.lr = 0.3});
  CHECK_THROWS_WITH_AS(one.load_state_dict(source.state_dict()),
                       doctest::Contains("it has groups of 2, 1 parameters, here are groups of 3"), ValueError);
}

TEST_CASE("an average of another kind, one too many and one too few are each one line") {
  const auto state_of = [](bool ema, bool equal) {
    const Tensor p = problem::parameter();
    SGD o({p}, 0.1);
    std::optional<WeightAverage> average;
    if (ema) average.emplace(o, WeightAverageOptions{.equal = equal});
    step(o, 0);
    return o.state_dict();
  };
  const auto refused = [](const State& state, bool ema, bool equal, const char* says) {
    SGD o({problem::parameter()}, 0.1);
    std::optional<WeightAverage> average;
    if (ema) average.emplace(o, WeightAverageOptions{.equal = equal});
    CHECK_THROWS_WITH_AS(o.load_state_dict(state), doctest::Contains(says), ValueError);
  };
  refused(state_of(true, false), true, true, "average is of EMA, here of SWA");
  refused(state_of(true, false), false, false, "it goes along with EMA (average), which SGD(lr=0.1) does not have here");
  refused(state_of(false, false), true, true, "it lacks SWA (average), which goes along with the optimizer here");
}

TEST_CASE("a rate that was set by hand outlives saving, before the next step of a schedule too") {
  const auto check = [](const auto& make, bool set) {
    const auto rates = [&](bool saved) {
      SGD o({problem::parameter()}, {.lr = 1, .momentum = 0.9}), again({problem::parameter()}, {.lr = 0.1, .momentum = 0.5});
      const SchedulePtr s = make(o), resumed = make(again);
      for (int i = 0; i < 3; ++i) step(o, i), s->step();
      if (set) o.set_lr(0.5);
      Optimizer& to = saved ? again : o;
      Schedule& by = saved ? *resumed : *s;
      if (saved) again.load_state_dict(o.state_dict()), resumed->load_state_dict(s->state_dict());
      std::vector<double> out{to.lr(), to.momentum()};
      for (int i = 0; i < 3; ++i) {
        step(to, i);
        by.step();
        out.push_back(to.lr());
      }
      return out;
    };
    CHECK(rates(true) == rates(false));
  };
  for (const bool set : {false, true}) {
    check([](Optimizer& o) { return std::make_shared<PolynomialLR>(o, 8, 2); }, set);
    check([](Optimizer& o) { return std::make_shared<InverseSqrtLR>(o, 4); }, set);
    check([](Optimizer& o) { return std::make_shared<OneCycleLR>(o, OneCycleOptions{.max_lr = 2, .total_steps = 9}); }, set);
    check([](Optimizer& o) { return std::make_shared<WarmupLR>(o, std::make_shared<ExponentialLR>(o, 0.5), 2); }, set);
  }
}

TEST_CASE("a state is loaded where options have changed on the way, so that some parameters have what others lack") {
  const auto follow = [](auto make, auto change) {
    std::vector<Tensor> params{problem::parameter(), problem::parameter()}, copies{problem::parameter(), problem::parameter()};
    auto o = make(params), p = make(copies);
    for (int t = 0; t < 3; ++t) {
      problem::set_gradient(params[0], t), problem::set_gradient(params[1], t);
      o.step();
    }
    change(o.options());
    params[1].zero_grad();  // as of one that is frozen
    problem::set_gradient(params[0], 3);
    o.step();
    for (size_t i = 0; i < 2; ++i) copies[i].detach().copy_(params[i].detach());
    p.load_state_dict(o.state_dict());
    for (int t = 4; t < 7; ++t) {
      for (const Tensor& each : {params[0], params[1], copies[0], copies[1]}) problem::set_gradient(each, t);
      o.step(), p.step();
    }
    for (size_t i = 0; i < 2; ++i) CHECK(problem::bytes(params[i]) == problem::bytes(copies[i]));
    CHECK(problem::bytes(o) == problem::bytes(p));
  };
  const auto rmsprop = [](const std::vector<Tensor>& params) { return RMSprop(params, {.lr = 0.01}); };
  follow(rmsprop, [](RMSpropOptions& o) { o.centered = true; });
  follow(rmsprop, [](RMSpropOptions& o) { o.momentum = 0.9, o.centered = true; });
  for (const bool first : {false, true})
    follow([&](const std::vector<Tensor>& params) { return Adam(params, {.lr = 0.01, .amsgrad = first}); },
           [&](AdamOptions& o) { o.amsgrad = !first; });
  // What no option asks for is refused, and what a state without options lacks.
  Adam o({problem::parameter()});
  CHECK_THROWS_WITH_AS(o.load_state_dict({{"0.momentum_buffer", zeros({problem::kSize})}}), doctest::Contains("has no such state"),
                       ValueError);
  Adam top({problem::parameter()}, {.amsgrad = true});
  CHECK_THROWS_WITH_AS(top.load_state_dict({{"0.exp_avg", zeros({problem::kSize})}, {"0.exp_avg_sq", zeros({problem::kSize})}}),
                       doctest::Contains("0.max_exp_avg_sq: missing"), ValueError);
}

TEST_CASE("a rate that is set by hand beside a schedule is not the initial rate of a state") {
  SGD o({problem::parameter()}, 0.4), p({problem::parameter()}, 0.4), none({problem::parameter()}, 0.4);
  PolynomialLR before(o, 8), after(p, 8);
  before.step();
  o.set_lr(0.1), none.set_lr(0.1);
  p.load_state_dict(o.state_dict());
  after.load_state_dict(before.state_dict());
  CHECK(p.initial_lr(0) == 0.4);
  CHECK(p.lr() == 0.1);
  CHECK(p.state_dict().at("param_groups.0.initial_lr").item<double>() == 0.4);
  CHECK(none.state_dict().at("param_groups.0.initial_lr").item<double>() == 0.1);  // a schedule that is made later begins there
}

TEST_CASE("ASGD's state is PyTorch's: step, eta, mu and ax") {
  CHECK_THROWS_WITH_AS(ASGD({problem::parameter()}, {.alpha = -1}), "[ASGD] alpha must be >= 0, got -1", ValueError);
  const Tensor p = ones({1}, {.requires_grad = true});
  ASGD opt({p}, {.lr = 0.5, .lambd = 0.5, .alpha = 1, .t0 = 1});
  p.set_grad(zeros({1}));
  opt.step();
  std::map<std::string, Tensor> state = problem::states(opt);
  CHECK(state.size() == 4);
  CHECK(state.at("0.eta").item<double>() == doctest::Approx(0.5 / (1 + 0.5 * 0.5)));
  CHECK(state.at("0.mu").item<double>() == 1);
  CHECK(p.item<double>() == 0.75);  // 1 - 0.5 * 0.5
  opt.step();
  opt.step();
  CHECK(opt.state_dict().at("0.mu").item<double>() == 0.5);
  // PyTorch's step takes the eta that it finds.
  p.detach().fill_(1);
  state["0.step"] = full({}, 1.0), state["0.eta"] = full({}, 0.25);
  opt.load_state_dict(state);
  opt.step();
  CHECK(p.item<double>() == 0.875);
  CHECK(opt.state_dict().at("0.eta").item<double>() == doctest::Approx(0.5 / (1 + 0.5 * 0.5 * 2)));

  // States of version 0.1.0 lack eta: the step computes it from the learning rate and the count.
  state.erase("0.eta"), state.erase("0.mu");
  opt.load_state_dict(state);
  p.set_grad(full(p.shape(), 1.0));
  opt.step();
  CHECK(p.item<double>() == doctest::Approx(0.875 * (1 - 0.5 * 0.4) - 0.4));
  CHECK(opt.state_dict().at("0.eta").item<double>() == doctest::Approx(0.5 / (1 + 0.5 * 0.5 * 2)));
}

TEST_CASE("An eta of ASGD that a rate of 0 gave counts for one step, also after loading") {
  for (const bool loaded : {false, true}) {
    const Tensor p = ones({1}, {.requires_grad = true});
    p.set_grad(full({1}, 1.0));
    ASGD first({p}, {.lr = 0.5, .lambd = 0.5, .alpha = 1}), second({p}, {.lr = 0.5, .lambd = 0.5, .alpha = 1});
    first.step();
    first.set_lr(0);
    first.step();
    const double before = p.item<double>();
    ASGD& opt = loaded ? second : first;
    if (loaded) opt.load_state_dict(first.state_dict());
    CHECK(opt.state_dict().at("0.eta").item<double>() == 0);
    opt.set_lr(0.25);
    opt.step();
    CHECK(p.item<double>() == before);
    const double eta = 0.25 / (1 + 0.5 * 0.25 * 3);
    opt.step();
    CHECK(p.item<double>() == doctest::Approx(before * (1 - 0.5 * eta) - eta));
  }
}
