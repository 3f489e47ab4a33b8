// What a device's library of convolutions and attention may do. Only CUDA has one: cuDNN.
#pragma once

#include <cstdint>

#include "framework/base/check.h"

namespace halfstep {

struct DnnOptions {
  bool benchmark = false;                  // time a few of the library's ways for each kind of convolution, and keep the fastest
  int64_t workspace = int64_t(256) << 20;  // bytes that one call of the library may take beside its tensors
};
// For all threads and all calls from now on.
void set_dnn_options(const DnnOptions& options);
DnnOptions dnn_options();

// What is recorded wants a way of the library that is not prepared yet: the same work done once without recording prepares it.
struct NotPrepared : RecordingError {
  using RecordingError::RecordingError;
};

}  // namespace halfstep
