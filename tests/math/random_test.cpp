// SPDX-License-Identifier: Apache-2.0
#include "framework/math/random.h"

#include <doctest/doctest.h>

#include <cmath>

#include "framework/base/generator.h"

using namespace halfstep;

// Known answers: zeros from Random123's kat_vectors (philox4x32 10); the others from its algorithm with the upper counter words 0.
TEST_CASE("philox known answers") {
  const auto check_block = [](uint64_t seed, uint64_t block, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    const math::Random4 r = math::philox(seed, block);
    CHECK(r.v[0] == a);
    CHECK(r.v[1] == b);
    CHECK(r.v[2] == c);
    CHECK(r.v[3] == d);
  };
  check_block(0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8);
  check_block(0x0123456789abcdef, 0xfedcba9876543210, 0x2c03a599, 0xd8a290fc, 0x4339955b, 0x8784c033);
  check_block(~uint64_t(0), ~uint64_t(0), 0x4d18d7d2, 0x430ac65a, 0xbd2fa22a, 0x0afae10d);
}

TEST_CASE("element i takes lane i % 4 of block offset + i / 4") {
  for (uint64_t i = 0; i < 9; ++i) CHECK(math::random_bits(5, 3, i) == math::philox(5, 3 + i / 4).v[i % 4]);
}

TEST_CASE("uniform numbers are multiples of 2^-24 below 1") {
  CHECK(math::uniform(0) == 0.0f);
  CHECK(math::uniform(0xff) == 0.0f);
  CHECK(math::uniform(0x100) == 0x1p-24f);
  CHECK(math::uniform(0xffffffff) == 1.0f - 0x1p-24f);
}

TEST_CASE("normal numbers are finite at the edges") {
  for (int lane = 0; lane < 4; ++lane) {
    CHECK(std::isfinite(math::normal({{0, 0, 0, 0}}, lane)));
    CHECK(std::isfinite(math::normal({{~0u, ~0u, ~0u, ~0u}}, lane)));
  }
}

TEST_CASE("a generator hands out blocks of four and never the same ones") {
  Generator g(7);
  CHECK(g.reserve(1) == Generator::State{7, 0});
  CHECK(g.reserve(4) == Generator::State{7, 1});
  CHECK(g.reserve(5) == Generator::State{7, 2});
  CHECK(g.reserve(0) == Generator::State{7, 4});
  CHECK(g.state() == Generator::State{7, 4});
  g.set_state({1, 2});
  CHECK(g.state() == Generator::State{1, 2});
  g.manual_seed(9);
  CHECK(g.state() == Generator::State{9, 0});
  manual_seed(11);
  CHECK(default_generator().state() == Generator::State{11, 0});
}
