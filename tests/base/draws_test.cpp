// SPDX-License-Identifier: Apache-2.0
#include "framework/base/draws.h"

#include <doctest/doctest.h>

#include <string>
#include <thread>
#include <vector>

#include "framework/base/check.h"
#include "framework/base/draw_log.h"

using namespace halfstep;

TEST_CASE("draws: the parts of a batch take what the whole would, and leave the generator where it would") {
  Generator& g = default_generator();
  for (const int64_t each : {1, 3, 4, 10}) {  // numbers a row
    g.manual_seed(5);
    const Generator::State start = draw(g, each * 10).state, end = g.state();
    for (const auto& [first, rows] : {std::pair<int64_t, int64_t>{0, 3}, {3, 3}, {6, 2}, {8, 2}}) {
      g.manual_seed(5);
      const DrawsOf part(BatchRows{first, rows, 10});
      const Draw d = draw(g, each * rows);
      CHECK(int64_t(d.state.offset - start.offset) * 4 + d.skip == first * each);
      CHECK(d.skip < 4);
      CHECK(g.state() == end);
    }
  }
}

TEST_CASE("draws: what is not drawn row by row, and other generators, are as outside") {
  Generator own(5);
  default_generator().manual_seed(5);
  const DrawsOf part(BatchRows{4, 4, 8});
  CHECK(draw(own, 16).state.offset == 0);
  CHECK(own.state().offset == 4);
  CHECK(draw(default_generator(), 7).state.offset == 0);
  CHECK(default_generator().state().offset == 2);
  {
    const DrawsOf whole(std::nullopt);
    CHECK(!DrawsOf::current());
  }
  CHECK(DrawsOf::current()->first == 4);
}

namespace {

// What a computation draws: from two generators, one of which is its own, and with a new seed in between.
std::vector<Generator::State> draws_of(Generator& g) {
  std::vector<Generator::State> out{g.reserve(3), g.reserve(9)};
  Generator local(77);
  out.push_back(local.reserve(5));
  g.manual_seed(8);
  out.push_back(g.reserve(1));
  out.push_back(g.state());
  return out;
}

std::string words_of(Generator& g) {
  std::string out;
  for (int i = 0; i < 3; ++i) g.with_twister([&](Twister& t) { out += std::to_string(t.normal()) + ' '; });
  return out;
}

}  // namespace

TEST_CASE("draws: a log repeats them on any thread, and the generators do not move") {
  Generator g(5);
  g.reserve(40);
  DrawLog log;
  std::vector<Generator::State> first;
  {
    const DrawLog::Writing on(log);
    first = draws_of(g);
  }
  g.manual_seed(99);
  const Generator::State now = g.state();
  for (int pass = 0; pass < 2; ++pass) {
    std::thread([&] {
      const DrawLog::Repeating on(log);
      CHECK(draws_of(g) == first);
    }).join();
    CHECK(g.state() == now);
  }
}

TEST_CASE("draws: a log knows those that others made in between") {
  for (const GeneratorKind kind : {GeneratorKind::philox, GeneratorKind::mt19937}) {
    Generator g(5, kind);
    const auto draw_one = [&] { return kind == GeneratorKind::philox ? std::to_string(g.reserve(4).offset) : words_of(g); };
    DrawLog log;
    std::vector<std::string> first;
    {
      const DrawLog::Writing on(log);
      first.push_back(draw_one());
      std::thread(draw_one).join();  // not of the computation
      first.push_back(draw_one());
      first.push_back(draw_one());
    }
    CHECK(first[0] != first[1]);
    const DrawLog::Repeating on(log);
    for (const std::string& numbers : first) CHECK(draw_one() == numbers);
  }
}

TEST_CASE("draws: a log within a log, and a repetition within one") {
  Generator g(5);
  DrawLog outer, inner;
  Generator::State in_outer, in_inner, last;
  {
    const DrawLog::Writing on(outer);
    in_outer = g.reserve(4);
    const DrawLog::Writing on_too(inner);
    in_inner = g.reserve(4);
  }
  {
    const DrawLog::Repeating again(outer);
    CHECK(g.reserve(4) == in_outer);
    {
      const DrawLog::Repeating part(inner);
      CHECK(g.reserve(4) == in_inner);
    }
    CHECK(g.reserve(4) == in_inner);
    DrawLog third;  // of the repeated draws
    {
      const DrawLog::Writing on(third);
      last = g.reserve(4);
    }
    const DrawLog::Repeating thrice(third);
    CHECK(g.reserve(4) == last);
  }
  CHECK(g.state().offset == 2);
}

TEST_CASE("draws: a repetition refuses a generator that is gone, unless the computation made it") {
  DrawLog log;
  {
    Generator g(5);
    const DrawLog::Writing on(log);
    g.reserve(1);
  }
  CHECK_THROWS_WITH_AS(
      [&] { const DrawLog::Repeating on(log); }(),
      "[checkpoint] a generator is gone from which the forward drew, so backward cannot draw the same numbers again\n"
      "help: let the generator live until backward",
      ValueError);
  CHECK(Generator(5).reserve(1).offset == 0);  // nothing is left on
}
