// SPDX-License-Identifier: Apache-2.0
#include "layers/feedforward/convolution.h"

#include <algorithm>
#include <cmath>

#include "framework/ops/window/folded_conv.h"

namespace halfstep {
namespace {

struct Weights {
  Tensor weight, bias;
};

// Draws kaiming_uniform_(weight, a = sqrt(5)), as PyTorch does: the gain sqrt(1/3) cancels the sqrt(3), and the bias has the same
// bound. weight: [first, second, kernel...].
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

// Checks the arguments and options, and that groups divides the channels.
template <class O>
void check_all(const char* type, int64_t in_channels, int64_t out_channels, const Sizes& kernel_size, const O& o) {
  check_arguments(type, ConvNd::arguments(), in_channels, out_channels, kernel_size);
  check_options(type, o);
  check<ValueError>(in_channels % o.groups == 0, type, "in_channels must be divisible by groups, got ", in_channels, " and ",
                    o.groups);
  check<ValueError>(out_channels % o.groups == 0, type, "out_channels must be divisible by groups, got ", out_channels, " and ",
                    o.groups);
}

// Returns one number for each dimension.
Dims padding_sizes(const char* type, int dims, const ConvPadding& padding) {
  return std::get<Sizes>(OptionMember<ConvPadding>::get(padding)).each(dims, type, "padding");
}

// Returns the last dimensions of a weight, kernel...
Dims kernel_of(const Tensor& weight) { return Dims(weight.shape().span().subspan(2)); }

}  // namespace

OptionValue OptionMember<ConvPadding>::get(const ConvPadding& member) {
  if (!member.name.empty()) return member.name;
  return member.sizes.size() == 1 ? Sizes(member.sizes[0]) : Sizes(member.sizes);
}
bool OptionMember<ConvPadding>::put(ConvPadding& member, const OptionValue& value) {
  Sizes sizes;
  if (const auto* const name = std::get_if<std::string>(&value)) return member = *name, true;
  if (!OptionMember<Sizes>::put(sizes, value)) return false;
  member = sizes.values();
  return true;
}

namespace {
template <class O>
Option<O> stride_of() {
  return option("stride", &O::stride, "step of the window").at_least(1);
}
template <class O>
Option<O> dilation_of() {
  return option("dilation", &O::dilation, "step within the window").at_least(1).if_changed();
}
template <class O>
Option<O> groups_of() {
  return option("groups", &O::groups, "number of groups; channels of different groups are not connected").at_least(1).if_changed();
}
template <class O>
Option<O> bias_of() {
  return option("bias", &O::bias, "add a bias").if_changed();
}
}  // namespace

HALFSTEP_ARGUMENTS(ConvNd, argument("in_channels", "channels of the input").at_least(1),
                   argument("out_channels", "channels of the output").at_least(1),
                   argument("kernel_size", "of the window").at_least(1))
HALFSTEP_OPTIONS(ConvLayerOptions, stride_of<O>(),
                 option("padding", &O::padding, "around the input; \"same\": the output is as large")
                     .at_least(0)
                     .one_of({"same", "valid"})
                     .if_changed(),
                 dilation_of<O>(), groups_of<O>(), bias_of<O>(),
                 option("padding_mode", &O::padding_mode, "contents of the padding")
                     .one_of({"zeros", "reflect", "replicate", "circular"})
                     .if_changed())
HALFSTEP_OPTIONS(
    ConvTransposeLayerOptions, stride_of<O>(), option("padding", &O::padding, "cut off from the output").at_least(0).if_changed(),
    option("output_padding", &O::output_padding, "added behind the output; less than stride or dilation").at_least(0).if_changed(),
    groups_of<O>(), bias_of<O>(), dilation_of<O>())

ConvNd::ConvNd(const char* type, int dims, int64_t in_channels, int64_t out_channels, const Sizes& kernel_size,
               const ConvLayerOptions& o, Generator* generator)
    : type_(type), dims_(dims), given_(o) {
  check_all(type, in_channels, out_channels, kernel_size, o);
  const Dims kernel = kernel_size.each(dims, type, "kernel_size");
  options_.stride = o.stride.each(dims, type, "stride");
  options_.dilation = o.dilation.each(dims, type, "dilation");
  options_.groups = o.groups;
  options_.padding = o.padding;
  const bool same = o.padding.name == "same";
  if (o.padding.name.empty()) options_.padding = padding_sizes(type, dims, o.padding);
  check<ValueError>(!same || options_.stride == Dims::filled(dims, 1), type, "padding \"same\" needs stride 1, got ",
                    options_.stride);
  if (o.padding_mode != "zeros" && o.padding.name != "valid") {
    for (int d = dims - 1; d >= 0; --d) {  // pad() takes the last dimension first
      const int64_t total = same ? options_.dilation[d] * (kernel[d] - 1) : 2 * options_.padding.sizes[d];
      around_.push_back(total / 2);
      around_.push_back(total - total / 2);
    }
  }
  const Weights made = random_weights(out_channels, in_channels / o.groups, kernel, out_channels, o.bias, generator);
  weight = register_parameter("weight", made.weight);
  bias = register_parameter("bias", made.bias);
}

Tensor ConvNd::convolve(const Tensor& x, const Tensor& w, const Tensor& b, bool relu, bool folded, LaidWeights& laid) const {
  ConvOptions options = options_;
  options.laid = &laid;
  if (!around_.empty()) options.padding = 0;
  const Tensor in = around_.empty() ? x : pad(x, around_, given_.padding_mode);
  if (folded) return folded_conv(dims_, in, w, b, options, relu);
  return (dims_ == 1 ? conv1d : dims_ == 2 ? conv2d : conv3d)(in, w, b, options, relu);
}

std::string ConvNd::describe() const {
  ConvLayerOptions shown = given_;
  shown.bias = bias.defined();
  return Repr(type_).arg(in_channels()).arg(out_channels()).arg("kernel_size", kernel_of(weight)).options(shown, dims_).str();
}

ConvTransposeNd::ConvTransposeNd(const char* type, int dims, int64_t in_channels, int64_t out_channels, const Sizes& kernel_size,
                                 const ConvTransposeLayerOptions& o, Generator* generator)
    : type_(type), dims_(dims), given_(o) {
  check_all(type, in_channels, out_channels, kernel_size, o);
  const Dims kernel = kernel_size.each(dims, type, "kernel_size");
  options_ = {.stride = o.stride.each(dims, type, "stride"),
              .padding = o.padding.each(dims, type, "padding"),
              .output_padding = o.output_padding.each(dims, type, "output_padding"),
              .groups = o.groups,
              .dilation = o.dilation.each(dims, type, "dilation")};
  for (int d = 0; d < dims; ++d) {
    check<ValueError>(options_.output_padding[d] < std::max(options_.stride[d], options_.dilation[d]), type,
                      "output_padding must be less than stride or dilation, got ", options_.output_padding, ", stride ",
                      options_.stride, " and dilation ", options_.dilation);
  }
  const Weights made = random_weights(in_channels, out_channels / o.groups, kernel, out_channels, o.bias, generator);
  weight = register_parameter("weight", made.weight);
  bias = register_parameter("bias", made.bias);
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
  ConvTransposeLayerOptions shown = given_;
  shown.bias = bias.defined();
  return Repr(type_)
      .arg(weight.size(0))
      .arg(weight.size(1) * options_.groups)
      .arg("kernel_size", kernel_of(weight))
      .options(shown, dims_, {"stride", "padding", "dilation", "output_padding", "groups", "bias"})
      .str();
}

}  // namespace halfstep
