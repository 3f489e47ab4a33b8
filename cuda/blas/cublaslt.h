// SPDX-License-Identifier: Apache-2.0
// cuBLASLt, opened when a product first needs it: half a gigabyte that a run on the CPU has no use for.
#pragma once

#include <cublasLt.h>

#include <string>

namespace halfstep::cuda {

#define HS_CUBLASLT(F)                    \
  F(cublasLtGetVersion)                   \
  F(cublasLtCreate)                       \
  F(cublasLtMatmul)                       \
  F(cublasLtMatmulAlgoGetHeuristic)       \
  F(cublasLtMatmulAlgoConfigGetAttribute) \
  F(cublasLtMatmulDescCreate)             \
  F(cublasLtMatmulDescDestroy)            \
  F(cublasLtMatmulDescSetAttribute)       \
  F(cublasLtMatrixLayoutCreate)           \
  F(cublasLtMatrixLayoutDestroy)          \
  F(cublasLtMatrixLayoutSetAttribute)     \
  F(cublasLtMatmulPreferenceCreate)       \
  F(cublasLtMatmulPreferenceDestroy)      \
  F(cublasLtMatmulPreferenceSetAttribute)

// The functions in use, under their own names.
struct CublasLt {
#define HS_MEMBER(name) decltype(&::name) name = nullptr;
  HS_CUBLASLT(HS_MEMBER)
#undef HS_MEMBER
};

// The file that HALFSTEP_CUBLASLT in the environment names; without that the one that the build found, or that the loader finds.
// Throws DeviceError with the files that were tried when there is none of the version that the build knows.
const CublasLt& cublaslt();

// "cuBLASLt 13.1.0", or the first line of the error.
std::string cublaslt_version();

// "not supported", of CUBLAS_STATUS_NOT_SUPPORTED.
std::string status_text(cublasStatus_t status);
// Throws DeviceError "[cublaslt] <call> failed: <status>".
void check_cublaslt(cublasStatus_t status, const char* call);

}  // namespace halfstep::cuda
