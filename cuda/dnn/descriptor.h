// SPDX-License-Identifier: Apache-2.0
// Owns a cuDNN backend descriptor: attributes are set by their C++ type, then it is finalised and does not change.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "cuda/dnn/cudnn.h"

namespace halfstep::cuda::dnn {

// The types of descriptors and attributes.
using Type = cudnnBackendDescriptorType_t;
using Attribute = cudnnBackendAttributeName_t;
using Numbers = std::vector<int64_t>;

// The library's name for a C++ type.
template <class T>
extern const cudnnBackendAttributeType_t kAttributeType;  // not defined for other types
template <>
inline constexpr auto kAttributeType<int64_t> = CUDNN_TYPE_INT64;
template <>
inline constexpr auto kAttributeType<float> = CUDNN_TYPE_FLOAT;
template <>
inline constexpr auto kAttributeType<double> = CUDNN_TYPE_DOUBLE;
template <>
inline constexpr auto kAttributeType<bool> = CUDNN_TYPE_BOOLEAN;
template <>
inline constexpr auto kAttributeType<char> = CUDNN_TYPE_CHAR;
template <>
inline constexpr auto kAttributeType<void*> = CUDNN_TYPE_VOID_PTR;
template <>
inline constexpr auto kAttributeType<cudnnHandle_t> = CUDNN_TYPE_HANDLE;
template <>
inline constexpr auto kAttributeType<cudnnDataType_t> = CUDNN_TYPE_DATA_TYPE;
template <>
inline constexpr auto kAttributeType<cudnnPointwiseMode_t> = CUDNN_TYPE_POINTWISE_MODE;
template <>
inline constexpr auto kAttributeType<cudnnNanPropagation_t> = CUDNN_TYPE_NAN_PROPOGATION;
template <>
inline constexpr auto kAttributeType<cudnnConvolutionMode_t> = CUDNN_TYPE_CONVOLUTION_MODE;
template <>
inline constexpr auto kAttributeType<cudnnReduceTensorOp_t> = CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
template <>
inline constexpr auto kAttributeType<cudnnRngDistribution_t> = CUDNN_TYPE_RNG_DISTRIBUTION;
template <>
inline constexpr auto kAttributeType<cudnnBackendHeurMode_t> = CUDNN_TYPE_HEUR_MODE;
template <>
inline constexpr auto kAttributeType<cudnnBackendNumericalNote_t> = CUDNN_TYPE_NUMERICAL_NOTE;
template <>
inline constexpr auto kAttributeType<cudnnBackendBehaviorNote_t> = CUDNN_TYPE_BEHAVIOR_NOTE;

// Every call throws DeviceError with the library's message if it is refused.
class Descriptor {
 public:
  explicit Descriptor(Type type) { check_cudnn(cudnn().cudnnBackendCreateDescriptor(type, &raw_), "cudnnBackendCreateDescriptor"); }
  ~Descriptor() {
    if (raw_) cudnn().cudnnBackendDestroyDescriptor(raw_);
  }
  Descriptor(Descriptor&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }

  template <class T>
  Descriptor& set(Attribute name, T value) {
    return set_all(name, kAttributeType<T>, 1, &value);
  }
  template <class T>
  Descriptor& set(Attribute name, const std::vector<T>& values) {
    return set_all(name, kAttributeType<T>, int64_t(values.size()), values.data());
  }
  Descriptor& set(Attribute name, const Descriptor& other) { return set_all(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other.raw_); }
  // Not an overload of `set`, because the library's descriptors are pointers to void.
  Descriptor& set_descriptors(Attribute name, const std::vector<cudnnBackendDescriptor_t>& others) {
    return set_all(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, int64_t(others.size()), others.data());
  }
  Descriptor& finalize() {
    check_cudnn(cudnn().cudnnBackendFinalize(raw_), "cudnnBackendFinalize");
    return *this;
  }

  // Returns at most `most` values.
  template <class T>
  std::vector<T> get(Attribute name, int64_t most) const {
    std::vector<T> values(static_cast<size_t>(most));
    int64_t count = 0;
    check_cudnn(cudnn().cudnnBackendGetAttribute(raw_, name, kAttributeType<T>, most, &count, values.data()),
                "cudnnBackendGetAttribute");
    values.resize(size_t(std::min(count, most)));
    return values;
  }

  cudnnBackendDescriptor_t raw() const { return raw_; }

 private:
  Descriptor& set_all(Attribute name, cudnnBackendAttributeType_t type, int64_t count, const void* values) {
    check_cudnn(cudnn().cudnnBackendSetAttribute(raw_, name, type, count, values), "cudnnBackendSetAttribute");
    return *this;
  }

  cudnnBackendDescriptor_t raw_ = nullptr;
};

}  // namespace halfstep::cuda::dnn
