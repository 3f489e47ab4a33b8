// SPDX-License-Identifier: Apache-2.0
#include "cuda/blas/cublaslt.h"

#include "cuda/library.h"
#include "framework/base/check.h"

#ifndef HALFSTEP_CUBLASLT_PATH  // the build's path
#define HALFSTEP_CUBLASLT_PATH ""
#endif

namespace halfstep::cuda {
namespace {

CublasLt load() {
  CublasLt lt;
#define HS_FIND(name) HS_SYMBOL(lt, name)
  const std::string major = std::to_string(CUBLAS_VER_MAJOR);
  const std::string tried = open_library(
      "HALFSTEP_CUBLASLT", {HALFSTEP_CUBLASLT_PATH, "libcublasLt.so." + major, "libcublasLt.so"}, {HS_CUBLASLT(HS_FIND)}, [&] {
        const size_t version = lt.cublasLtGetVersion();
        return version / 10000 == CUBLAS_VER_MAJOR ? "" : "is version " + library_version(version) + ", not " + major;
      });
#undef HS_FIND
  check<DeviceError>(tried.empty(), "cublaslt", "matrix products on cuda need cuBLASLt ", major,
                     ", which cannot be loaded: ", tried,
                     Help{"install it (Debian: libcublas of the CUDA repository), or give its path in HALFSTEP_CUBLASLT; "
                          "HALFSTEP_CUDA_BLAS=plain does without, slowly"});
  return lt;
}

}  // namespace

const CublasLt& cublaslt() {
  static const CublasLt lt = load();
  return lt;
}

std::string cublaslt_version() {
  try {
    return "cuBLASLt " + library_version(cublaslt().cublasLtGetVersion());
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
