// Convolutions on CUDA: by cuDNN, and what it declines by unfold and matrix products.
#include "cuda/blas/gemm.h"
#include "cuda/staged.h"
#include "framework/backend/unfold_conv.h"

#ifndef HALFSTEP_NO_CUDNN  // the build where the library's header is not installed
#include "cuda/dnn/conv.h"
#endif

namespace halfstep::cuda {
namespace {

class Kernels final : public ConvKernels {
 public:
  explicit Kernels(const Queue& queue) : q_(queue) {}
  Device device() const override { return Device::cuda; }
  int64_t workspace_bytes() const override { return int64_t(128) << 20; }
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
  void copy(const TensorView& src, const TensorView& dst) const override { cuda::copy(q_, src, dst); }
  void fill(const TensorView& dst, double value) const override { cuda::fill(q_, dst, value); }

 private:
  const Queue& q_;
};

#ifdef HALFSTEP_NO_CUDNN
enum class Direction { forward, data, weight };
struct ConvCall {
  Direction direction;
  TensorView x, w, y, bias;
  Window window;
};
template <class F>
bool convolve(const Queue&, const ConvCall&, const F&) {
  return false;
}
#else
using namespace dnn;
#endif

// Unfolding takes and gives rows of pixels, channel by channel.
Staged by_rows(const Queue& q, const TensorView& v, Staged::Use use = Staged::read) {
  return Staged(q, v, v.dtype, contiguous_strides(v.shape), use);
}

}  // namespace

void conv(const Queue& q, const TensorView& x, const TensorView& weight, const TensorView& bias, const Window& window,
          int64_t groups, const TensorView& out) {
  const auto unfolded = [&] {
    const Staged to = by_rows(q, out, Staged::write);
    unfold_conv(Kernels(q), by_rows(q, x).view(), by_rows(q, weight).view(), bias, window, groups, to.view());
    to.deliver();
  };
  if (!convolve(q, {Direction::forward, x, weight, out, bias, window}, unfolded)) unfolded();
}
void conv_backward_data(const Queue& q, const TensorView& grad, const TensorView& weight, const TensorView& bias,
                        const Window& window, int64_t groups, const TensorView& out) {
  const auto unfolded = [&] {
    const Staged to = by_rows(q, out, Staged::write);
    unfold_conv_backward_data(Kernels(q), by_rows(q, grad).view(), by_rows(q, weight).view(), bias, window, groups, to.view());
    to.deliver();
  };
  if (!convolve(q, {Direction::data, out, weight, grad, bias, window}, unfolded)) unfolded();
}
void conv_backward_weight(const Queue& q, const TensorView& x, const TensorView& grad, const Window& window, int64_t groups,
                          const TensorView& out, const TensorView& bias_out) {
  const auto unfolded = [&] {
    const Staged to = by_rows(q, out, Staged::write);
    unfold_conv_backward_weight(Kernels(q), by_rows(q, x).view(), by_rows(q, grad).view(), window, groups, to.view(), bias_out);
    to.deliver();
  };
  if (!convolve(q, {Direction::weight, x, out, grad, bias_out, window}, unfolded)) unfolded();
}

}  // namespace halfstep::cuda
