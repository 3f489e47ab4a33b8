// SPDX-License-Identifier: Apache-2.0
#include "framework/backend/unfold_conv.h"

#include <algorithm>

#include "framework/backend/workspace.h"

namespace halfstep {
namespace {

// All sizes of one convolution. The columns of an image have the shape [groups * inner, positions].
struct ConvSizes {
  int64_t images, channels, filters, groups, pixels, positions, inner;
  bool is_pointwise;  // whether it is a product of the image itself: one tap, which reads each pixel once, in order
  Spatial out;

  ConvSizes(const TensorView& x, const TensorView& y, const Window& w, int64_t group_count)
      : images(x.shape[0]), channels(x.shape[1]), filters(y.shape[1]), groups(group_count), out(spatial_sizes(y, w.dims)) {
    const WindowGeometry g(w, spatial_sizes(x, w.dims), out);
    pixels = g.pixels();
    positions = g.positions();
    inner = channels / groups * g.taps();
    is_pointwise = g.taps() == 1 && g.stride == Spatial{1, 1, 1} && g.padding == Spatial{0, 0, 0} && g.in == g.out;
  }
  // Returns how many images to process at once if each needs `bytes`.
  int64_t portion(const ConvKernels& kernels, int64_t bytes) const {
    return std::clamp(kernels.workspace_bytes() / std::max<int64_t>(bytes, 1), int64_t(1), images);
  }
};

TensorView dense(void* data, DType dtype, const Shape& shape) { return {data, dtype, shape, contiguous_strides(shape)}; }

// Returns images [first, first + count) of a contiguous tensor, as `shape`.
TensorView images_of(const TensorView& v, int64_t first, const Shape& shape) {
  const int64_t each = v.numel() / std::max<int64_t>(v.shape[0], 1);
  return dense(v.as<char>() + first * each * int64_t(size_of(v.dtype)), v.dtype, shape);
}
Shape with_count(const TensorView& v, int64_t count) {
  Shape shape = v.shape;
  shape[0] = count;
  return shape;
}

TensorView transposed(TensorView m) {
  std::swap(m.shape[1], m.shape[2]);
  std::swap(m.strides[1], m.strides[2]);
  return m;
}

int64_t bytes_of(int64_t elements, DType t) { return elements * int64_t(size_of(t)); }
DType sum_type(DType t) { return t == DType::f64 ? t : DType::f32; }
// Rounds up to a multiple of the alignment of parts of a workspace.
int64_t padded(int64_t bytes) {
  constexpr int64_t kAlignment = 256;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// The weight as a batch of matrices for `count` images and all groups: [count * groups, filters / groups, inner]. A stride of 0
// repeats one group; several groups need copies, unless there is one image.
class Weights {
 public:
  Weights(const ConvKernels& kernels, const TensorView& weight, const ConvSizes& sizes, int64_t count)
      : rows_(sizes.filters / sizes.groups),
        inner_(sizes.inner),
        groups_(sizes.groups),
        copies_(kernels.device(), sizes.groups > 1 && count > 1 ? size_t(bytes_of(count * weight.numel(), weight.dtype)) : 0),
        matrices_(weight) {
    if (!copies_.data()) return;
    matrices_.data = copies_.data();
    TensorView repeated = dense(weight.data, weight.dtype, {count, weight.numel()});
    repeated.strides[0] = 0;
    kernels.copy(repeated, dense(matrices_.data, weight.dtype, {count, weight.numel()}));
  }
  TensorView matrices(int64_t count) const {
    TensorView m = dense(matrices_.data, matrices_.dtype, {count * groups_, rows_, inner_});
    if (groups_ == 1) m.strides[0] = 0;
    return m;
  }

 private:
  int64_t rows_, inner_, groups_;
  Workspace copies_;
  TensorView matrices_;
};

// Returns a channels_last tensor as a matrix [pixels, channels]: a window of one tap that reads each pixel once multiplies it
// directly.
TensorView pixels_of(const TensorView& v) {
  const int64_t channels = v.shape[1];
  return dense(v.data, v.dtype, {v.numel() / std::max<int64_t>(channels, 1), channels});
}
TensorView transposed_matrix(const TensorView& m) {
  return {m.data, m.dtype, {m.shape[1], m.shape[0]}, {m.strides[1], m.strides[0]}};
}

// A row-major view for columns, which consist of rows of pixels: a copy if the tensor is channels_last.
class RowMajor {
 public:
  RowMajor(const ConvKernels& kernels, const TensorView& v, bool is_read)
      : memory_(kernels.device(), size_t(bytes_of(v.numel(), v.dtype))), view_(dense(memory_.data(), v.dtype, v.shape)) {
    if (is_read) kernels.copy(v, view_);
  }
  const TensorView& view() const { return view_; }

 private:
  Workspace memory_;
  TensorView view_;
};

// Writes the bias alone, for a sum over nothing.
void bias_alone(const ConvKernels& kernels, const TensorView& bias, const TensorView& out) {
  kernels.fill(out, 0);
  if (bias) add_channel_bias(kernels, out, bias, out);
}

void relu_in_place(const ConvKernels& kernels, const TensorView& out) { kernels.relu(in_memory_order(out, out.format())); }

}  // namespace

Spatial spatial_sizes(const TensorView& x, int dims) {
  Spatial s{1, 1, 1};
  for (int d = 0; d < dims; ++d) s[size_t(d)] = x.shape[2 + d];
  return s;
}

MemoryFormat conv_format(std::initializer_list<TensorView> tensors) {
  for (const TensorView& v : tensors)
    if (v.format() == MemoryFormat::channels_last) return MemoryFormat::channels_last;
  return MemoryFormat::contiguous;
}

void add_channel_bias(const ConvKernels& kernels, const TensorView& x, const TensorView& bias, const TensorView& out) {
  TensorView b = bias;
  b.shape = out.shape;
  b.strides = Dims::filled(out.shape.size(), 0);
  b.strides[1] = bias.strides[0];
  const MemoryFormat format = conv_format({x, out});
  kernels.add(in_memory_order(x, format), in_memory_order(b, format), in_memory_order(out, format));
}

void channel_sums(const ConvKernels& kernels, const TensorView& x, const TensorView& out) {
  if (x.format() == MemoryFormat::channels_last) {
    const int64_t channels = x.shape[1];
    return kernels.sum(dense(x.data, x.dtype, {numel(x.shape) / channels, channels}),
                       {out.data, out.dtype, {1, channels}, {channels * out.strides[0], out.strides[0]}});
  }
  const int64_t images = x.shape[0], channels = x.shape[1], pixels = numel(x.shape) / std::max<int64_t>(images * channels, 1);
  kernels.sum(dense(x.data, x.dtype, {images, channels, pixels}),
              {out.data, out.dtype, {1, channels, 1}, {channels * out.strides[0], out.strides[0], 1}});
}

void unfold_conv(const ConvKernels& kernels, const TensorView& x, const TensorView& weight, const TensorView& bias,
                 const Window& window, int64_t groups, bool relu, const TensorView& out) {
  if (out.numel() == 0) return;
  if (weight.numel() == 0 || x.numel() == 0) {
    bias_alone(kernels, bias, out);
    if (relu) relu_in_place(kernels, out);
    return;
  }
  if (conv_format({x, weight, out}) == MemoryFormat::channels_last) {
    if (groups == 1 && ConvSizes(x, out, window, groups).is_pointwise) {
      const TensorView filters = dense(weight.data, weight.dtype, {weight.shape[0], weight.shape[1]});
      return kernels.gemm({.a = pixels_of(x),
                           .b = transposed_matrix(filters),
                           .c = pixels_of(out),
                           .bias = bias,
                           .activation = relu ? Activation::relu : Activation::none});
    }
    const RowMajor own_x(kernels, x, true), own_weight(kernels, weight, true), result(kernels, out, false);
    unfold_conv(kernels, own_x.view(), own_weight.view(), bias, window, groups, relu, result.view());
    return kernels.copy(result.view(), out);
  }
  const ConvSizes sizes(x, out, window, groups);
  // Rounds a 16-bit result after adding the bias, not before.
  const bool bias_in_f32 = bias && is_half(out.dtype);
  const int64_t column_bytes = sizes.is_pointwise ? 0 : bytes_of(sizes.groups * sizes.inner * sizes.positions, x.dtype),
                result_bytes = bias_in_f32 ? bytes_of(sizes.filters * sizes.positions, DType::f32) : 0;
  const int64_t portion = sizes.portion(kernels, column_bytes + result_bytes);
  const Weights weights(kernels, weight, sizes, portion);
  const Workspace work(kernels.device(), size_t(padded(portion * column_bytes) + portion * result_bytes));
  for (int64_t first = 0; first < sizes.images; first += portion) {
    const int64_t count = std::min(portion, sizes.images - first), batch = count * sizes.groups;
    TensorView columns = images_of(x, first, {batch, sizes.inner, sizes.positions});
    if (!sizes.is_pointwise) {
      columns.data = work.data();
      kernels.unfold(images_of(x, first, with_count(x, count)), window, sizes.out,
                     dense(columns.data, x.dtype, {count, sizes.groups * sizes.inner, sizes.positions}));
    }
    TensorView product = images_of(out, first, {batch, sizes.filters / sizes.groups, sizes.positions});
    if (bias_in_f32) product = dense(work.data() + padded(portion * column_bytes), DType::f32, product.shape);
    kernels.gemm({.a = weights.matrices(count), .b = columns, .c = product});
    const Shape shape{count, sizes.filters, sizes.positions};
    const TensorView result = images_of(out, first, shape);
    if (bias) add_channel_bias(kernels, dense(product.data, product.dtype, shape), bias, result);
    if (relu) relu_in_place(kernels, result);
  }
}

void unfold_conv_backward_data(const ConvKernels& kernels, const TensorView& grad, const TensorView& weight, const TensorView& bias,
                               const Window& window, int64_t groups, const TensorView& out) {
  if (out.numel() == 0) return;
  if (weight.numel() == 0 || grad.numel() == 0) return bias_alone(kernels, bias, out);
  if (conv_format({grad, weight, out}) == MemoryFormat::channels_last) {
    if (groups == 1 && ConvSizes(out, grad, window, groups).is_pointwise) {
      const TensorView filters = dense(weight.data, weight.dtype, {weight.shape[0], weight.shape[1]});
      return kernels.gemm({.a = pixels_of(grad), .b = filters, .c = pixels_of(out), .bias = bias});
    }
    const RowMajor own_grad(kernels, grad, true), own_weight(kernels, weight, true), result(kernels, out, false);
    unfold_conv_backward_data(kernels, own_grad.view(), own_weight.view(), bias, window, groups, result.view());
    return kernels.copy(result.view(), out);
  }
  const ConvSizes sizes(out, grad, window, groups);
  const bool bias_in_f32 = bias && is_half(out.dtype);
  const DType columns_type = sum_type(grad.dtype);
  const int64_t column_bytes = sizes.is_pointwise ? 0 : bytes_of(sizes.groups * sizes.inner * sizes.positions, columns_type),
                result_bytes = bias_in_f32 ? bytes_of(sizes.channels * sizes.pixels, DType::f32) : 0;
  const int64_t portion = sizes.portion(kernels, column_bytes + result_bytes);
  const Weights weights(kernels, weight, sizes, portion);
  const Workspace work(kernels.device(), size_t(padded(portion * column_bytes) + portion * result_bytes));
  for (int64_t first = 0; first < sizes.images; first += portion) {
    const int64_t count = std::min(portion, sizes.images - first), batch = count * sizes.groups;
    TensorView result = images_of(out, first, with_count(out, count));
    if (bias_in_f32) result = dense(work.data() + padded(portion * column_bytes), DType::f32, result.shape);
    const TensorView columns = sizes.is_pointwise ? dense(result.data, result.dtype, {batch, sizes.inner, sizes.positions})
                                                  : dense(work.data(), columns_type, {batch, sizes.inner, sizes.positions});
    kernels.gemm({.a = transposed(weights.matrices(count)),
                  .b = images_of(grad, first, {batch, sizes.filters / sizes.groups, sizes.positions}),
                  .c = columns});
    if (!sizes.is_pointwise)
      kernels.fold(dense(columns.data, columns_type, {count, sizes.groups * sizes.inner, sizes.positions}), window, sizes.out,
                   result);
    if (bias) add_channel_bias(kernels, result, bias, images_of(out, first, with_count(out, count)));
  }
}

void unfold_conv_backward_weight(const ConvKernels& kernels, const TensorView& x, const TensorView& grad, const Window& window,
                                 int64_t groups, const TensorView& out, const TensorView& bias_out) {
  if (bias_out) channel_sums(kernels, grad, bias_out);
  if (out.numel() == 0) return;
  if (x.numel() == 0 || grad.numel() == 0) return kernels.fill(out, 0);
  if (conv_format({x, grad, out}) == MemoryFormat::channels_last) {
    if (groups == 1 && ConvSizes(x, grad, window, groups).is_pointwise) {
      const TensorView result = dense(out.data, out.dtype, {out.shape[0], out.shape[1]});
      return kernels.gemm({.a = transposed_matrix(pixels_of(grad)), .b = pixels_of(x), .c = result});
    }
    const RowMajor own_x(kernels, x, true), own_grad(kernels, grad, true), result(kernels, out, false);
    unfold_conv_backward_weight(kernels, own_x.view(), own_grad.view(), window, groups, result.view(), {});
    return kernels.copy(result.view(), out);
  }
  const ConvSizes sizes(x, grad, window, groups);
  // Computes a product for each image and then adds the products, which allows more parallelism than one long sum.
  const DType type = sum_type(x.dtype);
  const int64_t column_bytes = sizes.is_pointwise ? 0 : bytes_of(sizes.groups * sizes.inner * sizes.positions, x.dtype),
                product_bytes = bytes_of(out.numel(), type);
  const int64_t portion = sizes.portion(kernels, column_bytes + product_bytes), portions = (sizes.images + portion - 1) / portion;
  const Workspace work(kernels.device(), size_t(padded(portion * column_bytes) + portion * product_bytes)),
      sums(kernels.device(), size_t(portions > 1 ? portions * product_bytes : 0));
  char* const products = work.data() + padded(portion * column_bytes);
  const auto add_up = [&](void* from, int64_t count, const TensorView& to) {
    kernels.sum(dense(from, type, {count, out.numel()}), dense(to.data, to.dtype, {1, out.numel()}));
  };
  for (int64_t i = 0; i < portions; ++i) {
    const int64_t first = i * portion, count = std::min(portion, sizes.images - first), batch = count * sizes.groups;
    TensorView columns = images_of(x, first, {batch, sizes.inner, sizes.positions});
    if (!sizes.is_pointwise) {
      columns.data = work.data();
      kernels.unfold(images_of(x, first, with_count(x, count)), window, sizes.out,
                     dense(columns.data, x.dtype, {count, sizes.groups * sizes.inner, sizes.positions}));
    }
    kernels.gemm({.a = images_of(grad, first, {batch, sizes.filters / sizes.groups, sizes.positions}),
                  .b = transposed(columns),
                  .c = dense(products, type, {batch, sizes.filters / sizes.groups, sizes.inner})});
    add_up(products, count, portions == 1 ? out : dense(sums.data() + i * product_bytes, type, out.shape));
  }
  if (portions > 1) add_up(sums.data(), portions, out);
}

}  // namespace halfstep
