#include "cuda/blas/cublaslt.h"

#include <dlfcn.h>

#include <cstdlib>
#include <vector>

#include "framework/base/check.h"

namespace halfstep::cuda {
namespace {

std::string version_text(size_t v) {
  return std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." + std::to_string(v % 100);
}

std::vector<std::string> candidates() {
  std::vector<std::string> names;
  if (const char* path = std::getenv("HALFSTEP_CUBLASLT"); path && *path) names.push_back(path);
#ifdef HALFSTEP_CUBLASLT_PATH
  names.push_back(HALFSTEP_CUBLASLT_PATH);
#endif
  names.push_back("libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR));
  names.push_back("libcublasLt.so");
  return names;
}

// Empty, or why this file does not serve.
std::string open(const std::string& path, CublasLt& lt) {
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) return dlerror();
  std::string problem;
#define HS_FIND(name)                                                  \
  lt.name = reinterpret_cast<decltype(&::name)>(dlsym(handle, #name)); \
  if (!lt.name) problem = path + " has no " #name;
  HS_CUBLASLT(HS_FIND)
#undef HS_FIND
  if (problem.empty() && lt.cublasLtGetVersion() / 10000 != CUBLAS_VER_MAJOR)
    problem = path + " is version " + version_text(lt.cublasLtGetVersion()) + ", not " + std::to_string(CUBLAS_VER_MAJOR);
  if (!problem.empty()) dlclose(handle);  // otherwise open until the end
  return problem;
}

CublasLt load() {
  std::string tried;
  for (const std::string& path : candidates()) {
    CublasLt lt;
    const std::string problem = open(path, lt);
    if (problem.empty()) return lt;
    tried += (tried.empty() ? "" : "; ") + problem;
  }
  fail<DeviceError>("cublaslt", "matrix products on cuda need cuBLASLt ", CUBLAS_VER_MAJOR, ", which cannot be loaded: ", tried,
                    Help{"install it (Debian: libcublas of the CUDA repository), or give its path in HALFSTEP_CUBLASLT; "
                         "HALFSTEP_CUDA_BLAS=plain does without, slowly"});
}

}  // namespace

const CublasLt& cublaslt() {
  static const CublasLt lt = load();
  return lt;
}

std::string cublaslt_version() {
  try {
    return "cuBLASLt " + version_text(cublaslt().cublasLtGetVersion());
  } catch (const DeviceError& e) {
    const std::string text = e.what();
    return text.substr(0, text.find('\n'));
  }
}

std::string status_text(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "not initialized";
    case CUBLAS_STATUS_ALLOC_FAILED: return "allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE: return "invalid value";
    case CUBLAS_STATUS_ARCH_MISMATCH: return "not for this GPU";
    case CUBLAS_STATUS_MAPPING_ERROR: return "mapping error";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "execution failed";
    case CUBLAS_STATUS_INTERNAL_ERROR: return "internal error";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "not supported";
    default: return "status " + std::to_string(int(status));
  }
}

void check_cublaslt(cublasStatus_t status, const char* call) {
  check<DeviceError>(status == CUBLAS_STATUS_SUCCESS, "cublaslt", call, " failed: ", status_text(status));
}

}  // namespace halfstep::cuda
