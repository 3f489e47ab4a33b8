// SPDX-License-Identifier: Apache-2.0
#include "optim/averages.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/optim/problem.h"

using namespace halfstep;

namespace {

// Values of the parameter after each of 20 steps of SGD, step `skipped` of which was not applied, and what is kept beside them.
struct Run {
  Tensor p = problem::parameter();
  SGD optimizer{{p}, {.lr = 0.05}};
  std::vector<double> path;  // of the first element, after applied steps

  void go(int steps, int skipped = -1) {
    for (int t = 0; t < steps; ++t) {
      problem::set_gradient(p, t);
      optimizer.amp() = {full({}, t == skipped ? 1.0 : 0.0), {}};
      optimizer.step();
      optimizer.amp() = {};
      if (t != skipped) path.push_back(p.to_vector<double>()[0]);
    }
  }
};

double first(const Tensor& t) { return t.to_vector<double>()[0]; }

}  // namespace

TEST_CASE("an exponential average follows applied steps, with and without warm-up") {
  for (const bool warm_up : {false, true}) {
    Run run;
    WeightAverage ema(run.optimizer, {.decay = 0.9, .warm_up = warm_up});
    CHECK(!ema.averages()[0].defined());
    run.go(20, 6);
    REQUIRE(run.path.size() == 19);
    double want = run.path[0];
    for (size_t n = 1; n < run.path.size(); ++n) {
      const double decay = warm_up ? std::min(0.9, double(1 + n) / double(10 + n)) : 0.9;
      want = decay * want + (1 - decay) * run.path[n];
    }
    CHECK(first(ema.averages()[0]) == doctest::Approx(want).epsilon(1e-6));
  }
}

TEST_CASE("an equal average is the mean of every k-th step from a start on") {
  Run run;
  WeightAverage swa(run.optimizer, {.equal = true, .start = 4, .every = 3});
  run.go(4);
  CHECK(!swa.averages()[0].defined());
  run.go(14);
  double sum = 0;
  int n = 0;
  for (size_t i = 4; i < run.path.size(); i += 3, ++n) sum += run.path[i];
  CHECK(first(swa.averages()[0]) == doctest::Approx(sum / n).epsilon(1e-6));
}

TEST_CASE("in a scope the parameters hold the average, afterwards their own bytes, and the low copy follows") {
  Run run;
  WeightAverage ema(run.optimizer, {.decay = 0.5});
  run.go(5);
  const std::string own = problem::bytes(run.p), average = problem::bytes(ema.averages()[0]);
  {
    const WeightAverage::Scope averaged(ema);
    CHECK(problem::bytes(run.p) == average);
  }
  CHECK(problem::bytes(run.p) == own);
  CHECK(problem::bytes(ema.averages()[0]) == average);
  ema.copy_to_parameters();
  CHECK(problem::bytes(run.p) == average);
}

TEST_CASE("Lookahead pulls the weights back every k applied steps") {
  Run run, plain;
  Lookahead lookahead(run.optimizer, {.k = 3, .alpha = 0.25});
  double slow = problem::start(0), fast = slow;
  int applied = 0;
  for (int t = 0; t < 12; ++t) {
    const bool skip = t == 4;
    problem::set_gradient(run.p, t);
    run.optimizer.amp() = {full({}, skip ? 1.0 : 0.0), {}};
    run.optimizer.step();
    run.optimizer.amp() = {};
    if (skip) continue;
    fast -= 0.05 * problem::gradient(0, t, fast);
    if (++applied % 3 == 0) fast = slow += 0.25 * (fast - slow);
    CHECK(first(run.p) == doctest::Approx(fast).epsilon(1e-6));
  }
}

TEST_CASE("averages are states of their optimizer: a saved run resumes bit for bit") {
  Run whole;
  Lookahead slow(whole.optimizer);
  WeightAverage average(whole.optimizer);
  whole.go(7);
  std::map<std::string, Tensor> saved;
  for (const auto& [name, t] : whole.optimizer.state_dict()) saved[name] = t.clone();
  CHECK(saved.contains("0.average"));
  CHECK(saved.contains("0.slow_step"));

  Run resumed;
  resumed.p.detach().copy_(whole.p.detach());
  Lookahead slow_too(resumed.optimizer);
  WeightAverage average_too(resumed.optimizer);
  resumed.optimizer.load_state_dict(saved);
  whole.go(9);
  resumed.go(9);
  CHECK(problem::bytes(whole.p) == problem::bytes(resumed.p));
  CHECK(problem::bytes(whole.optimizer) == problem::bytes(resumed.optimizer));

  Run without;
  CHECK_THROWS_AS(without.optimizer.load_state_dict(saved), ValueError);
}

TEST_CASE("averages refuse options out of range") {
  Run run;
  CHECK_THROWS_WITH_AS(static_cast<void>(WeightAverage(run.optimizer, {.decay = 1})),
                       "[WeightAverage] decay must be in [0, 1), got 1", ValueError);
  CHECK_THROWS_WITH_AS(static_cast<void>(WeightAverage(run.optimizer, {.every = 0})), "[WeightAverage] every must be >= 1, got 0",
                       ValueError);
  CHECK_THROWS_WITH_AS(static_cast<void>(Lookahead(run.optimizer, {.k = 0})), "[Lookahead] k must be >= 1, got 0", ValueError);
}
