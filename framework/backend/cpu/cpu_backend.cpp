// SPDX-License-Identifier: Apache-2.0
#include "framework/backend/cpu/cpu_backend.h"

#include <atomic>
#include <cstring>
#include <fstream>
#include <utility>

#include "framework/backend/cpu/gemm/gemm.h"
#include "framework/backend/cpu/kernels.h"
#include "framework/backend/cpu/parallel.h"
#include "framework/base/check.h"
#include "framework/base/float_state.h"
#include "framework/base/old_cpu.h"

namespace halfstep {
namespace {

// Returns the name of an ARM core by its "CPU implementer" and "CPU part".
std::string arm_core(const std::string& part) {
  static constexpr std::pair<const char*, const char*> kCores[] = {
      {"0x41 0xd03", "Cortex-A53"},  {"0x41 0xd05", "Cortex-A55"},   {"0x41 0xd07", "Cortex-A57"},  {"0x41 0xd08", "Cortex-A72"},
      {"0x41 0xd0b", "Cortex-A76"},  {"0x41 0xd0c", "Neoverse N1"},  {"0x41 0xd40", "Neoverse V1"}, {"0x41 0xd42", "Cortex-A78AE"},
      {"0x41 0xd49", "Neoverse N2"}, {"0x41 0xd4f", "Neoverse V2"},  {"0x41 0xd84", "Neoverse V3"}, {"0x46 0x001", "A64FX"},
      {"0x4e 0x004", "Carmel"},      {"0xc0 0xac3", "AmpereOne"}};
  for (const auto& [key, name] : kCores)
    if (part == key) return name;
  return "AArch64 CPU " + part;
}

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  std::string implementer, part;
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    if (line.starts_with("model name")) return line.substr(colon + 2);
    if (line.starts_with("CPU implementer")) implementer = line.substr(colon + 2);
    if (line.starts_with("CPU part")) part = line.substr(colon + 2);
  }
  return part.empty() ? "CPU" : arm_core(implementer + " " + part);
}

std::string instruction_set() {
#if defined(__x86_64__) && defined(__GNUC__)
#ifdef HALFSTEP_MULTIARCH
  if (__builtin_cpu_supports("x86-64-v4")) return "x86-64-v4 (AVX-512)";
  if (__builtin_cpu_supports("x86-64-v3")) return "x86-64-v3 (AVX2)";
  return "x86-64-v2";
#else
  return "as compiled";
#endif
#elif defined(__ARM_FEATURE_SVE)
  return "AArch64 (SVE)";
#elif defined(__aarch64__)
  return "AArch64 (NEON)";
#else
  return "portable";
#endif
}

class CpuBackend final : public Backend {
 public:
  Device::Type device_type() const override { return Device::Type::cpu; }
  std::string describe() const override {
    const int threads = num_threads();
    return cpu_name() + ", " + std::to_string(threads) + (threads == 1 ? " thread" : " threads") + ", loops " + instruction_set() +
           ", products: " + cpu::product_library() + ", bf16 " + cpu::product_support(DType::bf16) + ", f16 " +
           cpu::product_support(DType::f16);
  }
  void synchronize() override {}

#define HS_KERNEL(name, parameters, arguments) \
  void name parameters override { cpu::name arguments; }
#include "framework/backend/kernels.def"

  AuxLayout packed_layout(int64_t k, int64_t n, DType dtype) const override { return cpu::packed_layout(k, n, dtype); }
  void pack(InView b, OutView packed) override { cpu::pack(b, packed); }
  bool gains_by_packing(int64_t rows, int64_t k, int64_t n, DType dtype) const override {
    return cpu::gains_by_packing(rows, k, n, dtype);
  }
  ConvWeightLayout laid_weight_layout(const ConvArgs& args) const override { return cpu::laid_weight_layout(args); }
  void lay_weight(const ConvArgs& args, InView weight, OutView laid) override { cpu::lay_weight(args, weight, laid); }
  void conv_laid(const ConvArgs& args, InView laid) override { cpu::conv_laid(args, laid); }
  void run_side_by_side(int64_t n, const std::function<void(int64_t)>& task) override {
    cpu::parallel_tasks(n, n * cpu::kShare, task);
  }
  int64_t parallel_chunks(int64_t rows, int64_t multiplications, DType dtype) const override {
    return cpu::parallel_chunks(rows, multiplications, dtype);
  }

  int64_t check_targets(const TensorView& target, int64_t classes, int64_t ignore_index) override {
    return cpu::check_targets(target, classes, ignore_index);
  }
  int64_t check_indices(const TensorView& index, int64_t size) override { return cpu::check_indices(index, size); }

  void copy_from_host(const void* src, void* dst, size_t bytes) override {
    if (bytes > 0) std::memcpy(dst, src, bytes);
  }
  void copy_to_host(const void* src, void* dst, size_t bytes) override {
    ++host_reads_;
    if (bytes > 0) std::memcpy(dst, src, bytes);
  }
  uint64_t host_reads() const override { return host_reads_; }

 private:
  std::atomic<uint64_t> host_reads_{0};
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend() {
  stop_on_an_old_cpu();
  return std::make_unique<CpuBackend>();
}

}  // namespace halfstep
