// SPDX-License-Identifier: Apache-2.0
// Convolution as matrix products: unfolds the input's windows into columns and multiplies them by the weight. For devices without
// code of their own for a case; ConvKernels supplies the device's kernels.
#pragma once

#include "framework/backend/backend.h"

namespace halfstep {

// A window over three spatial dimensions: missing ones come first with size 1, so that the last is innermost.
struct WindowGeometry {
  Spatial in, out, size, stride, padding, dilation;

  WindowGeometry(const Window& w, const Spatial& input, const Spatial& output)
      : in(to_end(input, w.dims)),
        out(to_end(output, w.dims)),
        size(to_end(w.size, w.dims)),
        stride(to_end(w.stride, w.dims)),
        padding(to_end(w.padding, w.dims, 0)),
        dilation(to_end(w.dilation, w.dims)) {}
  int64_t taps() const { return size[0] * size[1] * size[2]; }
  int64_t positions() const { return out[0] * out[1] * out[2]; }
  int64_t pixels() const { return in[0] * in[1] * in[2]; }

 private:
  static Spatial to_end(const Spatial& s, int dims, int64_t missing = 1) {
    Spatial moved{missing, missing, missing};
    for (int d = 0; d < dims; ++d) moved[size_t(3 - dims + d)] = s[size_t(d)];
    return moved;
  }
};

// Returns the spatial sizes of [N, C, ...].
Spatial spatial_sizes(const TensorView& x, int dims);

// The functions of Backend with these names.
class ConvKernels {
 public:
  virtual ~ConvKernels() = default;
  virtual Device device() const = 0;
  virtual int64_t workspace_bytes() const = 0;  // bytes for a portion of the images, unless one image needs more
  virtual void gemm(const GemmArgs& args) const = 0;
  // fold also takes f32 columns for a 16-bit out.
  virtual void unfold(const TensorView& x, const Window& window, const Spatial& positions, const TensorView& columns) const = 0;
  virtual void fold(const TensorView& columns, const Window& window, const Spatial& positions, const TensorView& out) const = 0;
  virtual void sum(const TensorView& x, const TensorView& out) const = 0;                       // Backend::reduce
  virtual void add(const TensorView& a, const TensorView& b, const TensorView& out) const = 0;  // Backend::binary
  virtual void relu(const TensorView& x) const = 0;                                             // in place
  virtual void copy(const TensorView& src, const TensorView& dst) const = 0;
  virtual void fill(const TensorView& dst, double value) const = 0;
};

// Compute Backend's conv, conv_backward_data and conv_backward_weight, with the same contracts. Images are processed in portions
// that depend only on the shapes and workspace_bytes().
void unfold_conv(const ConvKernels& kernels, const TensorView& x, const TensorView& weight, const TensorView& bias,
                 const Window& window, int64_t groups, bool relu, const TensorView& out);
void unfold_conv_backward_data(const ConvKernels& kernels, const TensorView& grad, const TensorView& weight, const TensorView& bias,
                               const Window& window, int64_t groups, const TensorView& out);
void unfold_conv_backward_weight(const ConvKernels& kernels, const TensorView& x, const TensorView& grad, const Window& window,
                                 int64_t groups, const TensorView& out, const TensorView& bias_out);

// Returns channels_last if one of them is; then all are.
MemoryFormat conv_format(std::initializer_list<TensorView> tensors);
// out [N, C, ...] = x + bias, x of out's shape; may be in place.
void add_channel_bias(const ConvKernels& kernels, const TensorView& x, const TensorView& bias, const TensorView& out);
// Computes out [C] = the sums of x [N, C, ...] over all dimensions but the channels.
void channel_sums(const ConvKernels& kernels, const TensorView& x, const TensorView& out);

}  // namespace halfstep
