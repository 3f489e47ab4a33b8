// SPDX-License-Identifier: Apache-2.0
// Finds data races in kernels: these are compiled with -fsanitize=thread but linked with the hooks below instead of libtsan.
// CUDA's order is regular enough to need no vector clocks. Two accesses to a byte, one of them a write, are in order when made
//   by one thread | by one block with a block barrier between | by one warp with a warp barrier between | both atomically |
//   by two blocks, the first released by fence + atomic and the second having acquired by atomic + fence.
// Remembered of a byte: its last write and up to three reads. A race is reported once for each pair of code locations; the
// program then ends with status 66.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "tests/emulators/source/hooks.h"

namespace emu {
namespace {

constexpr int kMostReports = 20;

struct Access {
  uint32_t launch = 0, block = 0, epoch = 0, warp_epoch = 0;
  int16_t thread = -1;
  bool atomic = false;
  void* code = nullptr;  // null: no access
};
struct Byte {
  Access write, reads[3];
};
constexpr uintptr_t kPageBytes = 512;
struct Page {
  Byte bytes[kPageBytes];
};

std::unordered_map<uintptr_t, Page*> pages;  // never freed: memory comes back at the same addresses
uintptr_t last_key = ~uintptr_t(0);
Page* last_page;

// What a block has released: what its threads did before their last block barrier, and behind it what the releasing thread did, or
// its warp before a warp barrier. Of several threads that release without a barrier between them, all.
struct Release {
  uint32_t epoch, warp_epoch;
  int thread;

  static constexpr int kAll = -1;
  bool covers(const Access& a) const {
    if (a.epoch != epoch || thread == kAll) return a.epoch <= epoch;
    return a.thread == thread || (a.thread / 32 == thread / 32 && a.warp_epoch < warp_epoch);
  }
};
// By atomic variable, then block. By block: the releases that it has acquired from others.
using Epochs = std::unordered_map<uint32_t, Release>;
std::unordered_map<const void*, Epochs> released;
std::unordered_map<uint32_t, Epochs> acquired;
uint32_t sync_launch;

int races;

Byte& byte_at(uintptr_t address) {
  const uintptr_t key = address / kPageBytes;
  if (key != last_key) {
    Page*& page = pages[key];
    if (!page) page = new Page;
    last_key = key;
    last_page = page;
  }
  return last_page->bytes[address % kPageBytes];
}

void begin_launch() {
  if (sync_launch == where.launch) return;
  acquired.clear();
  released.clear();
  sync_launch = where.launch;
}

void raise(Epochs& epochs, uint32_t block, const Release& release) {
  Release& known = epochs.emplace(block, release).first->second;
  if (known.epoch < release.epoch) {
    known = release;
  } else if (known.epoch == release.epoch) {
    known.warp_epoch = std::max(known.warp_epoch, release.warp_epoch);
    if (known.thread != release.thread) known.thread = Release::kAll;
  }
}

bool in_order(const Access& before) {
  if (before.launch != where.launch) return true;
  if (before.block == where.block) {
    return before.thread == where.thread || before.epoch < where.epoch ||
           (before.thread / 32 == where.thread / 32 && before.warp_epoch < where.warp_epoch);
  }
  begin_launch();
  const auto mine = acquired.find(where.block);
  if (mine == acquired.end()) return false;
  const auto theirs = mine->second.find(before.block);
  return theirs != mine->second.end() && theirs->second.covers(before);
}

// "file:line" of a code address, by addr2line where that is installed.
std::string location(void* code) {
  Dl_info info;
  if (!dladdr(code, &info)) return "?";
  const auto offset = static_cast<char*>(code) - static_cast<char*>(info.dli_fbase) - 1;
  char command[512], text[256] = "";
  std::snprintf(command, sizeof command, "addr2line -s -e '%s' %#lx 2>/dev/null", info.dli_fname,
                static_cast<unsigned long>(offset));
  FILE* pipe = popen(command, "r");
  if (!pipe) return "?";
  const size_t n = fread(text, 1, sizeof text - 1, pipe);
  pclose(pipe);
  text[n] = 0;
  text[std::strcspn(text, "\n ")] = 0;
  return text[0] ? text : "?";
}

void report(const Access& before, const char* old_kind, const char* new_kind, void* code) {
  static std::set<std::pair<void*, void*>> seen;
  if (!seen.insert({before.code, code}).second || ++races > kMostReports) return;
  std::fprintf(stderr, "cuda_emu: RACE: %s by block %u thread %d at %s\n    and %s by block %u thread %d at %s\n", new_kind,
               where.block, where.thread, location(code).c_str(), old_kind, before.block, int(before.thread),
               location(before.code).c_str());
}

void access(const volatile void* p, size_t size, bool write, bool atomic, void* code) {
  const char* first = const_cast<const char*>(static_cast<const volatile char*>(p));
  if (!where.in_kernel || (first >= stacks_begin && first < stacks_end)) return;
  const Access now{where.launch, where.block, where.epoch, where.warp_epoch, int16_t(where.thread), atomic, code};
  const auto conflicts = [&](const Access& a) { return a.code && !(atomic && a.atomic) && !in_order(a); };
  for (size_t i = 0; i < size; ++i) {
    Byte& byte = byte_at(reinterpret_cast<uintptr_t>(first) + i);
    if (conflicts(byte.write)) report(byte.write, "a write", write ? "a write" : "a read", code);
    if (write) {
      for (Access& read : byte.reads) {
        if (conflicts(read)) report(read, "a read", "a write", code);
      }
      byte.write = now;
      continue;
    }
    // The newest, another thread of its block, and one of another block.
    Access* r = byte.reads;
    if (!r[0].code || r[0].launch != now.launch) {
      r[1] = r[2] = Access();
    } else if (r[0].block != now.block) {
      r[2] = r[0];
      r[1] = Access();
    } else if (r[0].thread != now.thread) {
      r[1] = r[0];
    }
    r[0] = now;
  }
}

struct AtExit {
  ~AtExit() {
    if (!races) return;
    std::fprintf(stderr, "cuda_emu: ERROR: %d racing pairs of code locations\n", races);
    std::_Exit(66);
  }
} at_exit;

}  // namespace

void race_forget(const void* p, size_t bytes) {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(p), end = begin + bytes;
  for (uintptr_t at = begin; at < end;) {
    const uintptr_t next = std::min(end, (at / kPageBytes + 1) * kPageBytes);
    const auto page = pages.find(at / kPageBytes);
    if (page != pages.end()) std::fill_n(page->second->bytes + at % kPageBytes, next - at, Byte());
    at = next;
  }
}
void race_release(const void* atomic) {
  begin_launch();
  Epochs& to = released[atomic];
  raise(to, where.block, {where.epoch, where.warp_epoch, where.thread});
  for (const auto& [block, release] : acquired[where.block]) raise(to, block, release);
}
void race_acquire(const void* atomic) {
  begin_launch();
  for (const auto& [block, release] : released[atomic]) raise(acquired[where.block], block, release);
}

}  // namespace emu

