// Convolutions on CUDA: unfold and cuBLASLt products.
#include "cuda/blas/gemm.h"
#include "framework/backend/unfold_conv.h"

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

}  // namespace

void conv(const Queue& q, const TensorView& x, const TensorView& weight, const TensorView& bias, const Window& window,
          int64_t groups, const TensorView& out) {
  unfold_conv(Kernels(q), x, weight, bias, window, groups, out);
}
void conv_backward_data(const Queue& q, const TensorView& grad, const TensorView& weight, const TensorView& bias,
                        const Window& window, int64_t groups, const TensorView& out) {
  unfold_conv_backward_data(Kernels(q), grad, weight, bias, window, groups, out);
}
void conv_backward_weight(const Queue& q, const TensorView& x, const TensorView& grad, const Window& window, int64_t groups,
                          const TensorView& out, const TensorView& bias_out) {
  unfold_conv_backward_weight(Kernels(q), x, grad, window, groups, out, bias_out);
}

}  // namespace halfstep::cuda
