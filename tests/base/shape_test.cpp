// SPDX-License-Identifier: Apache-2.0
#include "framework/base/shape.h"

#include <doctest/doctest.h>

#include <sstream>

#include "framework/base/check.h"

using namespace halfstep;

TEST_CASE("Dims is a short list") {
  Dims d{2, 3};
  d.push_back(5);
  d.insert(1, 7);
  CHECK(d == Dims{2, 7, 3, 5});
  d.erase(0);
  CHECK(d == Dims{7, 3, 5});
  CHECK(d.back() == 5);
  CHECK_FALSE(d == Dims{7, 3});
  CHECK(Dims::filled(3, 1) == Dims{1, 1, 1});
  CHECK(Dims{}.empty());
  std::ostringstream out;
  out << d << Dims{};
  CHECK(out.str() == "[7, 3, 5][]");
}

TEST_CASE("negative indices of Dims count from the end, and others beyond it are refused") {
  Dims d{2, 3, 5};
  CHECK(d[-1] == 5);
  CHECK(d[-3] == 2);
  d[-2] = 7;
  CHECK(d == Dims{2, 7, 5});
  CHECK_THROWS_WITH_AS(d[3], "[shape] an index must lie in [-3, 3), got 3 of [2, 7, 5]", IndexError);
  CHECK_THROWS_AS(d[-4], IndexError);
  CHECK_THROWS_AS(Dims{}[0], IndexError);
  CHECK_THROWS_AS(Dims{}.back(), IndexError);
  CHECK_THROWS_AS(d.erase(3), IndexError);
  CHECK_THROWS_AS(d.insert(4, 1), IndexError);
  d.erase(-1);
  CHECK(d == Dims{2, 7});
}

TEST_CASE("a batch has its samples' shape after its size") {
  CHECK(with_batch(5, {2, 3}) == Shape{5, 2, 3});
  CHECK(with_batch(0, {}) == Shape{0});
  CHECK(without_batch({5, 2, 3}) == Shape{2, 3});
  CHECK(without_batch({5}) == Shape{});
  CHECK(without_batch({}) == Shape{});
  CHECK_THROWS_AS(with_batch(1, Shape::filled(kMaxDims, 2)), ShapeError);
}

TEST_CASE("Dims holds at most eight") {
  Dims d = Dims::filled(8, 1);
  CHECK_THROWS_WITH_AS(d.push_back(1), "[shape] at most 8 dimensions", ShapeError);
  CHECK_THROWS_WITH_AS(Dims({1, 2, 3, 4, 5, 6, 7, 8, 9}), "[shape] at most 8 dimensions, got 9", ShapeError);
}

TEST_CASE("numel and contiguous strides") {
  CHECK(numel({}) == 1);
  CHECK(numel({3, 0, 2}) == 0);
  CHECK(numel({3, 4}) == 12);
  CHECK(contiguous_strides({2, 3, 4}) == Strides{12, 4, 1});
  CHECK(contiguous_strides({2, 0, 4}) == Strides{4, 4, 1});
  CHECK(contiguous_strides({}) == Strides{});
}

TEST_CASE("contiguity ignores dimensions of size 1 and empty tensors") {
  CHECK(is_contiguous({2, 3}, {3, 1}));
  CHECK_FALSE(is_contiguous({2, 3}, {1, 2}));
  CHECK(is_contiguous({1, 3}, {99, 1}));
  CHECK(is_contiguous({2, 0}, {7, 9}));
  CHECK_FALSE(is_contiguous({2, 3}, {0, 1}));
  CHECK(is_contiguous({}, {}));
}

TEST_CASE("broadcasting") {
  CHECK(broadcast({2, 3}, {2, 3}, "add") == Shape{2, 3});
  CHECK(broadcast({2, 1}, {3}, "add") == Shape{2, 3});
  CHECK(broadcast({}, {4, 1}, "add") == Shape{4, 1});
  CHECK(broadcast({0, 1}, {1, 5}, "add") == Shape{0, 5});
  CHECK_THROWS_WITH_AS(broadcast({2, 3}, {2, 4}, "add"),
                       "[add] shapes must broadcast, got [2, 3] and [2, 4]: dimension -1 is 3 against 4", ShapeError);
  CHECK(broadcast_strides({3}, {1}, {2, 3}) == Strides{0, 1});
  CHECK(broadcast_strides({2, 1}, {1, 1}, {2, 3}) == Strides{1, 0});
  CHECK(broadcast_strides({2, 3}, {1, 2}, {5, 2, 3}) == Strides{0, 1, 2});
}

TEST_CASE("wrap_dim") {
  CHECK(wrap_dim(-1, 3, "sum") == 2);
  CHECK(wrap_dim(2, 3, "sum") == 2);
  CHECK(wrap_dim(-1, 0, "sum") == 0);
  CHECK_THROWS_WITH_AS(wrap_dim(3, 3, "sum"), "[sum] dim must lie in [-3, 2], got 3", IndexError);
  CHECK_THROWS_WITH_AS(wrap_dim(-2, 0, "sum"), "[sum] dim must lie in [-1, 0], got -2", IndexError);
}
