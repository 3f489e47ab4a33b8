// SPDX-License-Identifier: Apache-2.0
#include "framework/base/check.h"
#include "framework/ops/ops.h"
#include "tests/backend/buffers.h"

using namespace halfstep;
using namespace halfstep::testing;

TEST_CASE("the cpu backend is always there and says what it is") {
  CHECK(has_backend(Device::Type::cpu));
  CHECK(cpu().device_type() == Device::Type::cpu);
  const std::string text = cpu().describe();
  CHECK(text.find("thread") != std::string::npos);
  const bool fast = text.find(", products: oneDNN ") != std::string::npos;
  CHECK(fast == (text.find(", products: without oneDNN") == std::string::npos));
  CHECK(text.find(", bf16 ") != std::string::npos);
  CHECK(text.find(", f16 ") != std::string::npos);
  CHECK(text.find('\n') == std::string::npos);
#if defined(__x86_64__)
  for (const char* other : {"AArch64", "NEON", "BFMMLA", "Cortex", "portable"})
#else
  for (const char* other : {"x86", "AVX", "AMX"})
#endif
    CHECK_MESSAGE(text.find(other) == std::string::npos, text);
  cpu().synchronize();
}

TEST_CASE("an absent device says why") {
  if (has_backend(Device::Type::cuda)) return;
  try {
    backend_for(Device::cuda);
  } catch (const DeviceError& e) {
    const std::string text = e.what();
    const bool not_built = text.find("[device] cuda:0 is not built in\nhelp: configure with -DHALFSTEP_CUDA=ON") == 0;
    CHECK_MESSAGE((not_built || text.find("[device] cuda:0 is not available: ") == 0), text);
    CHECK(text.find("\nhelp: ") != std::string::npos);
  }
  CHECK_THROWS_WITH_AS(zeros({2}, {.device = Device::cuda}), doctest::Contains("[device] cuda:0 is not"), DeviceError);
}

TEST_CASE("a second GPU is refused with what to do") {
  CHECK_THROWS_WITH_AS(backend_for({Device::Type::cuda, 1}),
                       "[device] cuda:1 cannot be used: halfstep computes on the first GPU\n"
                       "help: CUDA_VISIBLE_DEVICES chooses which GPU is the first",
                       DeviceError);
}

TEST_CASE("threads") {
  const int all = num_threads();
  CHECK(all >= 1);
  set_num_threads(3);
  CHECK(num_threads() == 3);
  set_num_threads(0);
  CHECK(num_threads() == all);
  CHECK_THROWS_WITH_AS(set_num_threads(-1), "[threads] the number of threads must be positive, or 0 for all cores, got -1",
                       ValueError);
}

TEST_CASE("host memory is memory") {
  const int from[3] = {1, 2, 3};
  int there[3] = {}, back[3] = {};
  cpu().copy_from_host(from, there, sizeof(from));
  cpu().copy_to_host(there, back, sizeof(back));
  CHECK(back[2] == 3);
  cpu().copy_to_host(nullptr, nullptr, 0);
}
