// SPDX-License-Identifier: Apache-2.0
#include "layers/feedforward/running_statistics.h"

#include <doctest/doctest.h>

#include <vector>

#include "framework/ops/ops.h"
#include "layers/layers.h"
#include "optim/averages.h"
#include "optim/optimizers.h"

using namespace halfstep;

TEST_CASE("update_bn makes the statistics of batch norms those of the inputs") {
  Sequential net(make<BatchNorm1d>(2), make<Linear>(2, 1));
  auto& norm = static_cast<BatchNorm1d&>(*net.children()[0]);
  net(tensor({100, 200, 300, 400}, {2, 2}, {}));
  net.eval();
  update_bn(net, std::vector<Tensor>{tensor({1, 2, 3, 6}, {2, 2}, {}), tensor({5, 0, 7, 0}, {2, 2}, {})});
  CHECK(norm.running_mean.to_vector<double>() == std::vector<double>{4, 2});
  CHECK(norm.running_var.to_vector<double>() == std::vector<double>{2, 4});
  CHECK(norm.momentum() == 0.1);
  CHECK(!net.training());
}

TEST_CASE("frozen statistics stay and are used, across train(), copies, assignments and update_bn") {
  Sequential net(make<Linear>(3, 2), make<InstanceNorm1d>(2, InstanceNormOptions{.track_running_stats = true}));
  const auto norm_of = [](Module& m) { return dynamic_cast<RunningNorm*>(m.children()[1].get()); };
  CHECK(freeze_statistics(net) == 1);
  CHECK(norm_of(net)->has_frozen_statistics());
  CHECK(net.children()[1]->describe().find("frozen_statistics=True") != std::string::npos);
  const auto copy = net.clone();
  net.eval(), net.train();
  CHECK(net.children()[0]->training());
  for (Module* const m : {static_cast<Module*>(&net), copy.get()}) {
    m->train();
    RunningNorm* const norm = norm_of(*m);
    CHECK(!norm->training());
    norm->running_mean.fill_(2), norm->running_var.fill_(4);
    const Tensor y = (*norm)(full({1, 2, 3}, 6.0));
    for (const double v : y.flatten().to_vector<double>()) CHECK(v == doctest::Approx(2).epsilon(1e-4));
    update_bn(*m, std::vector<Tensor>{});
    CHECK(norm->running_mean.to_vector<double>() == std::vector<double>{2, 2});
    CHECK(norm->num_batches_tracked.item<int64_t>() == 0);
  }
  freeze_statistics(net, false);
  CHECK(!norm_of(net)->training());  // until train() is called
  net.train();
  CHECK(norm_of(net)->training());
  CHECK(norm_of(*copy)->has_frozen_statistics());
  CHECK_THROWS_WITH_AS(InstanceNorm1d(2).freeze_statistics(), doctest::Contains("statistics must be tracked to be frozen"),
                       ValueError);
  struct Net : Module {
    Part<BatchNorm1d> norm{this, "norm", 2};
    Tensor forward(const Tensor& x) override { return norm(x); }
  } model;
  freeze_statistics(model);
  model.norm = BatchNorm1d(2);  // another one, which nobody froze
  CHECK(model.norm->training());
}

TEST_CASE("a state without counts of batches loads, and the counts stay; one without statistics does not") {
  Sequential from(make<Linear>(3, 2), make<BatchNorm1d>(2)), to(make<Linear>(3, 2), make<BatchNorm1d>(2));
  dynamic_cast<BatchNorm1d&>(*from.children()[1]).running_mean.fill_(7);
  const auto without = [&](const std::string& part) {
    StateDict state = from.state_dict();
    std::erase_if(state, [&](const NamedTensor& t) { return t.name.find(part) != std::string::npos; });
    return state;
  };
  auto& norm = dynamic_cast<BatchNorm1d&>(*to.children()[1]);
  norm.num_batches_tracked.fill_(5);
  CHECK(to.load_state_dict(without("num_batches_tracked")).missing.empty());
  CHECK(norm.num_batches_tracked.item<int64_t>() == 5);
  CHECK(norm.running_mean.to_vector<double>() == std::vector<double>{7, 7});
  CHECK_THROWS_WITH_AS(to.load_state_dict(without("running_mean")), doctest::Contains("missing: 1.running_mean"), ValueError);
  CHECK_THROWS_WITH_AS(to.load_state_dict(without("1.")), doctest::Contains("missing: 1.num_batches_tracked"), ValueError);
  // An equal average weighs the next batch by the count.
  norm.set_momentum({});
  CHECK_THROWS_WITH_AS(to.load_state_dict(without("num_batches_tracked")), doctest::Contains("missing: 1.num_batches_tracked"),
                       ValueError);
}

