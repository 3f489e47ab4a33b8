// SPDX-License-Identifier: Apache-2.0
// Opens cuDNN when a convolution first needs it: it takes a gigabyte, which a run on the CPU does not need.
#pragma once

#include <cudnn.h>

#include <string>

#if CUDNN_VERSION < 90800  // descriptions of devices, for plans without a GPU; the library that is opened may have them
inline constexpr auto CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR = cudnnBackendDescriptorType_t(38);
inline constexpr auto CUDNN_ATTR_ENGINEHEUR_DEVICEPROP = cudnnBackendAttributeName_t(204);
inline constexpr auto CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP = cudnnBackendAttributeName_t(407);
inline constexpr auto CUDNN_ATTR_ENGINE_DEVICEPROP = cudnnBackendAttributeName_t(1307);
inline constexpr auto CUDNN_ATTR_DEVICEPROP_DEVICE_ID = cudnnBackendAttributeName_t(2700);
inline constexpr auto CUDNN_ATTR_DEVICEPROP_HANDLE = cudnnBackendAttributeName_t(2701);
inline constexpr auto CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION = cudnnBackendAttributeName_t(2702);
#endif

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

// Functions for recurrent networks, which are not graphs. They may all be missing.
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

// Returns the library, or null if there is none of version 9, or if HALFSTEP_CUDA_DNN=plain in the environment disables it, which
// the log says once. It is the file in the environment variable HALFSTEP_CUDNN, or else the one that the build or the loader
// finds.
const Cudnn* find_cudnn();
// Returns the library; throws DeviceError with the tried files if there is none.
const Cudnn& cudnn();

// Returns "cuDNN 9.19.0", or why there is none.
std::string cudnn_version();

// Throws DeviceError "[cudnn] <call> failed: <status>: <the library's last message>".
void check_cudnn(cudnnStatus_t status, const char* call);

}  // namespace halfstep::cuda
