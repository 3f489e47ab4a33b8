// Which backends there are, and how many threads the CPU's uses.
#include <omp.h>

#include <algorithm>
#include <atomic>

#include "framework/backend/backend.h"
#include "framework/backend/cpu/cpu_backend.h"
#include "framework/base/check.h"

namespace halfstep {
namespace {

std::unique_ptr<Backend>& slot(Device::Type type) {
  static std::unique_ptr<Backend> backends[kDeviceTypeCount];
  return backends[size_t(type)];
}

// The CPU's is always there, and made on first use: other static objects may ask for it.
Backend& cpu_backend() {
  static const std::unique_ptr<Backend> instance = make_cpu_backend();
  return *instance;
}

std::atomic<int> thread_count{0};  // 0: all cores
std::atomic<bool> fixed_order{true};

int core_count() {
  static const int count = std::max(1, omp_get_max_threads());  // honours OMP_NUM_THREADS
  return count;
}

}  // namespace

Backend& backend_for(Device device) {
  if (device.is_cpu()) return cpu_backend();
  Backend* b = slot(device.type).get();
  check<DeviceError>(b != nullptr, "device", device, " is not built in",
                     Help{"this version computes on the CPU only"});
  return *b;
}

void register_backend(std::unique_ptr<Backend> backend) {
  const Device::Type type = backend->device_type();
  check<ValueError>(type != Device::Type::cpu, "device", "the cpu backend is built in");
  slot(type) = std::move(backend);
}

bool has_backend(Device::Type type) { return type == Device::Type::cpu || slot(type) != nullptr; }

void set_num_threads(int n) {
  check<ValueError>(n >= 0, "threads", "the number of threads must be positive, or 0 for all cores, got ", n);
  core_count();  // before anything changes OpenMP's own setting
  thread_count = n;
  omp_set_num_threads(num_threads());
}

int num_threads() {
  const int n = thread_count.load(std::memory_order_relaxed);
  return n > 0 ? n : core_count();
}

void set_deterministic(bool on) { fixed_order = on; }
bool deterministic() { return fixed_order.load(std::memory_order_relaxed); }

}  // namespace halfstep
