// SPDX-License-Identifier: Apache-2.0
// A profile of a step on the device has the device's times, and a recorded step cannot be profiled.
#include "framework/backend/profile.h"

#include <doctest/doctest.h>

#include "tests/cuda/support.h"

using namespace halfstep;
using namespace halfstep::testing;

TEST_CASE("spans have the device's times, in the order of its work") {
  const DefaultDevice on(Device::cuda);
  SmallStep step;
  step();
  {
    ProfileScope profile(Device::cuda);
    step();
    const std::vector<ProfileSpan>& spans = profile.spans();
    REQUIRE(spans.size() > 8);
    double last = 0, whole = 0, parts = 0;
    for (const ProfileSpan& s : spans) {
      CAPTURE(s.name);
      CHECK(s.device_begin >= last);
      CHECK(s.device_end >= s.device_begin);
      last = s.device_begin;
      if (s.kind == SpanKind::part) whole += s.seconds();
      if (s.depth == 0 && s.kind != SpanKind::part) parts += s.seconds();
    }
    CHECK(parts <= whole * 1.001);
    CHECK(whole > 0);
    const std::vector<ProfileKernel>& kernels = profile.kernels();
    if (profile.no_kernels().empty())
      CHECK(kernels.size() > 4);
    else
      MESSAGE("kernels are not listed: ", profile.no_kernels());
    for (const ProfileKernel& k : kernels) {
      CAPTURE(k.name);
      REQUIRE(k.span >= 0);
      CHECK(k.begin >= spans[size_t(k.span)].begin);  // a GPU runs nothing before it is launched
      CHECK(k.end >= k.begin);
    }
  }
  backend_for(Device::cuda).begin_recording(default_generator());
  const auto open = [] { const ProfileScope scope(Device::cuda); };
  CHECK_THROWS_WITH_AS(open(), doctest::Contains("calls that are being recorded cannot be timed"), RecordingError);
  CHECK_FALSE(Observing::any());
  backend_for(Device::cuda).abandon_recording();
}
