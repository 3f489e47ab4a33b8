// SPDX-License-Identifier: Apache-2.0
// Additions of fake_nccl.cpp: one at a time, each rounded, as in NCCL.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "cuda/nccl/nccl.h"
#include "framework/base/dtype.h"
#include "tests/emulators/source/emulator.h"

namespace emu {

// Adds as in a ring, where the sum of each part begins at another rank.
template <class T>
void reduce(const std::vector<const char*>& from, char* to, size_t count, int op) {
  for (size_t i = 0; i < count; ++i) {
    T sum, next;
    const size_t first = i * from.size() / count + 1;
    std::memcpy(&sum, from[first % from.size()] + i * sizeof(T), sizeof(T));
    for (size_t r = 1; r < from.size(); ++r) {
      std::memcpy(&next, from[(first + r) % from.size()] + i * sizeof(T), sizeof(T));
      sum = op == ncclSum ? T(sum + next) : op == ncclMax ? (sum < next ? next : sum) : (next < sum ? next : sum);
    }
    std::memcpy(to + i * sizeof(T), &sum, sizeof(T));
  }
}
inline void reduce(int type, const std::vector<const char*>& from, char* to, size_t count, int op) {
  switch (type) {
    case ncclInt8: return reduce<int8_t>(from, to, count, op);
    case ncclUint8: return reduce<uint8_t>(from, to, count, op);
    case ncclInt32: return reduce<int32_t>(from, to, count, op);
    case ncclInt64: return reduce<int64_t>(from, to, count, op);
    case ncclFloat16: return reduce<halfstep::f16>(from, to, count, op);
    case ncclFloat32: return reduce<float>(from, to, count, op);
    case ncclFloat64: return reduce<double>(from, to, count, op);
    case ncclBfloat16: return reduce<halfstep::bf16>(from, to, count, op);
    default: fail("NCCL: nothing here adds numbers of type %d", type);
  }
}

}  // namespace emu
