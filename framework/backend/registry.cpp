// SPDX-License-Identifier: Apache-2.0
// The list of backends, and the number of threads of the CPU's.
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>

#include "framework/backend/backend.h"
#include "framework/backend/cores.h"
#include "framework/backend/cpu/cpu_backend.h"
#include "framework/backend/dnn.h"
#include "framework/backend/meta.h"
#include "framework/backend/observe.h"
#include "framework/backend/observed_backend.h"
#include "framework/base/check.h"
#include "framework/base/fork_mutex.h"
#include "framework/tensor/memory.h"

#ifdef HALFSTEP_WITH_CUDA
#include "cuda/backend.h"
#include "cuda/nvtx.h"
#endif

namespace halfstep {
namespace {

// Returns where the backend of a device is stored. Backends are never destroyed: tensors in static variables may outlive them.
std::atomic<Backend*>& slot(Device::Type type) {
  static std::atomic<Backend*> backends[kDeviceTypeCount];
  return backends[size_t(type)];
}

// Returns the CPU's backend, made on first use: other static objects may need it. It is never destroyed: threads and destructors of
// static objects may still compute when the process ends.
Backend& cpu_backend() {
  static Backend& instance = *make_cpu_backend().release();
  return instance;
}

Backend& meta_backend() {
  static Backend& instance = *make_meta_backend().release();
  return instance;
}

// Registers a device's backend on first use: a program that stays on the CPU does not pay for a GPU.
void start_device(Device device) {
  static constinit ForkMutex mutex;
  const std::lock_guard lock(mutex);
  if (slot(device.type)) return;
#ifdef HALFSTEP_WITH_CUDA
  cuda::register_backend();
#else
  fail<DeviceError>("device", device, " is not built in",
                    Help{"configure with -DHALFSTEP_CUDA=ON, which needs the CUDA toolkit's nvcc"});
#endif
}
[[maybe_unused]] const bool start_registered = (register_device_start(&start_device), true);
#ifdef HALFSTEP_WITH_CUDA
[[maybe_unused]] const bool ranges_shown = (cuda::show_ranges_to_profiler(), true);
#endif

std::atomic<int> thread_count{0};  // 0: all cores
std::atomic<bool> tf32{false}, dnn_benchmark{false}, splits_by_shape{false};  // splits_by_shape: by shapes alone
std::atomic<int64_t> dnn_workspace{DnnOptions{}.workspace};

// Returns how many processors the process may use at its start: a program may later bind its threads to cores. Does not read
// OpenMP's own number of threads, because the program sets that for its own loops.
int processors() {
  static const int count = omp_get_num_procs();
  return count;
}
[[maybe_unused]] const int processors_at_start = processors();

int default_thread_count() {
  static const int count = default_threads(std::getenv("OMP_NUM_THREADS"), processors(), cores_of_group());
  return count;
}

}  // namespace

Backend& backend_for(Device device) {
  if (Observing::any()) [[unlikely]] {
    if (Backend* const observed = Observing::backend_on(device)) return *observed;
  }
  return unobserved_backend(device);
}

Backend& unobserved_backend(Device device) {
  if (device.is_cpu()) return cpu_backend();
  if (device.is_meta()) return meta_backend();
  check<DeviceError>(device.index == 0, "device", device, " cannot be used: halfstep computes on the first GPU",
                     Help{"CUDA_VISIBLE_DEVICES chooses which GPU is the first"});
  Backend* backend = slot(device.type).load(std::memory_order_acquire);
  if (!backend) [[unlikely]] {
    start_device(device);
    backend = slot(device.type);
  }
  return *backend;
}

void register_backend(std::unique_ptr<Backend> backend) {
  const Device::Type type = backend->device_type();
  check<ValueError>(type == Device::Type::cuda, "device", "the ", name(type), " backend is built in");
  delete slot(type).exchange(backend.release());
}

bool has_backend(Device::Type type) {
  try {
    backend_for({type, 0});
    return true;
  } catch (const DeviceError&) { return false; }
}

void set_num_threads(int count) {
  check<ValueError>(count >= 0, "threads", "the number of threads must be positive, or 0 for all cores, got ", count);
  thread_count = count;
}

int num_threads() {
  const int chosen = thread_count.load(std::memory_order_relaxed);
  return chosen > 0 ? chosen : default_thread_count();
}

void set_threads_independent(bool on) { splits_by_shape = on; }
bool threads_independent() { return splits_by_shape.load(std::memory_order_relaxed); }

AuxLayout Backend::packed_layout(int64_t, int64_t, DType) const { return {}; }
void Backend::pack(InView, OutView) {}
bool Backend::gains_by_packing(int64_t, int64_t, int64_t, DType) const { return false; }
ConvWeightLayout Backend::laid_weight_layout(const ConvArgs&) const { return {}; }
void Backend::lay_weight(const ConvArgs&, InView, OutView) {}
void Backend::conv_laid(const ConvArgs& a, InView) { conv(a.x, a.weight, a.bias, a.window, a.groups, a.relu, a.out); }
void Backend::run_side_by_side(int64_t n, const std::function<void(int64_t)>& task) {
  for (int64_t i = 0; i < n; ++i) task(i);
}
int64_t Backend::parallel_chunks(int64_t, int64_t, DType) const { return 0; }

AuxLayout Backend::activation_aux(Activation activation, int64_t rows, int64_t columns, DType dtype) const {
  if (activation == Activation::gelu) return {{rows, columns}, dtype};
  return {};
}
int64_t Backend::product_row(int64_t, int64_t n, int64_t, DType) const { return n; }
bool Backend::adds_up_columns(DType) const { return false; }
void Backend::begin_recording(Generator&, std::span<const TensorView>) {
  fail<RecordingError>("record", describe(), " cannot record work for replay");
}
std::unique_ptr<Recording> Backend::end_recording() { return nullptr; }

void set_allow_tf32(bool on) { tf32 = on; }
bool allow_tf32() { return tf32.load(std::memory_order_relaxed); }

void set_dnn_options(const DnnOptions& options) {
  dnn_benchmark = options.benchmark;
  dnn_workspace = options.workspace;
}
DnnOptions dnn_options() { return {dnn_benchmark, dnn_workspace}; }

}  // namespace halfstep
