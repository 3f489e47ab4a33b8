// SPDX-License-Identifier: Apache-2.0
// Convolutions on CUDA: by cuDNN, or, if it declines, by unfolding and matrix products.
#include "cuda/blas/gemm.h"
#include "cuda/kernels/kernels.h"
#include "framework/backend/unfold_conv.h"
#include "framework/base/check.h"

#ifndef HALFSTEP_NO_CUDNN  // a build without the library's header
#include "cuda/dnn/conv.h"
#endif

namespace halfstep::cuda {
namespace {

class Kernels final : public ConvKernels {
 public:
  Kernels(const Queue& queue, int64_t workspace) : q_(queue), workspace_(workspace) {}
  Device device() const override { return Device::cuda; }
  int64_t workspace_bytes() const override { return workspace_; }
  void gemm(const GemmArgs& args) const override { cuda::gemm(q_, args); }
  void unfold(const TensorView& x, const Window& window, const Spatial& positions, const TensorView& columns) const override {
    cuda::unfold(q_, x, window, positions, columns);
  }
  void fold(const TensorView& columns, const Window& window, const Spatial& positions, const TensorView& out) const override {
    cuda::fold(q_, columns, window, positions, out);
  }
  void sum(const TensorView& x, const TensorView& out) const override { cuda::reduce(q_, Reduce::sum, x, out); }
  void add(const TensorView& a, const TensorView& b, const TensorView& out) const override {
    cuda::binary(q_, Binary::add, a, b, out);
  }
  void relu(const TensorView& x) const override { cuda::unary(q_, Unary::relu, x, x); }
  void copy(const TensorView& src, const TensorView& dst) const override { cuda::copy(q_, src, dst); }
  void fill(const TensorView& dst, double value) const override { cuda::fill(q_, dst, value); }

 private:
  const Queue& q_;
  int64_t workspace_;
};

#ifdef HALFSTEP_NO_CUDNN
// Stand in for cuda/dnn/conv.h: a library that declines every call.
enum class Direction { forward, data, weight };
struct ConvCall {
  Direction direction;
  TensorView x, w, y, bias;
  Window window;
  bool relu = false;
};
template <class F>
bool convolve(const Queue&, const ConvKernels&, const ConvCall&, const F&) {
  return false;
}
#else
using namespace dnn;
#endif

// Convolves by the library; if it declines, by `unfold`, in smaller portions if the device has no memory for larger ones.
template <class F>
void convolve_or_unfold(const Queue& q, const ConvCall& call, const F& unfold) {
  constexpr int64_t kMostBytes = int64_t(128) << 20, kLeastBytes = int64_t(1) << 20;
  const auto unfold_in_portions = [&] {
    for (int64_t bytes = kMostBytes;; bytes /= 2) {
      try {
        return unfold(Kernels(q, bytes));
      } catch (const MemoryError&) {
        if (bytes <= kLeastBytes) throw;
      }
    }
  };
  bool done = false;
  try {
    done = convolve(q, Kernels(q, kMostBytes), call, unfold_in_portions);
  } catch (const MemoryError&) {}  // for the buffers of operands that the library needs in another layout
  if (!done) unfold_in_portions();
}

}  // namespace

void conv(const Queue& q, const TensorView& x, const TensorView& weight, const TensorView& bias, const Window& window,
          int64_t groups, bool relu, const TensorView& out) {
  convolve_or_unfold(q, {Direction::forward, x, weight, out, bias, window, relu},
                     [&](const Kernels& kernels) { unfold_conv(kernels, x, weight, bias, window, groups, relu, out); });
}
void conv_backward_data(const Queue& q, const TensorView& grad, const TensorView& weight, const TensorView& bias,
                        const Window& window, int64_t groups, const TensorView& out) {
  convolve_or_unfold(q, {Direction::data, out, weight, grad, bias, window},
                     [&](const Kernels& kernels) { unfold_conv_backward_data(kernels, grad, weight, bias, window, groups, out); });
}
void conv_backward_weight(const Queue& q, const TensorView& x, const TensorView& grad, const Window& window, int64_t groups,
                          const TensorView& out, const TensorView& bias_out) {
  convolve_or_unfold(q, {Direction::weight, x, out, grad, bias_out, window},
                     [&](const Kernels& kernels) { unfold_conv_backward_weight(kernels, x, grad, window, groups, out, bias_out); });
}

}  // namespace halfstep::cuda
