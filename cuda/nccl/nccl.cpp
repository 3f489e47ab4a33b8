#include "cuda/nccl/nccl.h"

#include <dlfcn.h>

#include <cstdlib>
#include <vector>

namespace halfstep::cuda {
namespace {

constexpr int kLeast = NCCL_VERSION(2, 14, 0), kBeyond = NCCL_VERSION(3, 0, 0);

std::string version_text(int v) {
  return std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." + std::to_string(v % 100);
}

std::vector<std::string> candidates() {
  if (const char* path = std::getenv("HALFSTEP_NCCL"); path && *path) return {path};
  std::vector<std::string> names;
#ifdef HALFSTEP_NCCL_PATH
  names.push_back(HALFSTEP_NCCL_PATH);
#endif
  names.push_back("libnccl.so.2");
  names.push_back("libnccl.so");
  return names;
}

int version_of(const Nccl& nccl) {
  int version = 0;
  return nccl.ncclGetVersion(&version) == ncclSuccess ? version : 0;
}

// Empty, or why this file does not serve.
std::string open(const std::string& path, Nccl& nccl) {
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) return dlerror();
  std::string problem;
#define HS_FIND(name)                                                    \
  nccl.name = reinterpret_cast<decltype(&::name)>(dlsym(handle, #name)); \
  if (!nccl.name && problem.empty()) problem = path + " has no " #name;
  HS_NCCL(HS_FIND)
#undef HS_FIND
  if (problem.empty()) {
    const int version = version_of(nccl);
    // Earlier numbers were made otherwise, and are smaller.
    if (version < kLeast || version >= kBeyond)
      problem = path + " is not of version 2.14 or later of 2, but says " + std::to_string(version);
  }
  if (!problem.empty()) dlclose(handle);  // otherwise open until the end
  return problem;
}

struct Found {
  Nccl nccl;
  std::string problem;  // empty: it is there
};

Found load() {
  Found found;
  for (const std::string& path : candidates()) {
    Nccl nccl;
    const std::string problem = open(path, nccl);
    if (problem.empty()) return {nccl, ""};
    found.problem += (found.problem.empty() ? "" : "; ") + problem;
  }
  return found;
}

}  // namespace

const Nccl* find_nccl(std::string& why) {
  static const Found found = load();
  why = found.problem;
  return found.problem.empty() ? &found.nccl : nullptr;
}

std::string nccl_version(const Nccl& nccl) { return "NCCL " + version_text(version_of(nccl)); }

}  // namespace halfstep::cuda
