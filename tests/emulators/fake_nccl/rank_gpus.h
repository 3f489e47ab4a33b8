// SPDX-License-Identifier: Apache-2.0
// A GPU for each rank that is a thread: ranks that shared the emulator's one stream would deadlock in it when their graphs
// exchange.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cuda/allocator.h"
#include "cuda/backend.h"
#include "framework/backend/backend.h"
#include "framework/comm/device_group.h"
#include "halfstep.h"
#include "tests/comm/local_ranks.h"

namespace halfstep::testing {

// Gives every thread that uses the device a separate stream and memory while it lives. Objects that a thread makes there must not
// be used by others, and must be destroyed before the thread ends.
class RankGpus {
 public:
  RankGpus() {
    // The library's memory for products is allocated once, on the usual device.
    const Tensor a = ones({4, 4}, {.device = Device::cuda});
    mm(a, a).to_vector<float>();
    usual_.empty_cache();  // the ranks could not use memory cached by other tests
    register_allocator(Device::Type::cuda, &memory_);
    register_backend(std::make_unique<Door>(*this));
  }
  ~RankGpus() {
    gpus_.clear();
    cuda::register_backend();
  }
  RankGpus(const RankGpus&) = delete;
  static std::chrono::milliseconds& synchronizing() {  // additional time of synchronising, for this thread
    thread_local std::chrono::milliseconds time{0};
    return time;
  }

 private:
  struct Gpu {
    cuda::CudaAllocator memory;
    std::unique_ptr<Backend> backend;
    ~Gpu() {
      backend.reset();
      memory.empty_cache();
    }
  };
  Gpu& mine() {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Gpu>& gpu = gpus_[std::this_thread::get_id()];
    if (!gpu) {
      gpu = std::make_unique<Gpu>();
      gpu->backend = cuda::make_backend(gpu->memory);
    }
    return *gpu;
  }

  struct Memory final : Allocator {
    explicit Memory(RankGpus& all) : all(all) {}
    void* allocate(size_t bytes, MemoryTag tag) override {
      Gpu& gpu = all.mine();
      void* const p = gpu.memory.allocate(bytes, tag);
      const std::lock_guard lock(all.mutex_);
      all.owners_[p] = &gpu.memory;
      return p;
    }
    void release(void* p) noexcept override { owner(p).release(p); }
    void retag(void* p, MemoryTag tag) noexcept override { owner(p).retag(p, tag); }
    MemoryStats stats() const override { return all.mine().memory.stats(); }
    void reset_peak() override { all.mine().memory.reset_peak(); }
    void empty_cache() override { all.mine().memory.empty_cache(); }
    Allocator& owner(void* p) {
      const std::lock_guard lock(all.mutex_);
      const auto at = all.owners_.find(p);
      return at == all.owners_.end() ? all.usual_ : *at->second;  // allocated before
    }
    RankGpus& all;
  };

  struct Door final : Backend, DeviceGroups {
    explicit Door(RankGpus& all) : all(all) {}
    Backend& mine() const { return *all.mine().backend; }
    DeviceGroups& groups() const { return dynamic_cast<DeviceGroups&>(mine()); }

    Device::Type device_type() const override { return Device::Type::cuda; }
    std::string describe() const override { return mine().describe(); }
    void synchronize() override {
      mine().synchronize();
      std::this_thread::sleep_for(synchronizing());
    }
    // Take turns: the libraries' plans belong to the process, under its one backend's lock.
#define HS_KERNEL(name, parameters, arguments) \
  void name parameters override {              \
    const std::lock_guard lock(kernels);       \
    mine().name arguments;                     \
  }
#include "framework/backend/kernels.def"
    void copy_from_host(const void* src, void* dst, size_t bytes) override { mine().copy_from_host(src, dst, bytes); }
    void copy_to_host(const void* src, void* dst, size_t bytes) override { mine().copy_to_host(src, dst, bytes); }
    std::unique_ptr<UploadLane> open_upload_lane() override { return mine().open_upload_lane(); }
    uint64_t host_reads() const override { return mine().host_reads(); }
    AuxLayout activation_aux(Activation activation, int64_t rows, int64_t columns, DType dtype) const override {
      return mine().activation_aux(activation, rows, columns, dtype);
    }
    int64_t product_row(int64_t m, int64_t n, int64_t k, DType dtype) const override { return mine().product_row(m, n, k, dtype); }
    bool adds_up_columns(DType dtype) const override { return mine().adds_up_columns(dtype); }
    int64_t check_targets(const TensorView& target, int64_t classes, int64_t ignore_index) override {
      return mine().check_targets(target, classes, ignore_index);
    }
    int64_t check_indices(const TensorView& index, int64_t size) override { return mine().check_indices(index, size); }
    bool can_record() const override { return true; }
    void begin_recording(Generator& generator, std::span<const TensorView> inputs) override {
      mine().begin_recording(generator, inputs);
    }
    std::unique_ptr<Recording> end_recording() override { return mine().end_recording(); }
    void abandon_recording() noexcept override { mine().abandon_recording(); }

    std::string why_no_group() override { return groups().why_no_group(); }
    std::string describe_library() override { return groups().describe_library(); }
    std::string device_identity() override { return groups().device_identity(); }
    std::unique_ptr<ProcessGroup> open_group(std::unique_ptr<ProcessGroup> host, const GroupOptions& options) override {
      return groups().open_group(std::move(host), options);
    }
    RankGpus& all;
    std::recursive_mutex kernels;
  };

  Allocator& usual_ = allocator(Device::cuda);
  std::mutex mutex_;
  std::map<std::thread::id, std::unique_ptr<Gpu>> gpus_;
  std::map<void*, Allocator*> owners_;
  Memory memory_{*this};
};

// Calls f(group) on each of `ranks` ranks, over the fake NCCL.
inline void on_gpus(int ranks, const std::function<void(ProcessGroup&)>& f, const GroupOptions& options = {}) {
  with_ranks(
      ranks,
      [&](std::unique_ptr<ProcessGroup> host) {
        f(*dynamic_cast<DeviceGroups&>(backend_for(Device::cuda)).open_group(std::move(host), options));
      },
      options);
}

// Returns the text of the error that f throws; empty if it throws none.
inline std::string said(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) { return e.what(); }
  return "";
}
inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace halfstep::testing
