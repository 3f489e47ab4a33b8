// SPDX-License-Identifier: Apache-2.0
#include "layers/feedforward/shape.h"

#include <array>

namespace halfstep {
namespace {

FunctionLayer padding_layer(const char* type, int dims, const Sizes& padding, PadKind mode, double value) {
  check<ValueError>(padding.is_number() || padding.values().size() == 2 * dims, type, "padding must be one number or ", 2 * dims,
                    ", got ", padding.values());
  const Dims around = padding.is_number() ? Dims::filled(2 * dims, padding.values()[0]) : padding.values();
  Repr text(type);
  if (mode == PadKind::constant)
    text.arg("padding", around).arg("value", value);
  else
    text.arg(around);
  constexpr std::array kModes{"constant", "constant", "reflect", "replicate", "circular"};  // of each PadKind; zero: constant 0
  const std::string pad_mode = kModes[size_t(mode)];
  return {text.str(), [=](const Tensor& x) {
            check_rank(type, x, dims + 1, dims + 2);
            return pad(x, around, pad_mode, value);
          }};
}

std::vector<int64_t> vector_of(const Dims& dims) { return {dims.begin(), dims.end()}; }

WindowOptions window_of(const char* type, const FoldOptions& o) {
  check_options(type, o);
  return {.dilation = o.dilation.each(2, type, "dilation"),
          .padding = o.padding.each(2, type, "padding"),
          .stride = o.stride.each(2, type, "stride")};
}

Repr& add_window(Repr& text, const Sizes& kernel_size, const FoldOptions& o) {
  return text.arg("kernel_size", kernel_size).options(o);
}

FunctionLayer unfold_layer(const Sizes& kernel_size, const FoldOptions& o) {
  check_arguments("Unfold", Unfold::arguments(), kernel_size);
  const Dims kernel = kernel_size.each(2, "Unfold", "kernel_size");
  const WindowOptions window = window_of("Unfold", o);
  Repr text("Unfold");
  return {add_window(text, kernel_size, o).str(), [=](const Tensor& x) { return unfold(x, kernel, window); }};
}

FunctionLayer fold_layer(const Sizes& output_size, const Sizes& kernel_size, const FoldOptions& o) {
  check_arguments("Fold", Fold::arguments(), output_size, kernel_size);
  const Dims size = output_size.each(2, "Fold", "output_size"), kernel = kernel_size.each(2, "Fold", "kernel_size");
  const WindowOptions window = window_of("Fold", o);
  Repr text("Fold");
  text.arg("output_size", output_size);
  return {add_window(text, kernel_size, o).str(), [=](const Tensor& x) { return fold(x, size, kernel, window); }};
}

FunctionLayer upsample(const char* type, const InterpolateOptions& o) {
  check<ValueError>(o.size.empty() != o.scale_factor.empty(), type, "needs exactly one of size and scale_factor");
  check_options(type, o);
  return {Repr(type).options(o).str(), [=](const Tensor& x) { return interpolate(x, o); }};
}

// Returns an Upsample of a class that accepts only images.
FunctionLayer upsample_images(const char* type, InterpolateOptions o) {
  const FunctionLayer layer = upsample(type, o);  // checks the options, and describes them
  check<ValueError>(o.size.size() <= 2 && o.scale_factor.size() <= 2, type, "size and scale_factor must be one number or 2");
  return {layer.describe(), [=](const Tensor& x) {
            check_rank(type, x, 4, 4);
            return interpolate(x, o);
          }};
}

InterpolateOptions with_mode(InterpolateOptions o, const char* mode, std::optional<bool> align_corners) {
  o.mode = mode;
  o.align_corners = align_corners;
  return o;
}

}  // namespace

HALFSTEP_OPTIONS(FlattenOptions, option("start_dim", &O::start_dim, "first dimension; 0 is the batch"),
                 option("end_dim", &O::end_dim, "last dimension"))
HALFSTEP_OPTIONS(FoldOptions, option("dilation", &O::dilation, "step within the window").at_least(1),
                 option("padding", &O::padding, "zeros around the image").at_least(0),
                 option("stride", &O::stride, "step of the window").at_least(1))

HALFSTEP_ARGUMENTS(Unflatten, argument("dim", "dimension to split; 0 is the batch"),
                   argument("unflattened_size", "its parts; one may be -1").at_least(-1).items(1, kMaxDims - 1).of("size"))
HALFSTEP_ARGUMENTS(Permute, argument("dims", "the input's dimension for each of the output's; the first is 0, the batch")
                                .at_least(0)
                                .at_most(kMaxDims - 1)
                                .items(2, kMaxDims)
                                .of("dimension"))
HALFSTEP_ARGUMENTS(PixelShuffle, argument("upscale_factor", "factor of height and width").at_least(1))
HALFSTEP_ARGUMENTS(PixelUnshuffle, argument("downscale_factor", "divisor of height and width").at_least(1))
HALFSTEP_ARGUMENTS(ChannelShuffle, argument("groups", "groups, which divide the channels").at_least(1))
HALFSTEP_ARGUMENTS(Unfold, argument("kernel_size", "of the window").at_least(1))
HALFSTEP_ARGUMENTS(Fold, argument("output_size", "H and W").at_least(1), argument("kernel_size", "of the window").at_least(1))
HALFSTEP_ARGUMENTS(PadNd, argument("padding", "for all sides, or (before, after) from the last dimension on"))

Unflatten::Unflatten(Integer dim, const Dims& unflattened_size)
    : FunctionLayer(Repr("Unflatten").arg("dim", int64_t(dim)).arg("unflattened_size", unflattened_size).str(),
                    [=](const Tensor& x) { return unflatten(x, dim, unflattened_size); }) {
  check_arguments(kName, arguments(), dim, vector_of(unflattened_size));
}

Permute::Permute(const Dims& dims)
    : FunctionLayer(Repr("Permute").arg("dims", dims).str(), [=](const Tensor& x) { return permute(x, dims); }) {
  check_arguments(kName, arguments(), vector_of(dims));
}

PixelShuffle::PixelShuffle(Integer upscale_factor)
    : FunctionLayer(Repr("PixelShuffle").arg("upscale_factor", int64_t(upscale_factor)).str(),
                    [=](const Tensor& x) { return pixel_shuffle(x, upscale_factor); }) {
  check_arguments(kName, arguments(), upscale_factor);
}

PixelUnshuffle::PixelUnshuffle(Integer downscale_factor)
    : FunctionLayer(Repr("PixelUnshuffle").arg("downscale_factor", int64_t(downscale_factor)).str(),
                    [=](const Tensor& x) { return pixel_unshuffle(x, downscale_factor); }) {
  check_arguments(kName, arguments(), downscale_factor);
}

ChannelShuffle::ChannelShuffle(Integer groups)
    : FunctionLayer(Repr("ChannelShuffle").arg("groups", int64_t(groups)).str(),
                    [=](const Tensor& x) { return channel_shuffle(x, groups); }) {
  check_arguments(kName, arguments(), groups);
}

Upsample::Upsample(const char* type, const InterpolateOptions& options)
    : FunctionLayer(std::string_view(type) == "Upsample" ? upsample(type, options) : upsample_images(type, options)) {}

UpsamplingNearest2d::UpsamplingNearest2d(InterpolateOptions options)
    : Upsample("UpsamplingNearest2d", with_mode(std::move(options), "nearest", {})) {}

UpsamplingBilinear2d::UpsamplingBilinear2d(InterpolateOptions options)
    : Upsample("UpsamplingBilinear2d", with_mode(std::move(options), "bilinear", true)) {}

Unfold::Unfold(const Sizes& kernel_size, const FoldOptions& options) : FunctionLayer(unfold_layer(kernel_size, options)) {}

Fold::Fold(const Sizes& output_size, const Sizes& kernel_size, const FoldOptions& options)
    : FunctionLayer(fold_layer(output_size, kernel_size, options)) {}

PadNd::PadNd(const char* type, int dims, const Sizes& padding, PadKind mode, double value)
    : FunctionLayer(padding_layer(type, dims, padding, mode, value)) {}

}  // namespace halfstep
