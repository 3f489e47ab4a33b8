// SPDX-License-Identifier: Apache-2.0
// What a training step of the benchmarks' nets launches at their real sizes: how many operations a recorded step has, and whether
// every kernel that moves much memory has a block for each multiprocessor. The emulator computes nothing meanwhile, and has as many
// multiprocessors as an H200.
#include <doctest/doctest.h>

#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cuda/launches.h"
#include "examples/gpt2.h"
#include "examples/resnet18.h"
#include "tests/emulators/source/runtime.h"

namespace {

constexpr int kProcessors = 132;
constexpr size_t kMuch = size_t(10) << 20;
constexpr uint32_t kMostInt = 1 << 20;

const bool configured = [] {
  emu::counts_only = true;
  emu::options().processors = kProcessors;
  emu::options().memory = size_t(60) << 30;
  return true;
}();

// The device's memory, with the size of each block that is in use.
class SizedMemory final : public Allocator {
 public:
  void* allocate(size_t bytes, MemoryTag tag) override {
    void* const p = usual_.allocate(bytes, tag);
    bytes_[reinterpret_cast<uintptr_t>(p)] = bytes;
    return p;
  }
  void release(void* p) noexcept override {
    bytes_.erase(reinterpret_cast<uintptr_t>(p));
    usual_.release(p);
  }
  void retag(void* p, MemoryTag tag) noexcept override { usual_.retag(p, tag); }
  MemoryStats stats() const override { return usual_.stats(); }
  void reset_peak() override { usual_.reset_peak(); }
  void empty_cache() override { usual_.empty_cache(); }

  // The block that the address lies in, as its beginning and size; 0 bytes: none.
  std::pair<uintptr_t, size_t> block_with(uintptr_t address) const {
    auto at = bytes_.upper_bound(address);
    if (at == bytes_.begin()) return {};
    --at;
    if (address >= at->first + at->second) return {};
    return *at;
  }

 private:
  Allocator& usual_ = allocator(Device::cuda);
  std::map<uintptr_t, size_t> bytes_;
};

SizedMemory& sized_memory() {
  static SizedMemory* const memory = [] {
    backend_for(Device::cuda);  // which registers its own memory
    auto* const made = new SizedMemory;
    register_allocator(Device::Type::cuda, made);
    return made;
  }();
  return *memory;
}

// The kernels that this thread launches while it lives, in order. `bytes`: of all tensors that the arguments point to.
class Census final : public cuda::LaunchWatcher {
 public:
  struct Kernel {
    std::string name;
    size_t blocks, bytes;
  };

  Census() { cuda::launch_watcher = this; }
  ~Census() { cuda::launch_watcher = nullptr; }
  Census(const Census&) = delete;

  void launched(const cuda::KernelLaunch& l) override {
    std::set<std::pair<uintptr_t, size_t>> tensors;
    for (size_t i = 0; i < l.count; ++i) {
      for (size_t at = 0; at + sizeof(uintptr_t) <= l.sizes[i]; at += sizeof(uintptr_t)) {
        uintptr_t word;
        std::memcpy(&word, static_cast<const char*>(l.arguments[i]) + at, sizeof word);
        // An int and the padding behind it, where half of an old pointer may lie, look like an address near a multiple of 4 GiB.
        if (uint32_t(word) >= kMostInt) tensors.insert(sized_memory().block_with(word));
      }
    }
    size_t bytes = 0;
    for (const auto& [begin, size] : tensors) bytes += size;
    kernels.push_back({emu::kernel_name(l.kernel), size_t(l.grid.x) * l.grid.y * l.grid.z, bytes});
  }
  void uses_fixed(const void*) override {}

