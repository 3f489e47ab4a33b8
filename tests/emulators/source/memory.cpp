// SPDX-License-Identifier: Apache-2.0
// Memory of the emulated device and of its host, and copies. Device memory is one range without access rights outside kernels
// and copies: a host that touches it faults. HALFSTEP_EMU_GUARD=0 leaves what is used open, which is faster. HALFSTEP_EMU_MEMORY
// limits it. Writes behind an allocation show when it is freed. HALFSTEP_EMU_DIGEST=FILE: a hash of all bytes that the host copied
// from it goes to this file at the program's end.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <string_view>

#include "tests/emulators/source/hooks.h"
#include "tests/emulators/source/runtime.h"

#ifdef __SANITIZE_ADDRESS__
extern "C" {
void __asan_poison_memory_region(const volatile void* p, size_t bytes);
void __asan_unpoison_memory_region(const volatile void* p, size_t bytes);
}
#else
static void __asan_poison_memory_region(const volatile void*, size_t) {}
static void __asan_unpoison_memory_region(const volatile void*, size_t) {}
#endif

namespace emu {
namespace {

constexpr size_t kAddressSpace = size_t(64) << 30;
constexpr size_t kLargeCopy = size_t(1) << 20;   // which moves nothing where nothing is computed
constexpr size_t kGap = 256;                     // at least, behind each allocation: poisoned for ASan, else filled
constexpr size_t kReuseAfter = size_t(4) << 20;  // freed memory stays unused, to catch its late users, until so much is
constexpr size_t kHugePage = size_t(2) << 20;

using Blocks = std::map<char*, size_t>;
char* device;  // the whole range
size_t used;   // from its beginning: the part whose access rights change, beyond which nothing lives
size_t live_bytes;
Blocks live, pinned;
int opened;
const bool guarded = [] {
  const char* text = std::getenv("HALFSTEP_EMU_GUARD");
  return !text || std::string_view(text) != "0";
}();

size_t reserved_for(size_t bytes) { return (bytes + 255) / 256 * 256 + kGap; }

// For memory in use; the pages after it are never accessible.
void protect(int rights) {
  static size_t open_bytes = 0;  // without the guard
  const size_t bytes = (used + kHugePage - 1) / kHugePage * kHugePage;
  if (guarded) {
    mprotect(device, bytes, rights);
  } else if (bytes != open_bytes) {
    mprotect(device, open_bytes, PROT_NONE);
    mprotect(device, bytes, PROT_READ | PROT_WRITE);
    open_bytes = bytes;
  }
}

void reserve() {
  if (device) return;
  void* space = mmap(nullptr, kAddressSpace + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) fail("no address space for device memory");
  device = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(space) + kHugePage - 1) / kHugePage * kHugePage);
  madvise(device, kAddressSpace, MADV_HUGEPAGE);  // rights change often, and are kept by page
}

// A place for so many bytes: new, or where freed memory left a gap. Null when there is none.
char* place_for(size_t needed) {
  if (used > kReuseAfter) {
    char* at = device;
    for (const auto& [begin, bytes] : live) {
      if (size_t(begin - at) >= needed) return at;
      at = begin + reserved_for(bytes);
    }
    if (size_t(device + kAddressSpace - at) < needed) return nullptr;
    if (at + needed > device + used) used = size_t(at - device) + needed;
    return at;
  }
  if (needed > kAddressSpace - used) return nullptr;
  char* at = device + used;
  used += needed;
  return at;
}

// Changing the rights of much memory takes longer than a small kernel.
void give_back_the_end() {
  if (opened) return;
  size_t end = 0;
  if (!live.empty()) end = size_t(std::prev(live.end())->first - device) + reserved_for(std::prev(live.end())->second);
  used = std::min(used, std::max(end, kReuseAfter + 1));
}

// ASan has seen them already.
void check_gap([[maybe_unused]] const char* memory, [[maybe_unused]] size_t bytes) {
#ifndef __SANITIZE_ADDRESS__
  if (counts_only) return;
  const OpenDeviceMemory open;
  const ptrdiff_t past = changed_in_gap(memory + bytes, memory + reserved_for(bytes));
  if (past >= 0) fail("an allocation of %zu bytes was written %td bytes past its end", bytes, past);
#endif
}

bool on_device(const void* p) { return device && p >= device && p < device + kAddressSpace; }

const std::pair<char* const, size_t>* block_with(const Blocks& blocks, const void* p) {
  char* at = static_cast<char*>(const_cast<void*>(p));
  auto it = blocks.upper_bound(at);
  if (it == blocks.begin() || at >= (--it)->first + it->second + (it->second == 0)) return nullptr;
  return &*it;
}

void check_range(const char* call, const void* p, size_t bytes) {
  if (!on_device(p)) return;
  const auto* block = block_with(live, p);
  if (!block) fail("%s: %p is not in a live allocation", call, p);
  if (static_cast<const char*>(p) + bytes > block->first + block->second) {
    fail("%s: %zu bytes overrun an allocation of %zu bytes", call, bytes, block->second);
  }
}

// FNV-1a of what the host gets to see.
void add_to_digest(const void* p, size_t bytes) {
  static const char* const file = std::getenv("HALFSTEP_EMU_DIGEST");
  if (!file) return;
  static uint64_t digest = [] {
    std::atexit([] { add_to_digest(nullptr, 0); });
    return 0xcbf29ce484222325u;
  }();
  for (size_t i = 0; i < bytes; ++i) digest = (digest ^ static_cast<const unsigned char*>(p)[i]) * 0x100000001b3u;
  if (p) return;
  if (FILE* out = std::fopen(file, "w")) {
    std::fprintf(out, "%016llx\n", static_cast<unsigned long long>(digest));
    std::fclose(out);
  }
}

