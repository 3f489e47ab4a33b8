// SPDX-License-Identifier: Apache-2.0
#include "apps/sweep/member_process.h"

#include <doctest/doctest.h>

#include <chrono>

using namespace halfstep::app;

TEST_CASE("sweep: a member that is paused ends with its object") {
  const auto began = std::chrono::steady_clock::now();
  {
    MemberProcess member({"/bin/sleep", "600"}, "/dev/null");
    CHECK(!member.exit_code().has_value());
    member.pause();
  }
  CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(60));
}