  std::vector<Kernel> kernels;
};

struct Net {
  std::shared_ptr<Module> module;
  std::shared_ptr<Loss> loss;
  Tensor input, target;
};

Tensor on_device(const Shape& shape, DType dtype = DType::f32) { return empty(shape, {.dtype = dtype, .device = Device::cuda}); }

Net mlp(int64_t width, int64_t batch) {
  auto net = std::make_shared<Sequential>(std::make_shared<Linear>(width, width), std::make_shared<ReLU>(),
                                          std::make_shared<Linear>(width, width), std::make_shared<ReLU>(),
                                          std::make_shared<Linear>(width, width));
  return {net, std::make_shared<MSELoss>(), on_device({batch, width}), on_device({batch, width})};
}
Net resnet18(int64_t batch, MemoryFormat format) {
  auto net = std::make_shared<ResNet18>();
  net->to(format);
  return {net, std::make_shared<CrossEntropyLoss>(), on_device({batch, 3, 224, 224}).to(format), on_device({batch}, DType::i64)};
}
Net gpt2(int64_t batch) {
  const auto loss = std::make_shared<FunctionLoss>(
      "NextToken", [](const Tensor& logits, const Tensor& next, const Tensor& seed) {
        return cross_entropy(logits.flatten(0, 1), next.flatten(), {}, seed);
      });
  const Tensor ids = on_device({batch, 1024}, DType::i64);
  return {std::make_shared<Gpt2>(GptConfig{.dropout = 0}), loss, ids, ids};
}
Net lstm() {
  return {std::make_shared<LSTM>(1024, 1024, LSTMOptions{.num_layers = 2}), std::make_shared<MSELoss>(), on_device({128, 64, 1024}),
          on_device({128, 64, 1024})};
}

// A step as the benchmarks run it: in float16 under a scaler, or in bfloat16.
struct Step {
  Net net;
  SGD opt{net.module->parameters()};
  GradScaler scaler;
  TrainStep step;
  Step(Net made, DType dtype, GraphMode graph)
      : net(std::move(made)),
        scaler({.enabled = dtype == DType::f16}),
        step(*net.module, *net.loss, opt, scaler, nullptr, {.device = Device::cuda, .amp = dtype, .graph = graph}) {
    for (int i = 0; i < 6; ++i) step(net.input, net.target);
  }
};

struct Row {
  const char* name;
  Net (*make)();
  size_t operations;  // of a recorded step, with the products and what cuDNN does
  DType dtype = DType::f16;
};
const Row kRows[] = {
    {"MLP 4096, batch 4096", [] { return mlp(4096, 4096); }, 15},
    {"MLP 4096, batch 512", [] { return mlp(4096, 512); }, 15},
    {"ResNet-18, batch 64", [] { return resnet18(64, MemoryFormat::contiguous); }, 201},
    {"ResNet-18, batch 64, channels_last", [] { return resnet18(64, MemoryFormat::channels_last); }, 208},
    {"LSTM 2 x 1024", [] { return lstm(); }, 18},
    {"GPT-2 small, batch 8", [] { return gpt2(8); }, 314},
    {"GPT-2 small, batch 8, bfloat16", [] { return gpt2(8); }, 335, DType::bf16},
};

}  // namespace

TEST_CASE("a recorded step of each net has as many operations as the table says") {
  sized_memory();
  const DefaultDevice device(Device::cuda);
  for (const Row& row : kRows) {
    CAPTURE(row.name);
    Step step(row.make(), row.dtype, GraphMode::on);
    const emu::Operations all;
    step.step(step.net.input, step.net.target);
    std::map<std::string, int> times;
    size_t in_graph = 0;
    for (const emu::Operation& o : all.list) {
      ++times[o.name];
      in_graph += o.in_graph;
    }
    std::ostringstream text;
    for (const auto& [name, count] : times) text << "\n  " << count << " x " << name;
    CAPTURE(text.str());
    CHECK(all.list.size() == row.operations);
    CHECK(in_graph + 2 >= all.list.size());  // the batch may be copied to where the recording reads it
  }
}

TEST_CASE("a kernel that moves more than 10 MB has a block for each multiprocessor, and does not read elements one by one") {
  sized_memory();
  const DefaultDevice device(Device::cuda);
  for (const Row& row : kRows) {
    CAPTURE(row.name);
    Step step(row.make(), row.dtype, GraphMode::off);
    const Census census;
    step.step(step.net.input, step.net.target);
    CHECK(census.kernels.size() > 1);
    std::ostringstream text;
    for (const Census::Kernel& k : census.kernels) {
      const bool single = k.name.find("AnyRows") != std::string::npos || k.name.starts_with("any_kernel");
      if (k.bytes > kMuch && (single || k.blocks < kProcessors))
        text << "\n  " << k.name << ": " << k.blocks << " blocks, " << k.bytes << " bytes";
    }
    CHECK(text.str() == "");
  }
}

TEST_CASE("float32 gradients of weights in channels_last are converted from the library's float16 in one dense pass each") {
  sized_memory();
  const DefaultDevice device(Device::cuda);
  const Net net = resnet18(2, MemoryFormat::channels_last);
  const auto work = [&] {
    const Autocast region(Device::cuda, DType::f16);
    return (*net.loss)((*net.module)(net.input), net.target);
  };
  const Tensor loss = work();
  const Census census;
  loss.backward();
  int dense = 0, strided = 0;
  for (const Census::Kernel& k : census.kernels) {
    dense += k.name == "cast_kernel<__half, float>";
    strided += k.name.starts_with("any_kernel<(anonymous namespace)::Same") || k.name.starts_with("any_kernel<Same");
  }
  CHECK(dense >= 20);
  CHECK(strided == 0);
}