#define HERE __builtin_return_address(0)
using emu::access;

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void*, void*) {}
void __tsan_vptr_read(void*) {}
void __tsan_atomic_thread_fence(int) {}
void __tsan_atomic_signal_fence(int) {}

#define ACCESSES(n)                                                            \
  void __tsan_read##n(void* p) { access(p, n, false, false, HERE); }           \
  void __tsan_write##n(void* p) { access(p, n, true, false, HERE); }           \
  void __tsan_unaligned_read##n(void* p) { access(p, n, false, false, HERE); } \
  void __tsan_unaligned_write##n(void* p) { access(p, n, true, false, HERE); } \
  void __tsan_volatile_read##n(void* p) { access(p, n, false, false, HERE); }  \
  void __tsan_volatile_write##n(void* p) { access(p, n, true, false, HERE); }
ACCESSES(1) ACCESSES(2) ACCESSES(4) ACCESSES(8) ACCESSES(16) void __tsan_read_range(void* p, size_t n) {
  access(p, n, false, false, HERE);
}
void __tsan_write_range(void* p, size_t n) { access(p, n, true, false, HERE); }
void* __tsan_memcpy(void* to, const void* from, size_t n) {
  access(from, n, false, false, HERE);
  access(to, n, true, false, HERE);
  return memcpy(to, from, n);
}
void* __tsan_memset(void* p, int value, size_t n) {
  access(p, n, true, false, HERE);
  return memset(p, value, n);
}

#define ATOMICS(bits, T)                                                                          \
  T __tsan_atomic##bits##_load(const volatile T* p, int) {                                        \
    access(p, sizeof(T), false, true, HERE);                                                      \
    return *p;                                                                                    \
  }                                                                                               \
  void __tsan_atomic##bits##_store(volatile T* p, T v, int) {                                     \
    access(p, sizeof(T), true, true, HERE);                                                       \
    *p = v;                                                                                       \
  }                                                                                               \
  bool __tsan_atomic##bits##_compare_exchange_strong(volatile T* p, T* expected, T v, int, int) { \
    access(p, sizeof(T), true, true, HERE);                                                       \
    if (*p != *expected) {                                                                        \
      *expected = *p;                                                                             \
      return false;                                                                               \
    }                                                                                             \
    *p = v;                                                                                       \
    return true;                                                                                  \
  }
ATOMICS(8, uint8_t) ATOMICS(16, uint16_t) ATOMICS(32, uint32_t) ATOMICS(64, uint64_t)

}  // extern "C"
