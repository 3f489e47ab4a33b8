// SPDX-License-Identifier: Apache-2.0
#include "framework/data/sets/generators.h"

#include <doctest/doctest.h>

#include <cmath>

#include "framework/base/check.h"
#include "framework/data/sets/digits.h"
#include "framework/data/sets/synthetic.h"
#include "framework/ops/ops.h"
#include "tests/io/files.h"
#include "tests/support/damaged_options.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

template <class D>
std::vector<float> sample(const D& data, int64_t i) {
  return data.batch(std::vector<int64_t>{i}).input.template to_vector<float>();
}

// A sample is its own, whatever the size of the set, and others have others.
template <class D, class Options>
void check_pure(Options o) {
  o.size = 40;
  const D all(o);
  o.size = 7;
  CHECK(sample(D(o), 6) == sample(all, 6));
  CHECK(sample(all, 6) != sample(all, 26));
  o.split = Split::test;
  CHECK(sample(D(o), 6) != sample(all, 6));
  o.split = Split::train, o.seed = 5;
  CHECK(sample(D(o), 6) != sample(all, 6));
  o.size = 0;
  CHECK(contains(message_of<ValueError>([&] { D{o}; }), "size must be in [1, 16777216], got 0"));
}

}  // namespace

TEST_CASE("generators refuse what would take gigabytes, whichever of their numbers it is") {
  constexpr int64_t kMost = int64_t(1) << 24;
  CHECK(contains(message_of<ValueError>([&] { SinesDataset({.size = kMost}); }), "[Sines] size (window + horizon) waves may be "));
  CHECK_THROWS_AS(SinesDataset({.window = kMost}), ValueError);
  CHECK_THROWS_AS(SinesDataset({.waves = kMost}), ValueError);
  CHECK_THROWS_AS(CopyTaskDataset({.wait = kMost}), ValueError);
  CHECK_THROWS_AS(AddingDataset({.length = kMost}), ValueError);
}

TEST_CASE("every option of every generated data set refuses what is outside its domain") {
  int tried = 0;
  const auto add = [&]<class D, class O>(const D* /*type*/, const O& usual) {
    tried += check_damaged("", usual, [](const O& options) { D made(options); });
  };
  add((SpiralsDataset*)nullptr, SpiralsOptions{.size = 4});
  add((SinesDataset*)nullptr, SinesOptions{.size = 4});
  add((CopyTaskDataset*)nullptr, CopyTaskOptions{.size = 4});
  add((AddingDataset*)nullptr, AddingOptions{.size = 4});
  add((DigitStripsDataset*)nullptr, DigitStripsOptions{.size = 4});
  add((DigitsDataset*)nullptr, DigitsOptions{.size = 4});
  add((RandomDataset*)nullptr, RandomOptions{.input_shape = {2}});
  CHECK(tried > 30);
}

TEST_CASE("generators: a sample is a function of seed, split and index") {
  check_pure<SpiralsDataset>(SpiralsOptions{});
  check_pure<SinesDataset>(SinesOptions{});
  check_pure<CopyTaskDataset>(CopyTaskOptions{});
  check_pure<AddingDataset>(AddingOptions{});
  check_pure<DigitStripsDataset>(DigitStripsOptions{});
}

TEST_CASE("Spirals: points lie on their arm") {
  const SpiralsDataset data({.size = 60, .arms = 3, .turns = 1, .noise = 0});
  CHECK(data.classes() == 3);
  for (int64_t i = 0; i < 60; ++i) {
    const auto p = sample(data, i);
    const double radius = std::hypot(p[0], p[1]);
    const double turns = std::atan2(p[1], p[0]) / 6.283185307 - radius - double(i % 3) / 3;
    if (radius > 1e-3) CHECK(std::abs(turns - std::round(turns)) < 1e-3);
    CHECK(data.target().data_ptr<int64_t>()[i] == i % 3);
  }
}

