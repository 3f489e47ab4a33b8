// SPDX-License-Identifier: Apache-2.0
#include "layers/feedforward/convolution.h"

#include <algorithm>
#include <cmath>

namespace halfstep {
namespace {

struct Weights {
  Tensor weight, bias;
};

// kaiming_uniform_(weight, a = sqrt(5)), as PyTorch: the gain sqrt(1/3) cancels the sqrt(3), and the bias has the same bound.
Weights random_weights(int64_t first, int64_t second, const Dims& kernel, int64_t out_channels, bool with_bias,
                       Generator* generator) {
  MemoryScope tag(MemoryTag::parameters);
  Shape shape{first, second};
  for (int64_t k : kernel) shape.push_back(k);
  Weights out;
  out.weight = Tensor::empty(shape);
  const double bound = 1 / std::sqrt(double(second) * double(numel(kernel)));
  uniform_(out.weight, -bound, bound, generator);
  if (with_bias) {
    out.bias = Tensor::empty({out_channels});
    uniform_(out.bias, -bound, bound, generator);
  }
  return out;
}

void check_channels(const char* type, int64_t in_channels, int64_t out_channels, int64_t groups) {
  check<ValueError>(in_channels >= 1 && out_channels >= 1, type, "in_channels and out_channels must be >= 1, got ", in_channels,
                    " and ", out_channels);
  check<ValueError>(groups >= 1, type, "groups must be >= 1, got ", groups);
  check<ValueError>(in_channels % groups == 0, type, "in_channels must be divisible by groups, got ", in_channels, " and ", groups);
  check<ValueError>(out_channels % groups == 0, type, "out_channels must be divisible by groups, got ", out_channels, " and ",
                    groups);
}

// kernel...: the last dimensions of a weight.
Dims kernel_of(const Tensor& weight) { return Dims(weight.shape().span().subspan(2)); }

}  // namespace

ConvNd::ConvNd(const char* type, int dims, int64_t in_channels, int64_t out_channels, const Sizes& kernel_size,
               const ConvLayerOptions& o, Generator* generator)
    : type_(type), dims_(dims), padding_mode_(o.padding_mode) {
  check_channels(type, in_channels, out_channels, o.groups);
  const Dims kernel = kernel_size.each(dims, type, "kernel_size", 1);
  options_.stride = o.stride.each(dims, type, "stride", 1);
  options_.dilation = o.dilation.each(dims, type, "dilation", 1);
  options_.groups = o.groups;
  options_.padding = o.padding;
  const bool same = o.padding.name == "same";
  if (o.padding.name.empty()) {
    const Dims& given = o.padding.sizes;
    options_.padding = (given.size() == 1 ? Sizes(given[0]) : Sizes(given)).each(dims, type, "padding", 0);
  } else {
    check<ValueError>(same || o.padding.name == "valid", type, "padding must be numbers, \"same\" or \"valid\", got \"",
                      o.padding.name, '"');
  }
  check<ValueError>(!same || options_.stride == Dims::filled(dims, 1), type, "padding \"same\" needs stride 1, got ",
                    options_.stride);
  const auto modes = {"zeros", "reflect", "replicate", "circular"};
  check<ValueError>(std::find(modes.begin(), modes.end(), o.padding_mode) != modes.end(), type,
                    "padding_mode must be \"zeros\", \"reflect\", \"replicate\" or \"circular\", got \"", o.padding_mode, '"');
  if (o.padding_mode != "zeros" && o.padding.name != "valid") {
    for (int d = dims - 1; d >= 0; --d) {  // pad() counts from the last dimension
      const int64_t total = same ? options_.dilation[d] * (kernel[d] - 1) : 2 * options_.padding.sizes[d];
      around_.push_back(total / 2);
      around_.push_back(total - total / 2);
    }
  }
  const Weights made = random_weights(out_channels, in_channels / o.groups, kernel, out_channels, o.bias, generator);
  weight = register_parameter("weight", made.weight);
  bias = register_parameter("bias", made.bias);
}

Tensor ConvNd::convolve(const Tensor& x, const Tensor& w, const Tensor& b, bool relu, LaidWeights& laid) const {
  const auto conv = dims_ == 1 ? conv1d : dims_ == 2 ? conv2d : conv3d;
  ConvOptions options = options_;
  options.laid = &laid;
  if (around_.empty()) return conv(x, w, b, options, relu);
  options.padding = 0;
  return conv(pad(x, around_, padding_mode_), w, b, options, relu);
}

std::string ConvNd::describe() const {
  const Dims none = Dims::filled(dims_, 0), ones = Dims::filled(dims_, 1);
  const ConvPadding& padding = options_.padding;
  Repr out(type_);
  out.arg(weight.size(1) * options_.groups)
      .arg(weight.size(0))
      .arg("kernel_size", kernel_of(weight))
      .arg("stride", options_.stride);
  if (!padding.name.empty()) out.arg("padding", padding.name);
  return out.arg_if(padding.name.empty() && !(padding.sizes == none), "padding", padding.sizes)
      .arg_if(!(options_.dilation == ones), "dilation", options_.dilation)
      .arg_if(options_.groups != 1, "groups", options_.groups)
      .arg_if(!bias.defined(), "bias", false)
      .arg_if(padding_mode_ != "zeros", "padding_mode", padding_mode_)
      .str();
}

ConvTransposeNd::ConvTransposeNd(const char* type, int dims, int64_t in_channels, int64_t out_channels, const Sizes& kernel_size,
                                 const ConvTransposeLayerOptions& o, Generator* generator)
    : type_(type), dims_(dims) {
  check_channels(type, in_channels, out_channels, o.groups);
  const Dims kernel = kernel_size.each(dims, type, "kernel_size", 1);
  options_ = {.stride = o.stride.each(dims, type, "stride", 1),
              .padding = o.padding.each(dims, type, "padding", 0),
              .output_padding = o.output_padding.each(dims, type, "output_padding", 0),
              .groups = o.groups,
              .dilation = o.dilation.each(dims, type, "dilation", 1)};
  for (int d = 0; d < dims; ++d) {
    check<ValueError>(options_.output_padding[d] < std::max(options_.stride[d], options_.dilation[d]), type,
                      "output_padding must be less than stride or dilation, got ", options_.output_padding, ", stride ",
                      options_.stride, " and dilation ", options_.dilation);
  }
  const Weights made = random_weights(in_channels, out_channels / o.groups, kernel, out_channels, o.bias, generator);
  weight = register_parameter("weight", made.weight);
  bias = register_parameter("bias", made.bias);
}

ConvLayerOptions ConvNd::rest(const ConvArguments& a) {
  return {.stride = a.stride,
          .padding = a.padding,
          .dilation = a.dilation,
          .groups = a.groups,
          .bias = a.bias,
          .padding_mode = a.padding_mode};
}
ConvTransposeLayerOptions ConvTransposeNd::rest(const ConvTransposeArguments& a) {
  return {.stride = a.stride,
          .padding = a.padding,
          .output_padding = a.output_padding,
          .groups = a.groups,
          .bias = a.bias,
          .dilation = a.dilation};
}

ConvLayerOptions ConvNd::with(ConvLayerOptions rest, const Sizes& stride, const std::optional<ConvPadding>& padding) {
  check_once(!(rest.stride == Sizes(1)), "stride");
  rest.stride = stride;
  if (!padding) return rest;
  check_once(!rest.padding.name.empty() || !(rest.padding.sizes == Dims{0}), "padding");
  rest.padding = *padding;
  return rest;
}

ConvTransposeLayerOptions ConvTransposeNd::with(ConvTransposeLayerOptions rest, const Sizes& stride, const Sizes& padding) {
  check_once(!(rest.stride == Sizes(1)), "stride");
  rest.stride = stride;
  if (padding.empty()) return rest;
  check_once(!(rest.padding == Sizes(0)), "padding");
  rest.padding = padding;
  return rest;
}

Tensor ConvTransposeNd::forward(const Tensor& x) {
  const auto conv = dims_ == 1 ? conv_transpose1d : dims_ == 2 ? conv_transpose2d : conv_transpose3d;
  return conv(x, weight, bias, options_);
}

Tensor ConvTransposeNd::forward(const Tensor& x, const Dims& output_size) {
  check_rank(type_, x, dims_ + 1, dims_ + 2);
  const Dims size = spatial_part(type_, "output_size", output_size, x, dims_), kernel = kernel_of(weight);
  ConvTransposeOptions o = options_;
  for (int d = 0; d < dims_; ++d) {
    const int64_t least = (x.size(d - dims_) - 1) * o.stride[d] - 2 * o.padding[d] + o.dilation[d] * (kernel[d] - 1) + 1;
    check<ShapeError>(size[d] >= least && size[d] < least + o.stride[d], type_, "output_size must be ", least, " to ",
                      least + o.stride[d] - 1, " in spatial dimension ", d, ", got ", size);
    o.output_padding[d] = size[d] - least;
  }
  const auto conv = dims_ == 1 ? conv_transpose1d : dims_ == 2 ? conv_transpose2d : conv_transpose3d;
  return conv(x, weight, bias, o);
}

std::string ConvTransposeNd::describe() const {
  const Dims none = Dims::filled(dims_, 0), ones = Dims::filled(dims_, 1);
  return Repr(type_)
      .arg(weight.size(0))
      .arg(weight.size(1) * options_.groups)
      .arg("kernel_size", kernel_of(weight))
      .arg("stride", options_.stride)
      .arg_if(!(options_.padding == none), "padding", options_.padding)
      .arg_if(!(options_.dilation == ones), "dilation", options_.dilation)
      .arg_if(!(options_.output_padding == none), "output_padding", options_.output_padding)
      .arg_if(options_.groups != 1, "groups", options_.groups)
      .arg_if(!bias.defined(), "bias", false)
      .str();
}

}  // namespace halfstep
