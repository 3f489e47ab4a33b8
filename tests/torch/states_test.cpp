// SPDX-License-Identifier: Apache-2.0
// The states of the room's optimizers: read, written, erased, added, saved.
#include <doctest/doctest.h>

#include <sstream>

#include "tests/torch/support.h"

namespace {

namespace optim = torch::optim;

struct Toy {
  torch::Tensor a = torch::tensor({1.0, -2.0}, torch::requires_grad()), b = torch::tensor({0.5}, torch::requires_grad());
  void backward() {
    a.mutable_grad() = {};
    b.mutable_grad() = {};
    ((a * a).sum() + 3 * b.sum()).backward();
  }
  template <class Optimizer>
  void steps(Optimizer& optimizer, int n) {
    for (int i = 0; i < n; ++i) {
      backward();
      optimizer.step();
    }
  }
};
template <class State, class Optimizer>
State& state_of(Optimizer& optimizer, const torch::Tensor& p) {
  return static_cast<State&>(*optimizer.state().at(p.unsafeGetTensorImpl()));
}

}  // namespace

TEST_CASE("torch: states show what a step has left, and keep showing it") {
  Toy toy;
  optim::Adam adam({toy.a, toy.b}, optim::AdamOptions(0.1).amsgrad(true));
  CHECK(adam.state().empty());
  toy.steps(adam, 1);
  REQUIRE(adam.state().size() == 2);
  auto& state = state_of<optim::AdamParamState>(adam, toy.a);
  CHECK(state.step() == 1);
  CHECK(shown(state.exp_avg()) == "[2] float: 0.2 -0.4");
  CHECK(shown(state.exp_avg_sq()) == "[2] float: 0.004 0.016");
  CHECK(shown(state.max_exp_avg_sq()) == "[2] float: 0.004 0.016");
  toy.steps(adam, 2);
  CHECK(state.step() == 3);
  const optim::Adam& constant = adam;
  CHECK(constant.state().size() == 2);

  optim::SGD plain({toy.a}, 0.1), momentum({toy.a}, optim::SGDOptions(0.1).momentum(0.9));
  toy.steps(plain, 1);
  CHECK(plain.state().empty());
  toy.steps(momentum, 1);
  CHECK(state_of<optim::SGDParamState>(momentum, toy.a).momentum_buffer().equal(toy.a.grad()));

  optim::RMSprop rms({toy.b}, optim::RMSpropOptions(0.1));
  toy.steps(rms, 1);
  CHECK(shown(state_of<optim::RMSpropParamState>(rms, toy.b).square_avg()) == "[1] float: 0.09");
  CHECK(!state_of<optim::RMSpropParamState>(rms, toy.b).grad_avg().defined());

  optim::Adagrad grad({toy.b}, optim::AdagradOptions(0.1).initial_accumulator_value(0.5));
  CHECK(shown(state_of<optim::AdagradParamState>(grad, toy.b).sum()) == "[1] float: 0.5");  // before the first step
  toy.steps(grad, 1);
  CHECK(shown(state_of<optim::AdagradParamState>(grad, toy.b).sum()) == "[1] float: 9.5");
  CHECK(state_of<optim::AdagradParamState>(grad, toy.b).step() == 1);
}

TEST_CASE("torch: states that a program writes count from the next step") {
  Toy changed, expected;
  optim::Adam adam({changed.a, changed.b}, optim::AdamOptions(0.1)), fresh({expected.a, expected.b}, optim::AdamOptions(0.1));
  changed.steps(adam, 2);
  {
    const torch::NoGradGuard off;
    expected.a.copy_(changed.a);
    expected.b.copy_(changed.b);
  }
  SUBCASE("erased") { adam.state().clear(); }
  SUBCASE("reset by setters") {
    for (const torch::Tensor& p : {changed.a, changed.b})
      state_of<optim::AdamParamState>(adam, p).step(0).exp_avg(torch::zeros_like(p)).exp_avg_sq(torch::zeros_like(p));
  }
  SUBCASE("reset in place") {
    for (const torch::Tensor& p : {changed.a, changed.b}) {
      auto& state = state_of<optim::AdamParamState>(adam, p);
      state.exp_avg().zero_();
      state.exp_avg_sq().zero_();
      state.step(0);
    }
  }
  SUBCASE("replaced") {
    for (auto& [key, state] : adam.state()) state = nullptr;
  }
  changed.steps(adam, 3);
  expected.steps(fresh, 3);
  CHECK(changed.a.equal(expected.a));
  CHECK(changed.b.equal(expected.b));
  CHECK(state_of<optim::AdamParamState>(adam, changed.a).step() == 3);
}

