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
      optimizer.checked_amp() = {full({}, t == skipped ? 1.0 : 0.0), {}};
      optimizer.step();
      optimizer.checked_amp() = {};
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

TEST_CASE("an average takes the weights after each k steps from a start on, and update() takes them at any time") {
  for (const bool equal : {true, false}) {
    Run run;
    WeightAverage average(run.optimizer, {.decay = 0.9, .equal = equal, .start = 4, .every = 3});
    run.go(6);
    CHECK(!average.averages()[0].defined());
    run.go(13, 1);
    REQUIRE(run.path.size() == 18);
    double want = run.path[6], n = 1;  // after 7, 10, 13 and 16 applied steps
    for (const size_t i : {9, 12, 15}) want += (equal ? 1 / ++n : 0.1) * (run.path[i] - want);
    CHECK(first(average.averages()[0]) == doctest::Approx(want).epsilon(1e-6));
    average.update();
    want += (equal ? 1 / 5. : 0.1) * (run.path[17] - want);
    CHECK(first(average.averages()[0]) == doctest::Approx(want).epsilon(1e-6));
    run.go(1);  // the 19th: update() was no step
    CHECK(first(average.averages()[0]) == doctest::Approx(want + (equal ? 1 / 6. : 0.1) * (run.path[18] - want)).epsilon(1e-6));
  }
}

