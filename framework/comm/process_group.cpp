// SPDX-License-Identifier: Apache-2.0
#include "framework/comm/process_group.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "framework/comm/launcher.h"
#include "framework/comm/plugin.h"

namespace halfstep {
namespace {

thread_local ProcessGroup* g_current = nullptr;  // ranks may be threads of one process

Tensor host_tensor(int64_t n, DType dtype) { return Tensor::empty({n}, {.dtype = dtype, .device = Device::cpu}); }

}  // namespace

ProcessGroup::~ProcessGroup() = default;

std::vector<std::vector<double>> ProcessGroup::gather(const std::vector<double>& mine) {
  const auto n = int64_t(mine.size());
  const Tensor from = host_tensor(n, DType::f64), to = host_tensor(n * size_, DType::f64);
  std::copy(mine.begin(), mine.end(), from.data_ptr<double>());
  wait(all_gather(from, to));
  std::vector<std::vector<double>> out;
  for (int r = 0; r < size_; ++r) out.emplace_back(to.data_ptr<double>() + r * n, to.data_ptr<double>() + (r + 1) * n);
  return out;
}

std::vector<std::string> ProcessGroup::gather(const std::string& mine) {
  int64_t longest = 0;
  std::vector<int64_t> lengths;
  for (const auto& length : gather(std::vector<double>{double(mine.size())})) lengths.push_back(int64_t(length[0]));
  for (const int64_t n : lengths) longest = std::max(longest, n);
  const Tensor from = host_tensor(longest, DType::u8), to = host_tensor(longest * size_, DType::u8);
  if (longest > 0) std::memset(from.data_ptr(), 0, size_t(longest));
  std::copy(mine.begin(), mine.end(), from.data_ptr<uint8_t>());
  wait(all_gather(from, to));
  std::vector<std::string> out;
  for (int r = 0; r < size_; ++r) {
    const uint8_t* text = to.const_data_ptr<uint8_t>() + r * longest;
    out.emplace_back(text, text + lengths[size_t(r)]);
  }
  return out;
}

std::unique_ptr<ProcessGroup> open_process_group(const GroupOptions& options) {
  const Launch launch = detect_launch();
  if (launch.size == 1) return nullptr;
  check<ConfigError>(
      launch.by_mpi || launch.meeting, "distributed", "WORLD_SIZE is ", launch.size, ", but nothing says where the ranks meet",
      Help{
          joined("mpirun -np ", launch.size, ", srun or torchrun --no-python start them all. Or give each process MASTER_ADDR and ",
                 "MASTER_PORT, where rank 0 listens, or HALFSTEP_RENDEZVOUS_FILE, a file on a disk that all see. Unset WORLD_SIZE ",
                 "and RANK to train alone")});
  return open_plugin_group(launch, options);
}

ProcessGroup* current_group() { return g_current; }
GroupScope::GroupScope(ProcessGroup* group) : saved_(std::exchange(g_current, group)) {}
GroupScope::~GroupScope() {
  if (ends_here("GroupScope")) (next() ? next()->saved_ : g_current) = saved_;
}

}  // namespace halfstep
