// SPDX-License-Identifier: Apache-2.0
// Kernels in profiles, from a library in CUPTI's place.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <thread>

#include "cuda/kernel_trace.h"
#include "framework/backend/profile.h"
#include "tests/cuda/support.h"
#include "tests/emulators/source/behaviour.h"
#include "tests/emulators/source/runtime.h"

using namespace halfstep;
using namespace halfstep::testing;

TEST_CASE("cupti: every operation that a step launches is a kernel of the call that launched it") {
  const DefaultDevice on(Device::cuda);
  SmallStep step;
  step();
  for (int round = 0; round < 2; ++round) {  // of each profile, its own
    emu::Operations launched;
    ProfileScope profile(Device::cuda);
    REQUIRE(profile.no_kernels() == "");
    step();
    const std::vector<ProfileKernel> kernels = profile.kernels();
    std::multiset<std::string> want, got;
    for (const emu::Operation& o : launched.list) want.insert(o.name == "copy" ? "copy: host to device" : o.name);
    for (const ProfileKernel& k : kernels) got.insert(k.name);
    CHECK(got == want);
    CHECK(std::ranges::is_sorted(kernels, {}, &ProfileKernel::begin));
    std::set<std::string> layers;
    for (const ProfileKernel& k : kernels) {
      const ProfileSpan& of = profile.spans()[size_t(k.span)];
      if (k.name == "product") layers.insert(*of.layer + ' ' + of.name);
    }
    CHECK(layers == std::set<std::string>{"0 to 2 mlp"});
    CHECK(profile.kernels().size() == kernels.size());  // reading again adds none
  }
  // Without a profile nothing is recorded.
  step();
  cuda::KernelTrace later;
  CHECK(later.fault() == "");
  backend_for(Device::cuda).synchronize();
  for (const DeviceWork& w : later.read()) CHECK(w.name == "copy: host to device");  // of synchronize itself
}

TEST_CASE("cupti: work of other threads has no call; a second trace has no kernels") {
  const DefaultDevice on(Device::cuda);
  const Tensor x = randn({64});
  ProfileScope profile(Device::cuda);
  std::thread([&] {
    const Tensor there = x + 1;
    const ProfileScope second(Device::cuda);
    CHECK(second.no_kernels() == "another profile is open");
    backend_for(Device::cuda).synchronize();
  }).join();
  x.exp();
  const std::vector<ProfileKernel>& kernels = profile.kernels();
  REQUIRE(kernels.size() >= 2);
  CHECK(kernels.front().span == -1);
  CHECK(kernels.front().name.find("add") != std::string::npos);
  CHECK(kernels.back().span == 0);
  CHECK(kernels.back().name.find("exp") != std::string::npos);
}

TEST_CASE("cupti: a library under another profiler is left alone, and a profile says why it has no kernels") {
  const DefaultDevice on(Device::cuda);
  const Tensor x = randn({64});
  {
    const Behaviour busy("HALFSTEP_FAKE_CUPTI", "busy");
    ProfileScope profile(Device::cuda);
    CHECK(profile.no_kernels() == "CUPTI cannot watch this device: CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED");
    x.exp();
    CHECK(profile.kernels().empty());
    CHECK(profile.spans().size() == 1);
  }
  ProfileScope profile(Device::cuda);
  x.exp();
  CHECK(profile.kernels().size() == 1);
}

TEST_CASE("cupti: what there is") {
  ProfileScope profile(Device::cuda);
  MESSAGE("no kernels: ", profile.no_kernels());
  ones({3}, {.device = Device::cuda});
  CHECK(profile.kernels().empty() == !profile.no_kernels().empty());
}
