#include "cuda/nccl/nccl.h"

#include "cuda/library.h"

#ifndef HALFSTEP_NCCL_PATH  // where the build found it
#define HALFSTEP_NCCL_PATH ""
#endif

namespace halfstep::cuda {
namespace {

constexpr int kLeast = NCCL_VERSION(2, 14, 0), kBeyond = NCCL_VERSION(3, 0, 0);

int version_of(const Nccl& nccl) {
  int version = 0;
  return nccl.ncclGetVersion(&version) == ncclSuccess ? version : 0;
}

struct Found {
  Nccl nccl;
  std::string problem;  // empty: it is there
};

Found load() {
  Found found;
#define HS_FIND(name) HS_SYMBOL(found.nccl, name)
  found.problem =
      open_library("HALFSTEP_NCCL", {HALFSTEP_NCCL_PATH, "libnccl.so.2", "libnccl.so"}, {HS_NCCL(HS_FIND)}, [&]() -> std::string {
        const int version = version_of(found.nccl);
        if (version >= kLeast && version < kBeyond) return "";
        // Earlier numbers were made otherwise, and are smaller.
        return "is not of version 2.14 or later of 2, but says " + std::to_string(version);
      });
#undef HS_FIND
  return found;
}

}  // namespace

const Nccl* find_nccl(std::string& why) {
  static const Found found = load();
  why = found.problem;
  return found.problem.empty() ? &found.nccl : nullptr;
}

std::string nccl_version(const Nccl& nccl) { return "NCCL " + library_version(size_t(version_of(nccl))); }

}  // namespace halfstep::cuda