void copy_now(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (kind != cudaMemcpyDefault && bytes && (on_device(to) != to_device || on_device(from) != from_device)) {
    fail("cudaMemcpy: kind %d does not fit the pointers", int(kind));
  }
  check_range("cudaMemcpy to", to, bytes);
  check_range("cudaMemcpy from", from, bytes);
  if (counts_only && bytes >= kLargeCopy) return;
  const OpenDeviceMemory open;
  std::memmove(to, from, bytes);
  if (kind == cudaMemcpyDeviceToHost && bytes) add_to_digest(to, bytes);
}
void set_now(void* p, int value, size_t bytes) {
  check_range("cudaMemset", p, bytes);
  if (counts_only && bytes >= kLargeCopy) return;
  const OpenDeviceMemory open;
  std::memset(p, value, bytes);
}

bool pageable(const void* p) { return !on_device(p) && !block_with(pinned, p); }

}  // namespace

bool allocation_with(uint64_t address, uint64_t& begin, uint64_t& end) {
  const auto* block = block_with(live, reinterpret_cast<const void*>(address));
  if (!block) return false;
  begin = reinterpret_cast<uint64_t>(block->first);
  end = begin + block->second;
  return true;
}

void check_device_memory(const char* what, const void* p, size_t bytes) {
  if (!on_device(p)) fail("%s: %p is not in device memory", what, p);
  check_range(what, p, bytes);
}

OpenDeviceMemory::OpenDeviceMemory() {
  if (opened++ == 0 && device) protect(PROT_READ | PROT_WRITE);
}
OpenDeviceMemory::~OpenDeviceMemory() {
  if (--opened == 0 && device) protect(PROT_NONE);
}

}  // namespace emu

using namespace emu;

extern "C" {

cudaError_t cudaMalloc(void** p, size_t bytes) {
  const Lock lock(runtime_mutex());
  if (const cudaError_t refused = refuse_unsafe()) return refused;
  reserve();
  if (bytes > options().memory - live_bytes) return set_error(cudaErrorMemoryAllocation);
  char* memory = place_for(reserved_for(bytes));
  if (!memory) return set_error(cudaErrorMemoryAllocation);
  live_bytes += bytes;
  live[memory] = bytes;
  race_forget(memory, bytes);
  __asan_unpoison_memory_region(memory, reserved_for(bytes));
  const OpenDeviceMemory open;
  if (!counts_only) {
    std::memset(memory, 0xFF, bytes);
    fill_gap(memory + bytes, memory + reserved_for(bytes));
  }
  __asan_poison_memory_region(memory, reserved_for(bytes));
  __asan_unpoison_memory_region(memory, bytes);
  *p = memory;
  return cudaSuccess;
}
cudaError_t cudaFree(void* p) {
  const Lock lock(runtime_mutex());
  if (!p) return cudaSuccess;
  if (const cudaError_t refused = refuse_unsafe()) return refused;
  run_pending();
  const auto it = live.find(static_cast<char*>(p));
  if (it == live.end()) fail("cudaFree: %p is not a live allocation", p);
  check_gap(it->first, it->second);
  __asan_poison_memory_region(p, it->second);
  live_bytes -= it->second;
  live.erase(it);
  give_back_the_end();
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const Lock lock(runtime_mutex());
  *total = options().memory;
  *free = options().memory - live_bytes;
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** p, size_t bytes, unsigned) {
  const Lock lock(runtime_mutex());
  if (const cudaError_t refused = refuse_unsafe()) return refused;
  *p = std::malloc(bytes);
  if (!*p) return set_error(cudaErrorMemoryAllocation);
  pinned[static_cast<char*>(*p)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** p, size_t bytes) { return cudaHostAlloc(p, bytes, cudaHostAllocDefault); }
cudaError_t cudaFreeHost(void* p) {
  const Lock lock(runtime_mutex());
  if (!p) return cudaSuccess;
  if (const cudaError_t refused = refuse_unsafe()) return refused;
  run_pending();
  if (!pinned.erase(static_cast<char*>(p))) fail("cudaFreeHost: %p is not live pinned memory", p);
  std::free(p);
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* p) {
  const Lock lock(runtime_mutex());
  *attributes = {};
  const bool here = on_device(p);
  attributes->type = here ? cudaMemoryTypeDevice : block_with(pinned, p) ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
  attributes->device = attributes->type == cudaMemoryTypeUnregistered ? -2 : 0;
  attributes->devicePointer = here ? const_cast<void*>(p) : nullptr;
  attributes->hostPointer = attributes->type == cudaMemoryTypeHost ? const_cast<void*>(p) : nullptr;
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  const Lock lock(runtime_mutex());
  if (const cudaError_t refused = refuse_default_stream()) return refused;
  if (const cudaError_t refused = refuse_unsafe()) return refused;
  run_pending();
  copy_now(to, from, bytes, kind);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const Lock lock(runtime_mutex());
  const bool waits = pageable(to) || pageable(from);
  if (Stream& s = stream_of(stream); waits && s.capture) return refuse(s);
  return submit(stream, {.work = [=] { copy_now(to, from, bytes, kind); }, .what = "copy"}, waits);
}
cudaError_t cudaMemset(void* p, int value, size_t bytes) {
  const Lock lock(runtime_mutex());
  if (const cudaError_t refused = refuse_default_stream()) return refused;
  if (const cudaError_t refused = refuse_unsafe()) return refused;
  run_pending();
  set_now(p, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t stream) {
  const Lock lock(runtime_mutex());
  return submit(stream, {.work = [=] { set_now(p, value, bytes); }, .what = "fill"});
}

}  // extern "C"
