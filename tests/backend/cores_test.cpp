// SPDX-License-Identifier: Apache-2.0
#include "framework/backend/cores.h"

#include <doctest/doctest.h>
#include <omp.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "framework/backend/backend.h"
#include "framework/ops/ops.h"

using namespace halfstep;

namespace {

namespace fs = std::filesystem;

// A machine's proc and sys.
struct Root {
  fs::path path = fs::temp_directory_path() / ("halfstep_cores_" + std::to_string(reinterpret_cast<uintptr_t>(this)));
  Root() { fs::remove_all(path); }
  ~Root() { fs::remove_all(path); }
  Root(const Root&) = delete;
  void write(const std::string& file, const std::string& text) const {
    fs::create_directories((path / file).parent_path());
    std::ofstream(path / file) << text;
  }
  int cores() const { return cores_of_group(path); }
};

}  // namespace

TEST_CASE("version 2 of control groups: the least limit of the group and of those around it") {
  const Root root;
  CHECK(root.cores() == 0);
  root.write("proc/self/cgroup", "0::/system.slice/docker-1.scope\n");
  CHECK(root.cores() == 0);
  root.write("sys/fs/cgroup/cpu.max", "max 100000\n");  // a container sees its own group at the top
  CHECK(root.cores() == 0);
  root.write("sys/fs/cgroup/cpu.max", "250000 100000\n");
  CHECK(root.cores() == 3);
  root.write("sys/fs/cgroup/system.slice/docker-1.scope/cpu.max", "100000 100000\n");
  CHECK(root.cores() == 1);
  root.write("sys/fs/cgroup/system.slice/cpu.max", "50000 200000\n");
  CHECK(root.cores() == 1);
  root.write("sys/fs/cgroup/system.slice/docker-1.scope/cpu.max", "nonsense\n");
  CHECK(root.cores() == 1);
}

TEST_CASE("version 1 of control groups: the quota by the period") {
  const Root root;
  root.write("proc/self/cgroup", "12:memory:/a\n4:cpu,cpuacct:/a\n1:name=systemd:/a\n0::/\n");
  CHECK(root.cores() == 0);
  root.write("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "-1\n");
  root.write("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
  CHECK(root.cores() == 0);
  root.write("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "400000\n");
  CHECK(root.cores() == 4);
  root.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "75000\n");
  root.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "50000\n");
  CHECK(root.cores() == 2);
}

TEST_CASE("the number of threads where nobody says it") {
  CHECK(default_threads(nullptr, 64, 0) == 64);
  CHECK(default_threads(nullptr, 64, 2) == 2);
  CHECK(default_threads(nullptr, 4, 8) == 4);
  CHECK(default_threads(nullptr, 0, 0) == 1);
  CHECK(default_threads("3", 64, 2) == 3);
  CHECK(default_threads(" 5,2", 64, 0) == 5);
  for (const char* none : {"", "abc", "0", "-2"}) CHECK(default_threads(none, 8, 0) == 8);
}

TEST_CASE("the program's number of OpenMP threads is its own") {
  const int before = omp_get_max_threads(), all = num_threads();
  omp_set_num_threads(5);
  CHECK(num_threads() == all);
  set_num_threads(3);
  CHECK(omp_get_max_threads() == 5);
  const Tensor x = ones({2, 64, 14, 14}), w = ones({64, 64, 3, 3});
  (void)matmul(ones({300, 300}), ones({300, 300}));
  (void)conv2d(x, w, {}, {.padding = 1});
  CHECK(omp_get_max_threads() == 5);
  set_num_threads(0);
  CHECK(omp_get_max_threads() == 5);
  omp_set_num_threads(before);
}
