// SPDX-License-Identifier: Apache-2.0
// What the helps of optimizers, schedules and clipping say is done here, and helps.
#include <doctest/doctest.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "layers/layers.h"
#include "optim/averages.h"
#include "optim/clip.h"
#include "optim/lbfgs.h"
#include "optim/schedule_parts.h"
#include "tests/optim/problem.h"

using namespace halfstep;

namespace {

template <class E, class F>
void refuses(const F& f, const char* help) {
  CHECK_THROWS_WITH_AS(f(), doctest::Contains(help), E);
}

void step(Optimizer& optimizer) {
  for (const Tensor& p : optimizer.parameters()) p.set_grad(ones_like(p));
  optimizer.step();
}

class Looks : public SGD {
 public:
  using SGD::SGD;
  Tensor look(size_t param) { return state(param, "seen", {}, DType::f32); }
};

}  // namespace

TEST_CASE("remedies: a parameter that is not contiguous") {
  const char* const help = "use p.detach().contiguous().set_requires_grad() as the parameter";
  for (const Tensor& p : {arange(6).to(DType::f32).reshape({2, 3}).t().set_requires_grad(),
                          tensor({1.0, 2.0}).reshape({2, 1}).expand({2, 3}).detach().set_requires_grad(),
                          ones({2, 3, 4, 5}).permute({3, 1, 0, 2}).detach().set_requires_grad()}) {
    REQUIRE(p.is_leaf());
    refuses<ShapeError>([&] { SGD(std::vector<Tensor>{p}, 0.5); }, help);
    const Tensor mended = p.detach().contiguous().set_requires_grad();
    SGD optimizer({mended}, 0.5);
    const Tensor before = mended.detach().clone();
    (mended * 3.0).sum().backward();
    optimizer.step();
    CHECK(equal(mended.detach(), before - 1.5));
  }
}

TEST_CASE("remedies: a result in place of a parameter, and parameters that were exchanged or replaced") {
  const Tensor p = problem::parameter();
  refuses<ValueError>([&] { SGD(std::vector<Tensor>{p * 2.0}, 0.5); }, "pass the parameter itself");
  SGD optimizer({p}, 0.5);
  optimizer.param_groups()[0].params.push_back(problem::parameter());
  refuses<ValueError>([&] { optimizer.step(); }, "use add_param_group for more parameters");
  optimizer.param_groups()[0].params.pop_back();
  optimizer.add_param_group({.params = {problem::parameter()}});
  step(optimizer);

  struct Net : Module {
    Part<Linear> fc{this, "fc", 2, 2};
    Tensor forward(const Tensor& x) override { return fc(x); }
  } net;
  SGD of_net(net.parameters(), 0.5);
  net.fc = Linear(2, 3);
  refuses<ValueError>([&] { of_net.step(); }, "or make a new one");
  SGD anew(net.parameters(), 0.5);
  step(anew);
}

TEST_CASE("remedies: states of further parameters, and of a module that was converted late") {
  Looks optimizer({problem::parameter()}, 0.5);
  refuses<IndexError>([&] { optimizer.look(1); }, "use add_param_group to add parameters");
  optimizer.add_param_group({.params = {problem::parameter()}});
  CHECK(optimizer.look(1).defined());

  Linear net(2, 2);
  Adam late(net.parameters());
  step(late);
  net.to(DType::f64);
  refuses<ValueError>([&] { step(late); }, "convert and move the module before its optimizer takes a step");
  Adam early(net.parameters());
  step(early);
}

TEST_CASE("remedies: schedules that do not fit together, or not to their optimizer") {
  SGD o({problem::parameter()}, {.lr = 1, .momentum = 0.9});
  Rprop without({problem::parameter()});
  refuses<ValueError>([&] { OneCycleLR(without, {.max_lr = 1, .total_steps = 5}); }, "set cycle_momentum to false");
  OneCycleLR(without, {.max_lr = 1, .total_steps = 5, .cycle_momentum = false}).step();
  refuses<ValueError>([&] { CyclicLR(without, {.base_lr = 0.1, .max_lr = 1}); }, "set cycle_momentum to false");
  CyclicLR(without, {.base_lr = 0.1, .max_lr = 1, .cycle_momentum = false}).step();

  const auto decay = std::make_shared<ExponentialLR>(o, 0.5);
  const auto cycle = std::make_shared<CyclicLR>(o, CyclicOptions{.base_lr = 0.1, .max_lr = 1, .step_size_up = 3});
  decay->step();
  refuses<ValueError>([&] { cycle->step(); }, "step one of them only, or make a SequentialLR of both");
  decay->step();
  refuses<ValueError>([&] { ChainedScheduler(o, {decay, cycle}); }, "use it alone, or in a SequentialLR");
  SequentialLR both(o, {decay, cycle}, {2});
  for (const double rate : {0.5, 0.1, 0.4, 0.7}) {
    both.step();
    CHECK(o.lr() == doctest::Approx(rate));
  }
  ChainedScheduler alone(o, {cycle});
  alone.step();
  CHECK(o.lr() == doctest::Approx(0.4));
  MultiplicativeLR halves(o, [](int64_t) { return 0.5; });
  ExponentialLR beside(o, 0.5);
  halves.step(), beside.step();
  CHECK(o.lr() == doctest::Approx(0.1));
}

TEST_CASE("remedies: options of LBFGS and Muon that cannot change, and a closure that is missing") {
  const Tensor p = problem::parameter();
  LBFGS lbfgs({p});
  const auto closure = [&] {
    lbfgs.zero_grad();
    Tensor loss = p.square().sum();
    loss.backward();
    return loss;
  };
  refuses<ValueError>([&] { lbfgs.step(); }, "opt.step([&] { opt.zero_grad(); Tensor loss = ...; loss.backward(); return loss; })");
  lbfgs.step(closure);
  lbfgs.options().history_size = 3;
  refuses<ValueError>([&] { lbfgs.step(closure); }, "build a new optimizer");
  LBFGS anew({p}, {.history_size = 3});
  anew.step([&] { return closure(); });

  const Tensor matrix = ones({2, 2}).set_requires_grad(), bias = ones({2}).set_requires_grad();
  Muon muon({matrix, bias}, {.lr = 0.1});
  muon.options(1).adamw_lr = 0.5;
  refuses<ValueError>([&] { step(muon); }, "write lr of the group that AdamW updates");
  muon.options(1).adamw_lr = 0;
  muon.param_groups()[1].lr = 0.5;
  step(muon);
  CHECK(muon.lr(1) == 0.5);
}

TEST_CASE("remedies: a norm that is not finite, and parameters that hold an average") {
  const Tensor p = problem::parameter();
  SGD optimizer({p}, 0.5);
  p.set_grad(full(p.shape(), std::numeric_limits<double>::infinity()));
  refuses<ValueError>([&] { clip_grad_norm_(p, 1, 2, true); }, "set error_if_nonfinite = false");
  clip_grad_norm_(p, 1, 2, false);
  WeightAverage average(optimizer, {.decay = 0.5});
  step(optimizer), step(optimizer);
  {
    const WeightAverage::Scope averaged(average);
    refuses<ValueError>([&] { step(optimizer); }, "end the WeightAverage::Scope first");
  }
  step(optimizer);
}
