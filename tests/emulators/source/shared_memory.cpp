// SPDX-License-Identifier: Apache-2.0
// A block's shared memory: each array an allocation of its own, poisoned. For ASan it is exactly as large as asked for; in the
// other modes some bytes follow, and writes to them are noticed when the block ends.
#include <cstdlib>
#include <map>

#include "cuda/gpu.cuh"
#include "tests/emulators/source/hooks.h"

namespace emu {
namespace {

constexpr size_t kMaxShared = 227 << 10;  // of an H200, static and dynamic together
constexpr size_t kMaxStaticShared = 48 << 10;

#ifdef __SANITIZE_ADDRESS__
constexpr size_t kGap = 0;
#else
constexpr size_t kGap = 256;
#endif

struct Array {
  char* data = nullptr;
  size_t bytes = 0;
};
std::map<const void*, Array> arrays;
size_t static_bytes, dynamic_bytes;
char* dynamic_data;

// 0xFF bytes are NaN and -1, so that reads of uninitialised memory are noticed.
char* poisoned(size_t bytes) {
  char* p = static_cast<char*>(std::malloc(bytes + kGap));
  std::memset(p, 0xFF, bytes);
  fill_gap(p + bytes, p + bytes + kGap);
  race_forget(p, bytes + kGap);
  return p;
}
void release(char* p, size_t bytes) {
  const ptrdiff_t past = p ? changed_in_gap(p + bytes, p + bytes + kGap) : -1;
  if (past >= 0) fail("a shared array of %zu bytes was written %td bytes past its end", bytes, past);
  std::free(p);
}

}  // namespace

void begin_shared_memory(size_t bytes) {
  if (bytes > kMaxShared) fail("%zu bytes of dynamic shared memory, more than %zu", bytes, kMaxShared);
  static_bytes = 0;
  dynamic_bytes = bytes;
  if (bytes) dynamic_data = poisoned(bytes);
}

void end_shared_memory() {
  for (auto& [key, array] : arrays) release(array.data, array.bytes);
  arrays.clear();
  release(dynamic_data, dynamic_bytes);
  dynamic_data = nullptr;
}

void* shared_array(const void* key, size_t bytes) {
  InsideEmulator inside;
  auto& [data, size] = arrays[key];
  if (!data) {
    data = poisoned(bytes);
    size = bytes;
    static_bytes += bytes;
    if (static_bytes > kMaxStaticShared) fail("%zu bytes of static shared memory, more than %zu", static_bytes, kMaxStaticShared);
    if (static_bytes + dynamic_bytes > kMaxShared) {
      fail("%zu bytes of shared memory, more than %zu", static_bytes + dynamic_bytes, kMaxShared);
    }
  }
  return data;
}

void* dynamic_shared(size_t alignment) {
  if (!dynamic_data) fail("dynamic shared memory is used, but the launch gives none");
  if (alignment > 16) fail("dynamic shared memory aligned to %zu bytes, more than 16", alignment);
  return dynamic_data;
}

}  // namespace emu
