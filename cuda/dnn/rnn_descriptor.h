// SPDX-License-Identifier: Apache-2.0
// cuDNN's descriptors of a recurrent network and its sequences, and the places of its parameters as cuDNN reports them.
#pragma once

#include <cstddef>
#include <utility>

#include "cuda/dnn/cache.h"
#include "cuda/dnn/cudnn.h"
#include "framework/backend/recurrent_library.h"

namespace halfstep::cuda::dnn {

// Owns a descriptor of one of the library's own types. Throws DeviceError.
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

// A network for the library. It has no dropout of its own: layers with dropout in between are separate networks of one layer each.
struct RnnProblem {
  RecurrentArgs args;
  bool tf32 = false;  // for float32: products round operands to 10 fraction bits

  // Returns whether the library can compute it at all: no float64, no sizes beyond 32 bits, no projection to the full width.
  bool is_for_the_library() const;
  PlanKey network_key() const;  // everything except the sequences: the layout of the parameters depends on it
  PlanKey key() const;
};

// A plan with the standard algorithm, the only one that supports ragged batches and projections.
class RnnPlan {
 public:
  // `handle` may be null without a device: then everything but dropout is checked. Throws DeviceError if the library declines.
  RnnPlan(const RnnProblem& problem, cudnnHandle_t handle);

  const RnnDescriptor rnn;
  const RnnDataDescriptor x, y;
  const TensorDescriptor h, c;

 private:
  const DropoutDescriptor dropout_;
};

struct WeightLayout {
  int64_t elements = 0;
  std::vector<int64_t> offsets;  // as in RecurrentSpaces
};
// Throws DeviceError unless the parameters of our layers are each contiguous in the library's layout.
WeightLayout weight_layout(const RnnProblem& problem, const RnnPlan& plan, cudnnHandle_t handle);

}  // namespace halfstep::cuda::dnn
