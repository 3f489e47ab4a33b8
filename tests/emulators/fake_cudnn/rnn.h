// SPDX-License-Identifier: Apache-2.0
// Recurrent networks of the fake cuDNN: descriptors, the layout of weights, and the arithmetic.
#pragma once

#include "tests/emulators/fake_cudnn/fake_cudnn.h"

namespace emu::dnn {

// Descriptors of one kind, by the caller's handles.
template <class T>
class Registry {
 public:
  explicit Registry(const char* name) : name_(name) {}
  template <class H>
  void create(H* handle) {
    if (!handle) misuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no place for a %s", name_);
    auto made = std::make_unique<T>();
    *handle = reinterpret_cast<H>(made.get());
    live_[*handle] = std::move(made);
  }
  void destroy(const void* handle) {
    T& t = at(handle);
    if constexpr (requires { t.destroyed; }) *t.destroyed = true;
    live_.erase(handle);
  }
  T& at(const void* handle) {
    const auto it = live_.find(handle);
    if (it == live_.end()) misuse(CUDNN_STATUS_BAD_PARAM, "%p is not a live %s", handle, name_);
    return *it->second;
  }
  T& set_at(const void* handle) {
    T& t = at(handle);
    if (!t.is_set) misuse(CUDNN_STATUS_BAD_PARAM, "a %s was never set", name_);
    return t;
  }

 private:
  const char* name_;
  std::map<const void*, std::unique_ptr<T>> live_;
};

struct DropoutDescriptor {
  float p = 0;
  char* states = nullptr;
  bool is_set = false;
};
// The contents of the states' memory; each forward with dropout takes the next number.
struct DropoutStates {
  uint64_t magic, seed, counter;
};
inline constexpr uint64_t kDropoutMagic = 0x6472'6F70'2E31'2E30u;
inline constexpr size_t kDropoutBytes = 2048;

struct TensorDescriptor {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  Dims dims, strides;
};

struct RnnDescriptor {
  bool is_set = false;
  cudnnRNNMode_t mode = CUDNN_LSTM;
  cudnnRNNBiasMode_t bias = CUDNN_RNN_DOUBLE_BIAS;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  int64_t input = 0, hidden = 0, projected = 0, layers = 1, directions = 1;
  bool padded = false;
  DropoutDescriptor dropout;
  bool tf32 = false;                                                // operands are rounded to TF32
  std::shared_ptr<bool> destroyed = std::make_shared<bool>(false);  // by the caller

  int64_t gates() const { return mode == CUDNN_LSTM ? 4 : mode == CUDNN_GRU ? 3 : 1; }
  int64_t pseudo_layers() const { return layers * directions; }
  int64_t inputs_of(int64_t pseudo) const { return pseudo < directions ? input : directions * projected; }
  bool has_projection() const { return projected != hidden; }
  bool has_bias(bool recurrent) const {
    return bias == CUDNN_RNN_DOUBLE_BIAS || bias == (recurrent ? CUDNN_RNN_SINGLE_REC_BIAS : CUDNN_RNN_SINGLE_INP_BIAS);
  }
};

// A matrix or vector in the weight space, by its elements' offset; rows is 0 if absent.
struct Piece {
  int64_t offset = 0, rows = 0, columns = 1;
};
// Layout of weights: gates of one kind in order, W before R before the projection, and all biases after all matrices, with gaps of
// a few elements between kinds. linear: 0 to G - 1 of W, then of R, then the projection.
struct WeightLayout {
  explicit WeightLayout(const RnnDescriptor& d);
  std::vector<std::vector<Piece>> matrices, biases;  // [pseudo layer][linear]
  int64_t elements = 0;
};

struct RnnData {
  bool is_set = false;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  cudnnRNNDataLayout_t layout = CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED;
  int64_t steps = 0, batch = 0, vector = 0;
  std::vector<int> lengths;
  bool fills = false;
  double fill = 0;

  int64_t elements() const;
  int64_t at(int64_t step, int64_t sequence) const;  // offset of a vector's first element
};

// The reserve's data for one step of one sequence in one pseudo layer, in doubles.
struct Slot {
  explicit Slot(const RnnDescriptor& d);
  // Offsets; recurrent: the part of a GRU's gate n that depends on h.
  int64_t gates, recurrent, cell, full, out, mask, gradient, size;
};
struct ReserveHeader {
  uint64_t magic, problem, stage;
};
enum : uint64_t { kForwardDone = 1, kDataDone = 2 };
inline constexpr uint64_t kReserveMagic = 0x7265'7365'7276'6521u;
inline constexpr size_t kReserveHeader = 64;

// Created by the caller (rnn.cpp).
extern Registry<TensorDescriptor> tensors;
extern Registry<DropoutDescriptor> dropouts;
extern Registry<RnnDescriptor> networks;
extern Registry<RnnData> data;

// A call with all its arguments. Pointers are the device's, null if the caller passed none.
struct RnnCall {
  RnnDescriptor d;
  RnnData x, y;
  bool training = false;
  const char *x_at = nullptr, *hx = nullptr, *cx = nullptr, *weights = nullptr, *dy = nullptr, *dhy = nullptr, *dcy = nullptr;
  const int32_t* device_lengths = nullptr;
  char *y_at = nullptr, *hy = nullptr, *cy = nullptr, *dx = nullptr, *dhx = nullptr, *dcx = nullptr, *dweights = nullptr;
  char *workspace = nullptr, *reserve = nullptr;

  size_t reserve_bytes() const;
  size_t workspace_bytes() const { return 512 + size_t(x.steps * d.hidden) * 8 + setting("HALFSTEP_FAKE_DNN_WORKSPACE"); }
  uint64_t fingerprint() const;
};
// Requires open device memory.
void rnn_forward(const RnnCall& call);
void rnn_backward_data(const RnnCall& call);
void rnn_backward_weights(const RnnCall& call);

}  // namespace emu::dnn