TEST_CASE("torch: states move from one optimizer to another") {
  Toy from, to;
  optim::SGD first({from.a}, optim::SGDOptions(0.1).momentum(0.9)), second({to.a}, optim::SGDOptions(0.1).momentum(0.9));
  from.steps(first, 2);
  {
    const torch::NoGradGuard off;
    to.a.copy_(from.a);
  }
  second.state()[to.a.unsafeGetTensorImpl()] = first.state().at(from.a.unsafeGetTensorImpl())->clone();
  to.steps(second, 2);
  from.steps(first, 2);
  CHECK(to.a.equal(from.a));

  optim::Adagrad one({from.b}, optim::AdagradOptions(0.1).initial_accumulator_value(0.5)), two({to.b}, optim::AdagradOptions(0.1));
  state_of<optim::AdagradParamState>(one, from.b).sum().fill_(2);
  state_of<optim::AdagradParamState>(two, to.b).sum(torch::full({1}, 2.0));
  from.steps(one, 2);
  to.steps(two, 2);
  CHECK(to.b.equal(from.b));
}

TEST_CASE("torch: states that do not fit throw") {
  Toy toy;
  optim::Adam adam({toy.a}, optim::AdamOptions(0.1));
  toy.steps(adam, 1);
  adam.state()[toy.a.unsafeGetTensorImpl()] = std::make_unique<optim::SGDParamState>();
  CHECK(has(message_of([&] { adam.step(); }), "a state of another optimizer's class"));
  adam.state().clear();
  adam.state()[toy.b.unsafeGetTensorImpl()] = std::make_unique<optim::AdamParamState>();
  CHECK(has(message_of([&] { adam.step(); }), "a state of a tensor that is no parameter"));
  optim::Adam other({toy.a}, optim::AdamOptions(0.1));
  toy.steps(other, 1);
  state_of<optim::AdamParamState>(other, toy.a).exp_avg(torch::zeros({3}));
  CHECK(has(message_of([&] { other.step(); }), "0.exp_avg: must be [2], got [3]"));
  struct Own : optim::OptimizerCloneableParamState<Own> {};
  std::stringstream stream;
  torch::serialize::OutputArchive archive;
  CHECK(has(message_of([&] { Own().serialize(archive); }), "has not been implemented for torch::optim::OptimizerParamState"));
}

TEST_CASE("torch: L-BFGS shows and takes its history") {
  const auto loss = [](const torch::Tensor& x) { return ((x - 1) * (x - 1) * torch::tensor({1.0, 5.0})).sum(); };
  const auto run = [&](optim::LBFGS& optimizer, const torch::Tensor& x) {
    optimizer.step([&] {
      optimizer.zero_grad();
      const torch::Tensor out = loss(x);
      out.backward();
      return out;
    });
  };
  torch::Tensor x = torch::tensor({3.0, -2.0}, torch::requires_grad()), y = torch::zeros({2}, torch::requires_grad());
  const auto options = optim::LBFGSOptions(0.3).max_iter(2).max_eval(9).history_size(2);
  optim::LBFGS first({x}, options), second({y}, options);
  run(first, x);
  run(first, x);
  auto& state = state_of<optim::LBFGSParamState>(first, x);
  CHECK(state.n_iter() == 4);
  CHECK(state.func_evals() == 4);
  CHECK(state.old_dirs().size() == 2);
  CHECK(state.ro().at(1).item<float>() == doctest::Approx(1 / (state.old_dirs()[1] * state.old_stps()[1]).sum().item<float>()));
  CHECK(state.d().numel() == 2);
  CHECK(state.prev_loss() > loss(x).item<double>());
  {
    const torch::NoGradGuard off;
    y.copy_(x);
  }
  second.state()[y.unsafeGetTensorImpl()] = state.clone();
  run(second, y);
  run(first, x);
  CHECK(x.equal(y));
  state.ro()[0].fill_(7);
  CHECK(has(message_of([&] { run(first, x); }), "ro follows from old_dirs and old_stps"));
  CHECK(has(message_of([&] {
              optim::LBFGS({optim::OptimizerParamGroup({x}), optim::OptimizerParamGroup({y})});
            }),
            "LBFGS doesn't support per-parameter options"));

  optim::LBFGS later(std::vector<torch::Tensor>{}, options);
  CHECK(later.step([] { return torch::ones({}); }).item<float>() == 1);
  later.add_parameters({x});
  run(later, x);
  CHECK(later.state().size() == 1);
  later.add_parameters({y});
  CHECK(has(message_of([&] { run(later, x); }), "parameters cannot change after a step"));
}

