// SPDX-License-Identifier: Apache-2.0
// Opens NCCL when ranks first exchange memory of their GPUs; a run of one process does not need it.
#pragma once

#include <nccl.h>

#include <cstdint>
#include <string>

#include "framework/base/dtype.h"

namespace halfstep {
enum class ReduceOp : uint8_t;
}

namespace halfstep::cuda {

#define HS_NCCL(F)          \
  F(ncclGetVersion)         \
  F(ncclGetErrorString)     \
  F(ncclGetLastError)       \
  F(ncclGetUniqueId)        \
  F(ncclCommInitRankConfig) \
  F(ncclCommFinalize)       \
  F(ncclCommDestroy)        \
  F(ncclCommAbort)          \
  F(ncclCommGetAsyncError)  \
  F(ncclGroupStart)         \
  F(ncclGroupEnd)           \
  F(ncclAllReduce)          \
  F(ncclReduceScatter)      \
  F(ncclAllGather)          \
  F(ncclBroadcast)          \
  F(ncclSend)               \
  F(ncclRecv)

// The functions in use, under their own names.
struct Nccl {
#define HS_MEMBER(name) decltype(&::name) name = nullptr;
  HS_NCCL(HS_MEMBER)
#undef HS_MEMBER
};

// Returns the library, or null and why there is none: version 2.14 or later of 2, which introduced calls that do not wait. It is
// the file in the environment variable HALFSTEP_NCCL, or else the one that the build or the loader finds.
const Nccl* find_nccl(std::string& why);

// How the library adds numbers of this dtype, or finds the largest or the smallest. The sum of booleans is their maximum. Throws
// DTypeError for int16, which the library lacks.
struct NcclNumbers {
  ncclDataType_t type;
  ncclRedOp_t op;
};
NcclNumbers nccl_numbers(DType dtype, ReduceOp op);

// Returns "NCCL 2.30.7".
std::string nccl_version(const Nccl& nccl);

}  // namespace halfstep::cuda
