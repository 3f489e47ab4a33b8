// SPDX-License-Identifier: Apache-2.0
// cuDNN's descriptors of a recurrent network and of its sequences, and the places of its parameters that cuDNN reports.
#pragma once

#include <cstddef>
#include <utility>

#include "cuda/dnn/cache.h"
#include "cuda/dnn/cudnn.h"
#include "framework/backend/recurrent_library.h"

namespace halfstep::cuda::dnn {

// Owner of a descriptor of the library's own kinds. Throws DeviceError.
template <class Raw, auto kCreate, auto kDestroy>
class Owned {
 public:
  [[nodiscard]] Owned() { check_cudnn((cudnn().*kCreate)(&raw_), "creating a descriptor"); }
  ~Owned() { (cudnn().*kDestroy)(raw_); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  Raw raw() const { return raw_; }

 private:
  Raw raw_ = nullptr;
};
using RnnDescriptor = Owned<cudnnRNNDescriptor_t, &Cudnn::cudnnCreateRNNDescriptor, &Cudnn::cudnnDestroyRNNDescriptor>;
using RnnDataDescriptor =
    Owned<cudnnRNNDataDescriptor_t, &Cudnn::cudnnCreateRNNDataDescriptor, &Cudnn::cudnnDestroyRNNDataDescriptor>;
using TensorDescriptor = Owned<cudnnTensorDescriptor_t, &Cudnn::cudnnCreateTensorDescriptor, &Cudnn::cudnnDestroyTensorDescriptor>;
using DropoutDescriptor =
    Owned<cudnnDropoutDescriptor_t, &Cudnn::cudnnCreateDropoutDescriptor, &Cudnn::cudnnDestroyDropoutDescriptor>;

// A network before the library. It has no dropout of its own: layers with dropout between them are networks of one layer each.
struct RnnProblem {
  RecurrentArgs args;
  bool tf32 = false;  // of float32: products of operands rounded to 10 fraction bits

  // All that the library can do at all: no float64, no sizes beyond 32 bits, no projection to the full width.
  bool is_for_the_library() const;
  Key network_key() const;  // all but the sequences: the layout of the parameters depends on these
  Key key() const;
};

// The algorithm is the standard one, which alone takes ragged batches and projections.
class RnnPlan {
 public:
  // `handle` may be null where there is no device: all is checked but dropout. Throws DeviceError where the library declines.
  RnnPlan(const RnnProblem& problem, cudnnHandle_t handle);

  const RnnDescriptor rnn;
  const RnnDataDescriptor x, y;
  const TensorDescriptor h, c;

 private:
  const DropoutDescriptor dropout_;
};

struct WeightLayout {
  int64_t elements = 0;
  std::vector<int64_t> offsets;  // as RecurrentSpaces has them
};
// Throws DeviceError where the parameters of our layers are not in one piece each in the library's.
WeightLayout weight_layout(const RnnProblem& problem, const RnnPlan& plan, cudnnHandle_t handle);

}  // namespace halfstep::cuda::dnn