TEST_CASE("torch: parameters that change keep their states") {
  Toy toy;
  optim::SGD sgd({toy.a}, optim::SGDOptions(0.1).momentum(0.9));
  toy.steps(sgd, 1);
  const torch::Tensor momentum = state_of<optim::SGDParamState>(sgd, toy.a).momentum_buffer().clone();
  auto& parameters = sgd.param_groups()[0].params();
  parameters.insert(parameters.begin(), toy.b);
  toy.backward();
  sgd.step();
  CHECK(toy.b.item<float>() == doctest::Approx(0.2));
  CHECK(state_of<optim::SGDParamState>(sgd, toy.a).momentum_buffer().allclose(momentum * 0.9 + toy.a.grad()));
  parameters.pop_back();
  toy.backward();
  sgd.step();
  CHECK(sgd.state().size() == 1);
  parameters.clear();
  CHECK(has(message_of([&] { sgd.step(); }), "all parameters of the optimizer were removed"));
}

TEST_CASE("torch: options of a group that are as new take the optimizer's") {
  Toy toy;
  std::vector<optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<torch::Tensor>{toy.a}, std::make_unique<optim::SGDOptions>(0.5));
  groups.emplace_back(std::vector<torch::Tensor>{toy.b},
                      std::make_unique<optim::SGDOptions>(optim::SGDOptions(1e-3).momentum(0.3)));  // 1e-3: as if not given
  optim::SGD sgd(groups, optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.25));
  const auto at = [&](size_t g) { return static_cast<optim::SGDOptions&>(sgd.param_groups()[g].options()); };
  CHECK(at(0) == optim::SGDOptions(0.5).momentum(0.9).weight_decay(0.25));
  CHECK(at(1) == optim::SGDOptions(0.1).momentum(0.3).weight_decay(0.25));
}

TEST_CASE("torch: an optimizer of a program's own keeps states by parameter") {
  struct Signs : optim::Optimizer {
    struct State : optim::OptimizerCloneableParamState<State> {
      TORCH_ARG(int64_t, step) = 0;
    };
    explicit Signs(std::vector<torch::Tensor> parameters)
        : Optimizer(std::move(parameters), std::make_unique<optim::SGDOptions>(0.5)) {}
    torch::Tensor step(LossClosure = nullptr) override {
      const torch::NoGradGuard off;
      for (auto& group : param_groups_) {
        for (auto& p : group.params()) {
          auto& kept = state_[p.unsafeGetTensorImpl()];
          if (!kept) kept = std::make_unique<State>();
          auto& state = static_cast<State&>(*kept);
          state.step(state.step() + 1);
          p.sub_(p.grad().sign() * (group.options().get_lr() / double(state.step())));
        }
      }
      return {};
    }
  };
  Toy toy;
  Signs signs({toy.a});
  toy.steps(signs, 2);
  CHECK(shown(toy.a) == "[2] float: 0.25 -1.25");
  CHECK(signs.state().size() == 1);
}

TEST_CASE("torch: optimizers are saved with their states, and read buffers by position") {
  Toy toy, other;
  optim::Adam adam({toy.a, toy.b}, optim::AdamOptions(0.1)), resumed({other.a, other.b}, optim::AdamOptions(0.2)),
      old({other.a, other.b}, optim::AdamOptions(0.1));
  toy.steps(adam, 2);
  std::stringstream stream;
  torch::save(adam, stream);
  CHECK(resumed.state().empty());
  torch::load(resumed, stream);
  CHECK(resumed.state().size() == 2);
  const auto& state = state_of<optim::AdamParamState>(adam, toy.b);
  CHECK(state_of<optim::AdamParamState>(resumed, other.b) == state);

  torch::serialize::OutputArchive archive;
  const auto write = [&](const std::string& name, const std::vector<torch::Tensor>& list) {
    archive.write(name + "/size", torch::tensor(int64_t(list.size())));
    for (size_t i = 0; i < list.size(); ++i) archive.write(name + "/" + std::to_string(i), list[i]);
  };
  std::vector<torch::Tensor> step, average, square;
  for (const torch::Tensor& p : {toy.a, toy.b}) {
    const auto& s = state_of<optim::AdamParamState>(adam, p);
    step.push_back(torch::tensor(s.step()));
    average.push_back(s.exp_avg());
    square.push_back(s.exp_avg_sq());
  }
  write("step_buffers", step);
  write("exp_average_buffers", average);
  write("exp_average_sq_buffers", square);
  write("max_exp_average_sq_buffers", {});
  std::stringstream buffers;
  archive.save_to(buffers);
  torch::load(old, buffers);
  CHECK(state_of<optim::AdamParamState>(old, other.b) == state);
}

