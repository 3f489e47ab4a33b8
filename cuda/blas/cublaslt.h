// SPDX-License-Identifier: Apache-2.0
// Opens cuBLASLt when a product first needs it: it takes half a gigabyte, which a run on the CPU does not need.
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

// Returns the library from the file in the environment variable HALFSTEP_CUBLASLT, or else the one that the build or the loader
// finds. Throws DeviceError with the tried files if none has the major version of the build's header.
const CublasLt& cublaslt();

// Returns "cuBLASLt 13.1.0", or the first line of the error.
std::string cublaslt_version();

// Returns the text of a status, such as "not supported" for CUBLAS_STATUS_NOT_SUPPORTED.
std::string status_text(cublasStatus_t status);
// Throws DeviceError "[cublaslt] <call> failed: <status>".
void check_cublaslt(cublasStatus_t status, const char* call);

}  // namespace halfstep::cuda
