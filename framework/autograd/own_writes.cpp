// SPDX-License-Identifier: Apache-2.0
#include "framework/autograd/own_writes.h"

#include <memory>
#include <mutex>
#include <unordered_map>

#include "framework/base/fork_mutex.h"
#include "framework/tensor/storage.h"

namespace halfstep {
namespace {

struct OwnWrites {
  struct Entry {
    std::weak_ptr<Storage> storage;  // expired: another storage may have its address
    uint64_t count = 0;
  };
  ForkMutex mutex;
  std::unordered_map<const Storage*, Entry> entries;
};
OwnWrites& own_writes() {
  static OwnWrites& writes = *new OwnWrites;
  return writes;
}

}  // namespace

void count_own_writes(WriteLog& log, std::span<const Tensor> used) {
  for (const Tensor& t : used) {
    const uint64_t count = t.defined() ? log.take(t) : 0;
    if (count == 0) continue;
    OwnWrites& writes = own_writes();
    const std::lock_guard lock(writes.mutex);
    std::erase_if(writes.entries, [](const auto& entry) { return entry.second.storage.expired(); });
    OwnWrites::Entry& entry = writes.entries[t.storage().get()];
    entry = {t.storage(), entry.count + count};
  }
}

uint64_t version_without_own_writes(const Tensor& t) {
  OwnWrites& writes = own_writes();
  const std::lock_guard lock(writes.mutex);
  const auto at = writes.entries.find(t.storage().get());
  return t.version() - (at != writes.entries.end() && !at->second.storage.expired() ? at->second.count : 0);
}

}  // namespace halfstep