TEST_CASE("torch: a scaler's steps show in the states, and skipped ones leave them") {
  Toy toy;
  optim::Adam adam({toy.a}, optim::AdamOptions(0.1));
  torch::amp::GradScaler scaler;
  toy.steps(adam, 1);
  auto& state = state_of<optim::AdamParamState>(adam, toy.a);
  toy.a.mutable_grad() = {};
  scaler.scale(toy.a.sum()).backward();
  scaler.step(adam);
  scaler.update();
  CHECK(state.step() == 2);
  toy.a.mutable_grad() = torch::full({2}, std::numeric_limits<float>::infinity());
  scaler.scale(torch::zeros({}));
  scaler.step(adam);
  scaler.update();
  CHECK(state.step() == 2);
}

TEST_CASE("torch: groups that a program removes take their states along") {
  Toy toy;
  std::vector<optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<torch::Tensor>{toy.a});
  groups.emplace_back(std::vector<torch::Tensor>{toy.b});
  optim::Adagrad adagrad(groups, optim::AdagradOptions(0.1).initial_accumulator_value(0.5));
  toy.steps(adagrad, 1);
  CHECK(adagrad.state().size() == 2);
  adagrad.param_groups().pop_back();
  adagrad.state();
  toy.steps(adagrad, 1);
  CHECK(state_of<optim::AdagradParamState>(adagrad, toy.a).step() == 2);
  adagrad.param_groups().clear();
  CHECK_NOTHROW(adagrad.state());
}

TEST_CASE("torch: a closure's states and options count in the step that it belongs to") {
  Toy toy;
  optim::Adam adam({toy.a}, optim::AdamOptions(0.1));
  toy.steps(adam, 1);
  const torch::Tensor before = toy.a.detach().clone();
  adam.step([&] {
    state_of<optim::AdamParamState>(adam, toy.a).step(100);
    static_cast<optim::AdamOptions&>(adam.param_groups()[0].options()).lr(0);
    toy.backward();
    return toy.a.sum();
  });
  CHECK(state_of<optim::AdamParamState>(adam, toy.a).step() == 101);
  CHECK(toy.a.equal(before));
}

TEST_CASE("torch: L-BFGS's history is that of the ring in use, and al cannot be set") {
  torch::Tensor x = torch::tensor({3.0, -2.0, 1.0}, torch::requires_grad());
  optim::LBFGS lbfgs({x}, optim::LBFGSOptions(0.3).max_iter(4).max_eval(20).history_size(2));
  const auto step = [&] {
    lbfgs.step([&] {
      lbfgs.zero_grad();
      const torch::Tensor loss = (x * x * x * x).sum() + (x - 1).square().sum();
      loss.backward();
      return loss;
    });
  };
  step();
  CHECK(state_of<optim::LBFGSParamState>(lbfgs, x).old_dirs().size() == 2);
  static_cast<optim::LBFGSOptions&>(lbfgs.param_groups()[0].options()).history_size(10);
  CHECK_THROWS_WITH(step(), doctest::Contains("history_size cannot change after 2, got 10"));
  static_cast<optim::LBFGSOptions&>(lbfgs.param_groups()[0].options()).history_size(2);
  state_of<optim::LBFGSParamState>(lbfgs, x).al(std::vector<torch::Tensor>{torch::ones({1})});
  CHECK_THROWS(step());
}

TEST_CASE("torch: the parameters of an optimizer cannot change between unscale_ and step") {
  Toy toy;
  optim::SGD sgd({toy.a}, optim::SGDOptions(1.0));
  torch::amp::GradScaler scaler;
  scaler.scale(toy.a.sum() + 3 * toy.b.sum()).backward();
  scaler.unscale_(sgd);
  sgd.add_parameters({toy.b});
  CHECK_THROWS_WITH(scaler.step(sgd), doctest::Contains("cannot change between unscale_ and step"));
}