TEST_CASE("an average by hand takes the weights when update() is called, resumes, and refuses it within a scope") {
  Run run, again;
  WeightAverage swa(run.optimizer, {.equal = true, .by_hand = true}), too(again.optimizer, {.equal = true, .by_hand = true});
  CHECK(swa.describe() == "SWA(by_hand=True)");
  run.go(5);
  CHECK(!swa.averages()[0].defined());
  for (int epoch = 0; epoch < 2; ++epoch) run.go(4), swa.update();
  again.p.detach().copy_(run.p.detach());
  again.optimizer.load_state_dict(run.optimizer.state_dict());
  swa.update(), too.update();
  CHECK(first(swa.averages()[0]) == doctest::Approx((run.path[8] + 2 * run.path[12]) / 3).epsilon(1e-6));
  CHECK(problem::bytes(swa.averages()[0]) == problem::bytes(too.averages()[0]));
  const WeightAverage::Scope averaged(swa);
  CHECK_THROWS_WITH_AS(swa.update(), doctest::Contains("end the WeightAverage::Scope first"), ValueError);
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
    run.optimizer.checked_amp() = {full({}, skip ? 1.0 : 0.0), {}};
    run.optimizer.step();
    run.optimizer.checked_amp() = {};
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

TEST_CASE("an average of 16-bit weights is the same however often it is looked at") {
  for (const DType low : {DType::bf16, DType::f16}) {
    const auto run = [&](bool look) {
      const Tensor p = problem::parameter(low);
      SGD o({p}, 0.01);
      WeightAverage swa(o, {.equal = true});
      for (int t = 0; t < 40; ++t) {
        problem::set_gradient(p, t);
        o.step();
        if (!look) continue;
        const std::string own = problem::bytes(p);
        {
          const WeightAverage::Scope evaluating(swa);
          CHECK(problem::bytes(p) == problem::bytes(swa.averages()[0].to(low)));
        }
        CHECK(problem::bytes(p) == own);
      }
      return problem::bytes(swa.averages()[0]);
    };
    CHECK(run(true) == run(false));
  }
}

TEST_CASE("two averages of one optimizer are two, also when they are saved, and so are two Lookaheads") {
  const auto alone = [](const WeightAverageOptions& o) {
    Run run;
    WeightAverage average(run.optimizer, o);
    run.go(9);
    return problem::bytes(average.averages()[0]);
  };
  Run both, again;
  WeightAverage slow(both.optimizer, {.decay = 0.9}), mean(both.optimizer, {.equal = true, .start = 2});
  both.go(5);
  WeightAverage slow2(again.optimizer, {.decay = 0.9}), mean2(again.optimizer, {.equal = true, .start = 2});
  again.p.detach().copy_(both.p.detach());
  again.optimizer.load_state_dict(both.optimizer.state_dict());
  for (int t = 5; t < 9; ++t) {
    for (Run* r : {&both, &again}) {
      problem::set_gradient(r->p, t);
      r->optimizer.step();
    }
  }
  for (auto [a, b] : {std::pair(&slow, &mean), std::pair(&slow2, &mean2)}) {
    CHECK(problem::bytes(a->averages()[0]) == alone({.decay = 0.9}));
    CHECK(problem::bytes(b->averages()[0]) == alone({.equal = true, .start = 2}));
  }
  Run after;  // one after the other: the second knows nothing of the first
  {
    const WeightAverage before(after.optimizer, {.decay = 0.9});
    after.go(4);
  }
  WeightAverage next(after.optimizer, {.equal = true});
  CHECK(!next.averages()[0].defined());
  Run ahead;
  Lookahead three(ahead.optimizer, {.k = 3}), seven(ahead.optimizer, {.k = 7});
  ahead.go(2);
  CHECK(ahead.optimizer.state_dict().contains("0.slow_2"));
}

TEST_CASE("within a scope there is no other scope, no step and no loading, and each works again behind it") {
  Run run;
  WeightAverage one(run.optimizer, {.decay = 0.5}), two(run.optimizer, {.equal = true});
  run.go(3);
  const auto state = run.optimizer.state_dict();
  const std::string own = problem::bytes(run.p);
  {
    const WeightAverage::Scope outer(one);
    const char* const says = "the parameters hold those of EMA(decay=0.5) now, not their own values";
    CHECK_THROWS_WITH_AS((void)WeightAverage::Scope(one), doctest::Contains(says), ValueError);
    CHECK_THROWS_WITH_AS((void)WeightAverage::Scope(two), doctest::Contains("end the WeightAverage::Scope first"), ValueError);
    CHECK_THROWS_WITH_AS(run.optimizer.step(), doctest::Contains(says), ValueError);
    CHECK_THROWS_WITH_AS(run.optimizer.load_state_dict(state), doctest::Contains(says), ValueError);
    CHECK_THROWS_WITH_AS(two.copy_to_parameters(), doctest::Contains(says), ValueError);
  }
  CHECK(problem::bytes(run.p) == own);
  run.optimizer.load_state_dict(state);
  run.go(1);
}

TEST_CASE("averages refuse options out of range") {
  Run run;
  CHECK_THROWS_WITH_AS(static_cast<void>(WeightAverage(run.optimizer, {.decay = 1})),
                       "[WeightAverage] decay must be in [0, 1), got 1", ValueError);
  CHECK_THROWS_WITH_AS(static_cast<void>(WeightAverage(run.optimizer, {.every = 0})), "[WeightAverage] every must be >= 1, got 0",
                       ValueError);
  CHECK_THROWS_WITH_AS(static_cast<void>(Lookahead(run.optimizer, {.k = 0})), "[Lookahead] k must be >= 1, got 0", ValueError);
}

TEST_CASE("a group that is added beside Lookahead begins with its own weights, not with zeros") {
  Run run;
  Lookahead slow(run.optimizer, {.k = 2, .alpha = 0.5});
  run.go(1);
  const Tensor later = problem::parameter();
  run.optimizer.add_param_group({.params = {later}, .lr = 0.05});
  double begin = problem::start(0), fast = begin;
  for (int t = 0; t < 4; ++t) {
    problem::set_gradient(run.p, t);
    problem::set_gradient(later, t);
    run.optimizer.step();
    fast -= 0.05 * problem::gradient(0, t, fast);
    if (t % 2 == 1) fast = begin += 0.5 * (fast - begin);
    CHECK(first(later) == doctest::Approx(fast).epsilon(1e-6));
  }
}