TEST_CASE("averaged weights by statistics of others warn, those of update_bn and exponential averages do not") {
  Sequential net(make<Linear>(2, 2), make<BatchNorm1d>(2));
  SGD opt(net.parameters(), 0.1);
  WeightAverage swa(opt, {.equal = true}), ema(opt, {.decay = 0.9}), later(opt, {.equal = true, .start = 9});
  const Tensor x = rand({8, 2});
  net(x).square().sum().backward();
  opt.step();
  net.eval();
  const auto warned = [&](WeightAverage& average, bool update) {
    const WeightAverage::Scope averaged(average);
    if (update) update_bn(net, std::vector<Tensor>{x});
    const uint64_t before = AveragedWeights::warnings();
    net(x);
    return AveragedWeights::warnings() > before;
  };
  CHECK(!warned(ema, false));
  CHECK(!warned(later, false));  // it has no average yet
  CHECK(!warned(swa, true));
  CHECK(warned(swa, false));
  net(x);
  const uint64_t before = AveragedWeights::warnings();
  net(x);
  CHECK(AveragedWeights::warnings() == before);
  swa.copy_to_parameters();
  net(x);
  CHECK(AveragedWeights::warnings() > before);
  update_bn(net, std::vector<Tensor>{x});
  const uint64_t updated = AveragedWeights::warnings();
  net(x);
  CHECK(AveragedWeights::warnings() == updated);
}

TEST_CASE("update_bn makes statistics of instance norms anew, and each module gets back its own mode") {
  const InstanceNormOptions tracks{.track_running_stats = true};
  Sequential net(make<InstanceNorm1d>(1, tracks), make<BatchNorm1d>(1), make<Dropout>(0.5));
  auto& norm = static_cast<InstanceNorm1d&>(*net.children()[0]);
  net.children()[1]->eval();
  update_bn(net, std::vector<Tensor>{tensor({1, 3}, {1, 1, 2}, {}), tensor({5, 9}, {1, 1, 2}, {})});
  CHECK(norm.running_mean.to_vector<double>() == std::vector<double>{4.5});
  CHECK(norm.running_var.to_vector<double>() == std::vector<double>{5});  // of 2 and 8
  CHECK(norm.momentum() == 0.1);
  CHECK(net.training());
  CHECK_FALSE(net.children()[1]->training());
  CHECK(net.children()[2]->training());
}

TEST_CASE("without a momentum an instance norm averages all batches, and a batch that is refused is none") {
  InstanceNorm1d norm(1, {.momentum = {}, .track_running_stats = true});
  for (const double mean : {2.0, 4.0, 9.0}) {
    norm(tensor({mean - 1, mean + 1}, {1, 1, 2}, {}));
    CHECK_THROWS_AS(norm(ones({1, 1, 1})), ValueError);
  }
  CHECK(norm.num_batches_tracked.item<int64_t>() == 3);
  CHECK(norm.running_mean.item<double>() == doctest::Approx(5).epsilon(1e-6));
  CHECK(norm.running_var.item<double>() == doctest::Approx(2).epsilon(1e-6));
  BatchNorm1d batch(1, {.momentum = {}});
  batch(tensor({1, 3}, {2, 1}, {}));
  CHECK_THROWS_AS(batch(ones({1, 1})), ValueError);
  CHECK(batch.num_batches_tracked.item<int64_t>() == 1);
}
