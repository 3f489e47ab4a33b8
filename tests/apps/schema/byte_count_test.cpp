// SPDX-License-Identifier: Apache-2.0
#include "apps/schema/byte_count.h"

#include <doctest/doctest.h>

using namespace halfstep::app;

TEST_CASE("sizes in bytes, thousands and 1024s") {
  const std::pair<Json, int64_t> good[] = {{6, 6},
                                           {1.5e9, 1'500'000'000},
                                           {"6 GiB", int64_t(6) << 30},
                                           {"1.5GiB", int64_t(3) << 29},
                                           {"512 MB", 512'000'000},
                                           {"512 MiB", 512 << 20},
                                           {"20 kB", 20'000},
                                           {"20 KiB", 20 << 10},
                                           {"2 TB", 2'000'000'000'000},
                                           {"100", 100},
                                           {"100 bytes", 100},
                                           {"100 B", 100}};
  for (const auto& row : good) {
    CAPTURE(row.first.dump());
    REQUIRE(parse_byte_count(row.first).has_value());
    CHECK(parse_byte_count(row.first)->bytes == row.second);
  }
  const Json bad[] = {0,         -1,       0.5,       1e30,       true, "lots", "6 EB", "6 gib", "GiB", "6 GiB or so",
                      "6 7 GiB", "-6 GiB", "1e9 GiB", "6.5.2 GB", ""};
  for (const Json& value : bad) {
    CAPTURE(value.dump());
    CHECK_FALSE(parse_byte_count(value).has_value());
  }
}
