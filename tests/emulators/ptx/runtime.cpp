// SPDX-License-Identifier: Apache-2.0
// What a program compiled by nvcc asks of the CUDA runtime to have its kernels launched: registration of its PTX and launches, here
// by the machine of this folder. Memory, streams, events and graphs are those of tests/emulators/source.
//   HALFSTEP_PTX_STATS=FILE   at the program's end: each kernel's launches, instructions, largest block, dynamic shared memory,
//                    name, and the lines of its PTX that ran and that did not
//   HALFSTEP_PTX_EDIT=FILE    a planted fault: a kernel's name, the number of a line of the PTX that has it, what that line is to
//   be
#include "tests/emulators/source/runtime.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/gpu.cuh"
#include "tests/emulators/ptx/program.h"
#include "tests/emulators/source/hooks.h"

namespace emu {
thread_local Where where;
const char *stacks_begin, *stacks_end;
void race_forget(const void*, size_t) {}
void race_release(const void*) {}
void race_acquire(const void*) {}
}  // namespace emu

namespace {

namespace ptx = halfstep::ptx;

struct DeviceMemory final : ptx::Memory {
  bool range_of(uint64_t address, uint64_t& begin, uint64_t& end) override { return emu::allocation_with(address, begin, end); }
} device_memory;

struct Image {
  std::string text;
  std::unique_ptr<ptx::Program> program;  // read when first needed
};
struct Registered {
  Image* image;
  std::string name;
  ptx::Kernel* kernel = nullptr;
  uint64_t launches = 0, instructions = 0;
  unsigned threads = 0;
  size_t shared = 0;
};
std::map<const void*, Registered>& registered() {
  static auto* const all = new std::map<const void*, Registered>;  // lives as long as what is done at the program's end
  return *all;
}
struct Configuration {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};
thread_local std::vector<Configuration> configurations;

// The fat binary's first PTX, which nvcc must not have compressed.
std::string_view ptx_of(const void* wrapper) {
  struct Wrapper {
    uint32_t magic, version;
    const char* data;
    const void* other;
  };
  const auto& w = *static_cast<const Wrapper*>(wrapper);
  if (w.magic != 0x466243b1) emu::fail("a fat binary that is not known");
  struct Header {
    uint32_t magic;
    uint16_t version, bytes;
    uint64_t size;
  };
  const auto& h = *reinterpret_cast<const Header*>(w.data);
  if (h.magic != 0xba55ed50) emu::fail("a fat binary's data that are not known");
  for (const char *p = w.data + h.bytes, *end = p + h.size; p < end;) {
    uint16_t kind;
    uint32_t bytes;
    uint64_t size;
    std::memcpy(&kind, p, 2);
    std::memcpy(&bytes, p + 4, 4);
    std::memcpy(&size, p + 8, 8);
    if (kind == 1) {
      std::string_view text(p + bytes, size);
      if (text.find(".version") == text.npos) emu::fail("compressed PTX: compile with --no-compress");
      return text.substr(0, text.find('\0'));
    }
    p += bytes + size;
  }
  emu::fail("a fat binary without PTX");
}

void plant_fault(std::string& text) {
  const char* name = std::getenv("HALFSTEP_PTX_EDIT");
  if (!name) return;
  std::ifstream file(name);
  std::string kernel, number, line;
  std::getline(file, kernel), std::getline(file, number), std::getline(file, line);
  if (text.find(".entry " + kernel + "(") == text.npos) return;
  size_t begin = 0;
  for (int k = std::atoi(number.c_str()); k > 1; --k) begin = text.find('\n', begin) + 1;
  text.replace(begin, text.find('\n', begin) - begin, line);
}

Registered& of(const void* function) {
  const auto it = registered().find(function);
  if (it == registered().end()) emu::fail("%p is no registered kernel", function);
  Registered& r = it->second;
  if (!r.kernel) {
    try {
      if (!r.image->program) plant_fault(r.image->text);
      if (!r.image->program) r.image->program = std::make_unique<ptx::Program>(r.image->text);
      r.kernel = r.image->program->kernel(r.name);
    } catch (const std::exception& e) { emu::fail("%s", e.what()); }
    if (!r.kernel) emu::fail("the PTX has no kernel %s", r.name.c_str());
  }
  return r;
}

void write_statistics() {
  const char* name = std::getenv("HALFSTEP_PTX_STATS");
  if (!name) return;
  if (FILE* file = std::fopen(name, "a")) {
    for (const auto& [function, r] : registered()) {
      if (!r.launches) continue;
      std::fprintf(file, "%llu\t%llu\t%u\t%zu\t%s", static_cast<unsigned long long>(r.launches),
                   static_cast<unsigned long long>(r.instructions), r.threads, r.shared, r.name.c_str());
      for (const bool ran : {true, false}) {
        std::fputc('\t', file);
        for (const int line : r.kernel->lines_run(ran)) std::fprintf(file, "%d ", line);
      }
      std::fputc('\n', file);
    }
    std::fclose(file);
  }
}

emu::Task task_of(const void* function, dim3 grid, dim3 block, size_t shared, std::vector<unsigned char> arguments) {
  Registered& r = of(function);
  const uint64_t threads = uint64_t(block.x) * block.y * block.z;
  const char* name = r.name.c_str();
  if (threads == 0 || threads > 1024 || block.z > 64) emu::fail("illegal block (%u,%u,%u) of %s", block.x, block.y, block.z, name);
  if (!grid.x || !grid.y || !grid.z || grid.x > 2147483647u || grid.y > 65535 || grid.z > 65535)
    emu::fail("illegal grid (%u,%u,%u) of %s", grid.x, grid.y, grid.z, name);
  if (r.kernel->max_threads() && threads > r.kernel->max_threads())
    emu::fail("%llu threads a block, but %s was compiled for %u", static_cast<unsigned long long>(threads), name,
              r.kernel->max_threads());
  if (r.kernel->static_shared() + shared > size_t(ptx::settings().static_and_dynamic_shared))
    emu::fail("%zu + %zu bytes of shared memory, more than a launch has without asking for more: %s", r.kernel->static_shared(),
              shared, name);
  emu::Task task;
  task.kernel = function;
  task.work = [=, &r, arguments = std::move(arguments)] {
    const emu::OpenDeviceMemory open;
    const uint64_t before = ptx::counts().thread_instructions;
    try {
      r.kernel->run({grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared, arguments, device_memory);
    } catch (const ptx::Fault& fault) { emu::fail("%s", fault.what()); }
    ++r.launches;
    r.instructions += ptx::counts().thread_instructions - before;
    r.threads = std::max(r.threads, unsigned(threads));
    r.shared = std::max(r.shared, shared);
  };
  task.with = [=, &r](const cudaKernelNodeParams& p) {
    return task_of(function, p.gridDim, p.blockDim, p.sharedMemBytes, r.kernel->gather(p.kernelParams));
  };
  return task;
}

cudaError_t launch(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared, cudaStream_t stream) {
  const emu::Lock lock(emu::runtime_mutex());
  std::vector<unsigned char> bytes = of(function).kernel->gather(arguments);
  return emu::set_error(emu::submit(stream, task_of(function, grid, block, shared, std::move(bytes))));
}

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) {
  static const bool at_end = (std::atexit(write_statistics), true);
  (void)at_end;
  return reinterpret_cast<void**>(new Image{std::string(ptx_of(wrapper)), nullptr});
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 0; }
void __cudaRegisterFunction(void** image, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*, int*) {
  registered()[host] = {reinterpret_cast<Image*>(image), name};
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  const Configuration c = configurations.back();
  configurations.pop_back();
  *grid = c.grid, *block = c.block, *shared = c.shared;
  *static_cast<cudaStream_t*>(stream) = c.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared, cudaStream_t stream) {
  return launch(kernel, grid, block, arguments, shared, stream);
}
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared, cudaStream_t stream) {
  return launch(function, grid, block, arguments, shared, stream);
}

}  // extern "C"
