// SPDX-License-Identifier: Apache-2.0
#include "framework/data/loading/permutation.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "framework/base/check.h"
#include "tests/io/files.h"

using namespace halfstep;
using namespace halfstep::testing;

TEST_CASE("permutation: every number once, the same for the same arguments") {
  for (int64_t n : {0, 1, 2, 17, 1000}) {
    std::vector<int64_t> p = permutation(n, 5);
    CHECK(p == permutation(n, 5));
    std::sort(p.begin(), p.end());
    for (int64_t i = 0; i < n; ++i) CHECK(p[size_t(i)] == i);
    CHECK(int64_t(p.size()) == n);
  }
  CHECK(permutation(100, 5) != permutation(100, 6));
  CHECK(permutation(100, 5, 0) != permutation(100, 5, 1));
  CHECK_THROWS_AS(permutation(-1, 0), ValueError);
}

TEST_CASE("permutation: the numbers of today are those of tomorrow") {
  // Computed once; a change here breaks the resumption of every run that shuffles.
  CHECK(permutation(10, 0, 0) == std::vector<int64_t>{9, 8, 0, 1, 5, 3, 4, 2, 6, 7});
  CHECK(permutation(10, 1, 7) == std::vector<int64_t>{0, 1, 3, 4, 6, 9, 5, 2, 7, 8});
}

TEST_CASE("permutation: all orders are equally likely") {
  std::map<std::vector<int64_t>, int> count;
  for (uint64_t epoch = 0; epoch < 24000; ++epoch) ++count[permutation(4, 9, epoch)];
  CHECK(count.size() == 24);
  double chi2 = 0;
  for (const auto& [order, n] : count) chi2 += (n - 1000.0) * (n - 1000.0) / 1000;
  CHECK(chi2 < 49.7);  // 23 degrees of freedom, p = 0.001
}
