// SPDX-License-Identifier: Apache-2.0
#include "framework/data/sets/digits.h"

#include <doctest/doctest.h>

#include <cstring>

#include "framework/base/check.h"

using namespace halfstep;

namespace {

const uint8_t* image(const DigitsDataset& data, int64_t i) { return data.input().data_ptr<uint8_t>() + i * 784; }

}  // namespace

TEST_CASE("DigitsDataset: a sample is a function of seed, split and index") {
  const DigitsDataset a({.size = 40}), more({.size = 60}), other({.size = 40, .seed = 1}), test({.split = Split::test, .size = 40});
  CHECK(a.size() == 40);
  CHECK(a.classes() == 10);
  CHECK(a.input_shape() == Shape{1, 28, 28});
  for (int64_t i = 0; i < 40; ++i) {
    CHECK(std::memcmp(image(a, i), image(more, i), 784) == 0);
    CHECK(std::memcmp(image(a, i), image(other, i), 784) != 0);
    CHECK(std::memcmp(image(a, i), image(test, i), 784) != 0);
    CHECK(a.target().data_ptr<uint8_t>()[i] == i % 10);
  }
  CHECK(std::memcmp(image(a, 0), image(a, 10), 784) != 0);
}

TEST_CASE("DigitsDataset: ink is on paper, and scaled in batches") {
  const DigitsDataset data({.size = 200, .normalize = {.mean = 0.5, .std = 0.5}});
  double sum = 0;
  for (int64_t i = 0; i < 200; ++i) {
    int dark = 0;
    for (int p = 0; p < 784; ++p) dark += image(data, i)[p] > 100, sum += image(data, i)[p];
    CHECK(dark > 15);
    CHECK(dark < 300);
  }
  CHECK(sum / (200 * 784 * 255.0) > 0.08);
  CHECK(sum / (200 * 784 * 255.0) < 0.15);
  const Batch batch = data.batch(std::vector<int64_t>{3, 17});
  CHECK(batch.input.shape() == Shape{2, 1, 28, 28});
  CHECK(batch.input.data_ptr<float>()[100] == doctest::Approx(image(data, 3)[100] / 127.5 - 1));
  CHECK(batch.target.data_ptr<int64_t>()[1] == 7);
}

TEST_CASE("DigitsDataset: nearest neighbours mostly agree, not always" * doctest::test_suite("values")) {
  const DigitsDataset train({.size = 1000}), test({.split = Split::test, .size = 100});
  int right = 0;
  for (int64_t i = 0; i < 100; ++i) {
    int64_t best = -1;
    int64_t best_distance = INT64_MAX;
    for (int64_t j = 0; j < 1000; ++j) {
      int64_t distance = 0;
      for (int p = 0; p < 784; ++p) {
        const int d = image(test, i)[p] - image(train, j)[p];
        distance += d * d;
      }
      if (distance < best_distance) best_distance = distance, best = j;
    }
    right += best % 10 == i % 10;
  }
  CHECK(right >= 70);
  CHECK(right <= 99);
}
