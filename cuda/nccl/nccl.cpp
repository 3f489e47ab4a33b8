// SPDX-License-Identifier: Apache-2.0
#include "cuda/nccl/nccl.h"

#include "cuda/library.h"
#include "framework/base/check.h"
#include "framework/comm/process_group.h"

#ifndef HALFSTEP_NCCL_PATH  // the build's path
#define HALFSTEP_NCCL_PATH ""
#endif

namespace halfstep::cuda {
namespace {

constexpr int kOldestVersion = NCCL_VERSION(2, 14, 0), kFirstUnsupported = NCCL_VERSION(3, 0, 0);

int version_of(const Nccl& nccl) {
  int version = 0;
  return nccl.ncclGetVersion(&version) == ncclSuccess ? version : 0;
}

struct LoadedNccl {
  Nccl nccl;
  std::string problem;  // empty: the library exists
};

LoadedNccl load() {
  LoadedNccl found;
#define HS_FIND(name) HS_SYMBOL(found.nccl, name)
  found.problem =
      open_library("HALFSTEP_NCCL", {HALFSTEP_NCCL_PATH, "libnccl.so.2", "libnccl.so"}, {HS_NCCL(HS_FIND)}, [&]() -> std::string {
        const int version = version_of(found.nccl);
        if (version >= kOldestVersion && version < kFirstUnsupported) return "";
        // Earlier versions were numbered differently, with smaller numbers.
        return "is not of version 2.14 or later of 2, but says " + std::to_string(version);
      });
#undef HS_FIND
  return found;
}

}  // namespace

const Nccl* find_nccl(std::string& why) {
  static const LoadedNccl found = load();
  why = found.problem;
  return found.problem.empty() ? &found.nccl : nullptr;
}

NcclNumbers nccl_numbers(DType dtype, ReduceOp op) {
  const ncclRedOp_t reduction = op == ReduceOp::sum ? ncclSum : op == ReduceOp::max ? ncclMax : ncclMin;
  switch (dtype) {
    case DType::f16: return {ncclFloat16, reduction};
    case DType::bf16: return {ncclBfloat16, reduction};
    case DType::f32: return {ncclFloat32, reduction};
    case DType::f64: return {ncclFloat64, reduction};
    case DType::u8: return {ncclUint8, reduction};
    case DType::i8: return {ncclInt8, reduction};
    case DType::i32: return {ncclInt32, reduction};
    case DType::i64: return {ncclInt64, reduction};
    case DType::boolean: return {ncclUint8, op == ReduceOp::sum ? ncclMax : reduction};
    case DType::i16: break;
  }
  fail<DTypeError>("distributed", "NCCL does not add ", dtype, Help{"exchange it on the cpu, or as int32"});
}

std::string nccl_version(const Nccl& nccl) { return "NCCL " + library_version(size_t(version_of(nccl))); }

}  // namespace halfstep::cuda
