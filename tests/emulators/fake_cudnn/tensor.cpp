// SPDX-License-Identifier: Apache-2.0
// Elements and geometry of the tensors of the fake cuDNN, and how it reports what is wrong.
#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string_view>

#include "tests/emulators/fake_cudnn/fake_cudnn.h"

namespace emu::dnn {
namespace {

thread_local std::string last_error;

std::string formatted(const char* format, va_list arguments) {
  char text[600];
  std::vsnprintf(text, sizeof text, format, arguments);
  return text;
}

// Gives `body` a null pointer of the type's element.
template <class F>
auto with_type(cudnnDataType_t type, const F& body) {
  switch (type) {
    case CUDNN_DATA_FLOAT: return body(static_cast<float*>(nullptr));
    case CUDNN_DATA_DOUBLE: return body(static_cast<double*>(nullptr));
    case CUDNN_DATA_HALF: return body(static_cast<__half*>(nullptr));
    case CUDNN_DATA_BFLOAT16: return body(static_cast<__nv_bfloat16*>(nullptr));
    case CUDNN_DATA_INT8: return body(static_cast<int8_t*>(nullptr));
    case CUDNN_DATA_UINT8: return body(static_cast<uint8_t*>(nullptr));
    case CUDNN_DATA_BOOLEAN: return body(static_cast<bool*>(nullptr));
    case CUDNN_DATA_INT32: return body(static_cast<int32_t*>(nullptr));
    case CUDNN_DATA_INT64: return body(static_cast<int64_t*>(nullptr));
    default: refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "elements of type %d", int(type));
  }
}

template <class T>
double widened(T x) {
  if constexpr (std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>)
    return double(halfstep::cuda::to_float(x));
  else
    return double(x);
}
template <class T>
T narrowed(double x) {
  if constexpr (std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>)
    return halfstep::cuda::from_float<T>(float(x));
  else if constexpr (std::is_same_v<T, bool>)
    return x != 0;
  else
    return T(x);
}

}  // namespace

void misuse(cudnnStatus_t status, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  Failure failure{status, formatted(format, arguments), /*is_misuse=*/true};
  va_end(arguments);
  throw failure;
}
void refuse(cudnnStatus_t status, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  Failure failure{status, formatted(format, arguments), /*is_misuse=*/false};
  va_end(arguments);
  throw failure;
}
cudnnStatus_t report(const char* call, const Failure& failure) {
  const char* const way = std::getenv("HALFSTEP_FAKE_DNN_MISUSE");
  if (failure.is_misuse && !(way && std::string_view(way) == "status")) fail("%s: %s", call, failure.text.c_str());
  last_error = std::string(call) + ": " + failure.text;
  return failure.status;
}

unsigned long setting(const char* name) {
  const char* text = std::getenv(name);
  return text ? std::strtoul(text, nullptr, 0) : 0;
}

int64_t size_of(cudnnDataType_t type) {
  return with_type(type, [](auto* element) { return int64_t(sizeof *element); });
}
double load(cudnnDataType_t type, const void* from, int64_t at) {
  return with_type(type, [&](auto* element) {
    std::remove_pointer_t<decltype(element)> value;
    std::memcpy(&value, static_cast<const char*>(from) + at * int64_t(sizeof value), sizeof value);
    return widened(value);
  });
}
void store(cudnnDataType_t type, void* to, int64_t at, double value) {
  with_type(type, [&](auto* element) {
    const auto narrow = narrowed<std::remove_pointer_t<decltype(element)>>(value);
    std::memcpy(static_cast<char*>(to) + at * int64_t(sizeof narrow), &narrow, sizeof narrow);
  });
}
double rounded(cudnnDataType_t type, double value) {
  return with_type(type, [&](auto* element) { return widened(narrowed<std::remove_pointer_t<decltype(element)>>(value)); });
}

// To the ten bits that TF32 keeps.
double rounded_to_tf32(double value) {
  const float f = float(value);
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  bits = (bits + 0xFFF + (bits >> 13 & 1)) & ~uint32_t(0x1FFF);
  float result;
  std::memcpy(&result, &bits, 4);
  return std::isfinite(f) ? double(result) : value;
}

int64_t Tensor::elements() const { return std::accumulate(dims.begin(), dims.end(), int64_t(1), std::multiplies<>()); }
int64_t Tensor::extent() const {
  int64_t last = 1;
  for (size_t d = 0; d < rank(); ++d) last += (dims[d] - 1) * strides[d];
  return last;
}
size_t Tensor::bytes() const { return size_t(extent() * size_of(type)); }

std::string text_of(const Dims& dims) {
  std::string text;
  for (int64_t d : dims) text += (text.empty() ? "" : ", ") + std::to_string(d);
  return "[" + text + "]";
}
std::string Tensor::text() const {
  return "tensor " + std::to_string(uid) + " of type " + std::to_string(type) + " " + text_of(dims) + ", strides " +
         text_of(strides);
}

Dims row_major(const Dims& dims) {
  Dims strides(dims.size());
  int64_t step = 1;
  for (size_t d = dims.size(); d-- > 0; step *= dims[d]) strides[d] = step;
  return strides;
}

bool elements_overlap(const Tensor& t) {
  std::vector<size_t> order;
  for (size_t d = 0; d < t.rank(); ++d) {
    if (t.dims[d] > 1) order.push_back(d);
  }
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return t.strides[a] < t.strides[b]; });
  int64_t reach = 1;
  for (size_t d : order) {
    if (t.strides[d] < reach) return true;
    reach += (t.dims[d] - 1) * t.strides[d];
  }
  return false;
}

}  // namespace emu::dnn

extern "C" {

size_t cudnnGetVersion() {
  const size_t other = emu::dnn::setting("HALFSTEP_FAKE_DNN_VERSION");
  return other ? other : CUDNN_VERSION;
}
size_t cudnnGetCudartVersion() { return CUDART_VERSION; }

const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (CUDNN_STATUS_CATEGORY(status)) {
    case 0: return "CUDNN_STATUS_SUCCESS";
    case 1000: return "CUDNN_STATUS_NOT_INITIALIZED";
    case 2000: return "CUDNN_STATUS_BAD_PARAM";
    case 3000: return "CUDNN_STATUS_NOT_SUPPORTED";
    case 4000: return "CUDNN_STATUS_INTERNAL_ERROR";
    case 5000: return "CUDNN_STATUS_EXECUTION_FAILED";
    default: return "CUDNN_UNKNOWN_STATUS";
  }
}
void cudnnGetLastErrorString(char* message, size_t max_size) {
  if (max_size == 0) return;
  std::snprintf(message, max_size, "%s", emu::dnn::last_error.c_str());
  emu::dnn::last_error.clear();
}

}  // extern "C"