TEST_CASE("Sines: what comes next is the wave gone on") {
  const SinesDataset data({.size = 20, .window = 16, .horizon = 4, .waves = 1, .noise = 0});
  for (int64_t i = 0; i < 20; ++i) {  // x[t+1] + x[t-1] = 2 cos(step) x[t] of a sine
    const Batch b = data.batch(std::vector<int64_t>{i});
    std::vector<double> x = b.input.to_vector<double>();
    for (double y : b.target.to_vector<double>()) x.push_back(y);
    const size_t at = std::abs(x[3]) > 0.05 ? 3 : 5;
    const double twice = (x[at + 1] + x[at - 1]) / x[at];
    for (size_t t = 14; t + 1 < x.size(); ++t) CHECK(x[t + 1] + x[t - 1] == doctest::Approx(twice * x[t]).epsilon(1e-2));
  }
}

TEST_CASE("CopyTask: the symbols come again at the end") {
  const CopyTaskDataset data({.size = 50, .length = 3, .wait = 4, .symbols = 5});
  CHECK(data.input_shape() == Shape{10});
  CHECK(data.vocabulary() == 7);
  CHECK(data.classes() == 6);
  const Batch b = data.batch(std::vector<int64_t>{17});
  const auto x = b.input.to_vector<int>(), y = b.target.to_vector<int>();
  for (size_t t = 0; t < 10; ++t) {
    CHECK((t < 3 ? x[t] >= 1 && x[t] <= 5 : x[t] == (t == 6 ? 6 : 0)));
    CHECK(y[t] == (t < 7 ? 0 : x[t - 7]));
  }
}

TEST_CASE("Adding: the target is the sum of what is marked, one in each half") {
  const AddingDataset data({.size = 200, .length = 9});
  double squares = 0;
  for (int64_t i = 0; i < 200; ++i) {
    const auto x = sample(data, i);
    const double target = data.target().data_ptr<float>()[i];
    double sum = 0, marks[2] = {};
    for (size_t t = 0; t < 9; ++t) sum += x[2 * t] * x[2 * t + 1], marks[t >= 4] += x[2 * t + 1];
    CHECK(sum == doctest::Approx(target));
    CHECK(marks[0] == 1);
    CHECK(marks[1] == 1);
    squares += (target - 1) * (target - 1);
  }
  CHECK(squares / 200 == doctest::Approx(1.0 / 6).epsilon(0.25));
}

TEST_CASE("DigitStrips: digits side by side, and which they are") {
  const DigitStripsDataset data({.size = 30});
  CHECK(data.input_shape() == Shape{1, 28, 168});
  CHECK(data.classes() == 11);
  CHECK(data.label_sequences());
  bool few = false, many = false;
  for (int64_t i = 0; i < 30; ++i) {
    const Batch b = data.batch(std::vector<int64_t>{i});
    const auto labels = b.target.to_vector<int>();
    int digits = 0;
    while (digits < 6 && labels[size_t(digits)] >= 0) ++digits;
    for (int d = 0; d < 6; ++d) CHECK((d < digits ? labels[size_t(d)] >= 1 && labels[size_t(d)] <= 10 : labels[size_t(d)] == -1));
    CHECK(digits >= 3);
    few = few || digits == 3, many = many || digits == 6;
    double behind = 0;
    for (int y = 0; y < 28; ++y)
      for (int x = 28 * digits; x < 168; ++x) behind += b.input.data_ptr<float>()[y * 168 + x];
    CHECK(behind == 0);
  }
  CHECK(few);
  CHECK(many);
  // A strip of one digit is that digit.
  const DigitStripsDataset one({.size = 30, .min_digits = 1, .max_digits = 1});
  const DigitsDataset digits({.size = 2000});
  const Batch b = one.batch(std::vector<int64_t>{3});
  bool found = false;
  for (int64_t i = 0; i < 2000 && !found; ++i) {
    const Batch d = digits.batch(std::vector<int64_t>{i});
    found = (d.input - b.input).abs().max().item<double>() < 1e-6 && d.target.item<int>() + 1 == b.target.item<int>();
  }
  CHECK(found);
  CHECK(contains(message_of<ValueError>([] { DigitStripsDataset({.min_digits = 4, .max_digits = 3}); }),
                 "min_digits must be at most"));
}
