#include "buffers.h"
#include "framework/base/check.h"

using namespace halfstep;
using namespace halfstep::testing;

TEST_CASE("the cpu backend is always there and says what it is") {
  CHECK(has_backend(Device::Type::cpu));
  CHECK(cpu().device_type() == Device::Type::cpu);
  const std::string text = cpu().describe();
  CHECK(text.find("thread") != std::string::npos);
  CHECK(text.find("bf16 matmul: ") != std::string::npos);
  CHECK(text.find('\n') == std::string::npos);
  cpu().synchronize();
}

TEST_CASE("an absent device says why") {
  if (has_backend(Device::Type::cuda)) return;
  CHECK_THROWS_WITH_AS(backend_for(Device::cuda), "[device] cuda:0 is not built in\nhelp: this version computes on the CPU only",
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
  CHECK(deterministic());
  set_deterministic(false);
  CHECK_FALSE(deterministic());
  set_deterministic(true);
}

TEST_CASE("host memory is memory") {
  const int from[3] = {1, 2, 3};
  int there[3] = {}, back[3] = {};
  cpu().copy_from_host(from, there, sizeof(from));
  cpu().copy_to_host(there, back, sizeof(back));
  CHECK(back[2] == 3);
  cpu().copy_to_host(nullptr, nullptr, 0);
}
