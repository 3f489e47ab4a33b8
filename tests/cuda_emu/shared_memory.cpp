// A block's shared memory: each array an allocation of its own, poisoned, exactly as large as asked for, so that ASan sees one
// element too far.
#include <cstdlib>
#include <map>

#include "cuda/gpu.cuh"
#include "hooks.h"

namespace emu {
namespace {

constexpr size_t kMaxShared = 227 << 10;  // of an H200, static and dynamic together
constexpr size_t kMaxStaticShared = 48 << 10;

std::map<const void*, char*> arrays;
size_t static_bytes, dynamic_bytes;
char* dynamic_data;

// 0xFF bytes are NaN and -1: reading what was never written shows.
char* poisoned(size_t bytes) {
  char* p = static_cast<char*>(std::malloc(bytes));
  std::memset(p, 0xFF, bytes);
  race_forget(p, bytes);
  return p;
}

}  // namespace

void begin_shared_memory(size_t bytes) {
  if (bytes > kMaxShared) fail("%zu bytes of dynamic shared memory, more than %zu", bytes, kMaxShared);
  static_bytes = 0;
  dynamic_bytes = bytes;
  if (bytes) dynamic_data = poisoned(bytes);
}

void end_shared_memory() {
  for (auto& [key, data] : arrays) std::free(data);
  arrays.clear();
  std::free(dynamic_data);
  dynamic_data = nullptr;
}

void* shared_array(const void* key, size_t bytes) {
  InsideEmulator inside;
  char*& data = arrays[key];
  if (!data) {
    data = poisoned(bytes);
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
