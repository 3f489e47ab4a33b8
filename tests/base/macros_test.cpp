// SPDX-License-Identifier: Apache-2.0
// The public headers after macros that other libraries define: Qt's keywords, X11's constants, macOS's check, glog's, Windows'.
#include <doctest/doctest.h>

bool trains_and_slices();

TEST_CASE("a program with other libraries' macros uses halfstep") { CHECK(trains_and_slices()); }

#undef CHECK
#undef REQUIRE
#define slots
#define signals public
#define emit
#define foreach(a, b) for (a : b)
#define forever for (;;)
#define None 0L
#define Bool int
#define Status int
#define True 1
#define False 0
#define Always 2
#define Success 0
#define Unsorted 0
#define Above 0
#define Below 1
#define check(x)
#define verify(x)
#define require(x, y)
#define CHECK(x)
#define LOG(x)
#define DEBUG 1
#define ERROR 0
#define near
#define far
#define small char
#define interface struct
#define IN
#define OUT
#define OPTIONAL

#include "halfstep.h"

using namespace halfstep;

bool trains_and_slices() {
  Sequential net(Linear(4, 8), ReLU(), Linear(8, 2));
  SGD optimizer(net.parameters(), SGDOptions{.lr = 0.1});
  mse_loss(net(ones({3, 4})), zeros({3, 2})).backward();
  optimizer.step();
  // X11's None is 0, a place: a new dimension, and an open end of a slice, are nullopt.
  const Tensor x = ones({3, 4});
  return x.index({std::nullopt, indexing::Slice(std::nullopt, 2)}).shape() == Shape{1, 2, 4} && x.index({None}).shape() == Shape{4};
}
