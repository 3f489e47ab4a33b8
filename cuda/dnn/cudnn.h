// SPDX-License-Identifier: Apache-2.0
// cuDNN, opened when a convolution first wants it: a gigabyte that a run on the CPU has no use for.
#pragma once

#include <cudnn.h>

#include <string>

namespace halfstep::cuda {

#define HS_CUDNN(F)                \
  F(cudnnGetVersion)               \
  F(cudnnGetErrorString)           \
  F(cudnnGetLastErrorString)       \
  F(cudnnCreate)                   \
  F(cudnnDestroy)                  \
  F(cudnnSetStream)                \
  F(cudnnBackendCreateDescriptor)  \
  F(cudnnBackendDestroyDescriptor) \
  F(cudnnBackendSetAttribute)      \
  F(cudnnBackendGetAttribute)      \
  F(cudnnBackendFinalize)          \
  F(cudnnBackendExecute)

// For recurrent networks, which are no graphs. They may be missing, all of them.
#define HS_CUDNN_RNN(F)            \
  F(cudnnCreateRNNDescriptor)      \
  F(cudnnDestroyRNNDescriptor)     \
  F(cudnnSetRNNDescriptor_v8)      \
  F(cudnnCreateRNNDataDescriptor)  \
  F(cudnnDestroyRNNDataDescriptor) \
  F(cudnnSetRNNDataDescriptor)     \
  F(cudnnCreateTensorDescriptor)   \
  F(cudnnDestroyTensorDescriptor)  \
  F(cudnnSetTensorNdDescriptor)    \
  F(cudnnGetTensorNdDescriptor)    \
  F(cudnnCreateDropoutDescriptor)  \
  F(cudnnDestroyDropoutDescriptor) \
  F(cudnnSetDropoutDescriptor)     \
  F(cudnnGetRNNWeightSpaceSize)    \
  F(cudnnGetRNNWeightParams)       \
  F(cudnnGetRNNTempSpaceSizes)     \
  F(cudnnRNNForward)               \
  F(cudnnRNNBackwardData_v8)       \
  F(cudnnRNNBackwardWeights_v8)

// The functions in use, under their own names.
struct Cudnn {
#define HS_MEMBER(name) decltype(&::name) name = nullptr;
  HS_CUDNN(HS_MEMBER)
  HS_CUDNN_RNN(HS_MEMBER)
#undef HS_MEMBER
  bool has_rnn = false;
};

// The library, or null where there is none of version 9, or where HALFSTEP_CUDA_DNN=plain in the environment leaves it out; a line
// of the log says so, once. It is the file that HALFSTEP_CUDNN in the environment names; without that the one that the build found,
// or that the loader finds.
const Cudnn* find_cudnn();
// The same if it is known to exist; otherwise throws DeviceError with the files that were tried.
const Cudnn& cudnn();

// "cuDNN 9.19.0", or why there is none.
std::string cudnn_version();

// Throws DeviceError "[cudnn] <call> failed: <status>: <the library's last words>".
void check_cudnn(cudnnStatus_t status, const char* call);

}  // namespace halfstep::cuda
