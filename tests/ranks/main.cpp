// SPDX-License-Identifier: Apache-2.0
// Tests of several processes. Run by mpirun -np N; each process runs all tests, and fails when its own checks do.
#define DOCTEST_CONFIG_IMPLEMENT
#include <cstdio>

#include "tests/ranks/ranks.h"

namespace halfstep::testing {
namespace {
ProcessGroup* g_group = nullptr;
}  // namespace
ProcessGroup& ranks() { return *g_group; }
}  // namespace halfstep::testing

int main(int argc, char** argv) {
  const auto group = halfstep::open_process_group({.timeout_s = 30});
  if (!group) {
    std::puts("SKIPPED: these tests are run by mpirun");
    return 0;
  }
  halfstep::testing::g_group = group.get();
  doctest::Context context(argc, argv);
  const int failed = context.run();
  if (failed == 0) group->close();
  return failed;
}
