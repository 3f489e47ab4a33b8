// SPDX-License-Identifier: Apache-2.0
// Convolutions and pooling.
#include "apps/catalog/rows/layer_rows.h"

namespace halfstep::app {
namespace {

const char* input_of(int dims) { return dims == 1 ? "[C, L]" : dims == 2 ? "[C, H, W]" : "[C, D, H, W]"; }

Sizes sizes_of(const Json& self, const char* key) { return ReadArg<Sizes>::from(self[key]); }

ConvPadding padding_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return ReadArg<Sizes>::from(value).values();
}

Field kernel(int dims) { return sizes("kernel_size", nullptr, dims, 1, "of the window").required(); }
Field in_channels() { return width("in_channels", "channels of the input; left out: those of the input").from_input_dim(1); }
Field out_channels() { return width("out_channels", "channels of the output").required(); }
Field groups() {
  return integer("groups", 1, "number of groups; channels of different groups are not connected").at_least(1).at_most(kMaxSample);
}
Field bias() { return boolean("bias", true, "add a bias"); }
Field pool_stride(int dims) { return sizes("stride", nullptr, dims, 1, "step of the window; left out: kernel_size"); }
Field ceil_mode() { return boolean("ceil_mode", false, "include windows that extend beyond the end"); }

template <class M>
ModuleRow conv_row(const char* type, int dims) {
  return {{type,
           joined("convolution of ", input_of(dims)),
           {in_channels(), out_channels(), kernel(dims), sizes("stride", 1, dims, 1, "step of the window"),
            sizes("padding", 0, dims, 0, "around the input; \"same\": the output is as large").or_word("same").or_word("valid"),
            sizes("dilation", 1, dims, 1, "step within the window"), groups(), bias(),
            choice("padding_mode", "zeros", {"zeros", "reflect", "replicate", "circular"}, "contents of the padding")}},
          [](const Json& self) {
            return std::make_shared<M>(self["in_channels"].get<int64_t>(), self["out_channels"].get<int64_t>(),
                                       sizes_of(self, "kernel_size"),
                                       ConvLayerOptions{.stride = sizes_of(self, "stride"),
                                                        .padding = padding_of(self["padding"]),
                                                        .dilation = sizes_of(self, "dilation"),
                                                        .groups = self["groups"],
                                                        .bias = self["bias"],
                                                        .padding_mode = self["padding_mode"]});
          }};
}

template <class M>
ModuleRow conv_transpose_row(const char* type, int dims) {
  return {{type,
           joined("transposed convolution of ", input_of(dims)),
           {in_channels(), out_channels(), kernel(dims), sizes("stride", 1, dims, 1, "step of the window"),
            sizes("padding", 0, dims, 0, "cut off from the output"),
            sizes("output_padding", 0, dims, 0, "added behind the output; less than stride or dilation"), groups(), bias(),
            sizes("dilation", 1, dims, 1, "step within the window"),
            choice("padding_mode", "zeros", {"zeros"}, "as in PyTorch there is no other")}},
          [](const Json& self) {
            return std::make_shared<M>(self["in_channels"].get<int64_t>(), self["out_channels"].get<int64_t>(),
                                       sizes_of(self, "kernel_size"),
                                       ConvTransposeLayerOptions{.stride = sizes_of(self, "stride"),
                                                                 .padding = sizes_of(self, "padding"),
                                                                 .output_padding = sizes_of(self, "output_padding"),
                                                                 .groups = self["groups"],
                                                                 .bias = self["bias"],
                                                                 .dilation = sizes_of(self, "dilation")});
          }};
}

template <class M>
ModuleRow max_pool_row(const char* type, int dims) {
  return {{type,
           joined("largest element of each window of ", input_of(dims)),
           {kernel(dims), pool_stride(dims), sizes("padding", 0, dims, 0, "around the input, as -inf; at most half of kernel_size"),
            sizes("dilation", 1, dims, 1, "step within the window"), ceil_mode()}},
          [](const Json& self) {
            return std::make_shared<M>(sizes_of(self, "kernel_size"), MaxPoolLayerOptions{.stride = sizes_of(self, "stride"),
                                                                                          .padding = sizes_of(self, "padding"),
                                                                                          .dilation = sizes_of(self, "dilation"),
                                                                                          .ceil_mode = self["ceil_mode"]});
          }};
}

template <class M>
ModuleRow avg_pool_row(const char* type, int dims) {
  std::vector<Field> fields{kernel(dims), pool_stride(dims),
                            sizes("padding", 0, dims, 0, "zeros around the input; at most half of kernel_size"), ceil_mode(),
                            boolean("count_include_pad", true, "divide by the whole window, padding included")};
  if (dims > 1) fields.push_back(integer("divisor_override", nullptr, "divide by this instead").at_least(1).at_most(kMaxSample));
  return {{type, joined("mean of each window of ", input_of(dims)), fields}, [](const Json& self) {
            const auto divisor = self.find("divisor_override");
            return std::make_shared<M>(sizes_of(self, "kernel_size"),
                                       AvgPoolLayerOptions{.stride = sizes_of(self, "stride"),
                                                           .padding = sizes_of(self, "padding"),
                                                           .ceil_mode = self["ceil_mode"],
                                                           .count_include_pad = self["count_include_pad"],
                                                           .divisor_override = ReadArg<std::optional<int64_t>>::from(
                                                               divisor == self.end() ? Json() : *divisor)});
          }};
}

template <class M>
ModuleRow lp_pool_row(const char* type, int dims) {
  return {{type,
           joined("(sum of x^norm_type)^(1 / norm_type) of each window of ", input_of(dims)),
           {number("norm_type", nullptr, "exponent").above(0).required(), kernel(dims), pool_stride(dims), ceil_mode()}},
          [](const Json& self) {
            return std::make_shared<M>(self["norm_type"].get<double>(), sizes_of(self, "kernel_size"),
                                       LPPoolLayerOptions{.stride = sizes_of(self, "stride"), .ceil_mode = self["ceil_mode"]});
          }};
}

template <class M>
ModuleRow adaptive_row(const char* type, int dims, const char* what) {
  Field size =
      sizes("output_size", nullptr, dims, 1, "one number, or one for each dimension; null: the size of the input").required();
  if (dims > 1) size = size.with_nulls();
  return {{type, joined(what, " of windows that cover ", input_of(dims), " evenly"), {size}}, [](const Json& self) {
            const Json& given = self["output_size"];
            OutputSize values;
            for (const Json& v : given.is_array() ? given : Json::array({given})) {
              values.push_back(ReadArg<std::optional<int64_t>>::from(v));
            }
            return std::make_shared<M>(values);
          }};
}

}  // namespace

void add_window_rows(Catalog<ModuleRow>& all) {
  all.add(conv_row<Conv1d>("Conv1d", 1));
  all.add(conv_row<Conv2d>("Conv2d", 2));
  all.add(conv_row<Conv3d>("Conv3d", 3));
  all.add(conv_transpose_row<ConvTranspose1d>("ConvTranspose1d", 1));
  all.add(conv_transpose_row<ConvTranspose2d>("ConvTranspose2d", 2));
  all.add(conv_transpose_row<ConvTranspose3d>("ConvTranspose3d", 3));
  all.add(max_pool_row<MaxPool1d>("MaxPool1d", 1));
  all.add(max_pool_row<MaxPool2d>("MaxPool2d", 2));
  all.add(max_pool_row<MaxPool3d>("MaxPool3d", 3));
  all.add(avg_pool_row<AvgPool1d>("AvgPool1d", 1));
  all.add(avg_pool_row<AvgPool2d>("AvgPool2d", 2));
  all.add(avg_pool_row<AvgPool3d>("AvgPool3d", 3));
  all.add(lp_pool_row<LPPool1d>("LPPool1d", 1));
  all.add(lp_pool_row<LPPool2d>("LPPool2d", 2));
  all.add(lp_pool_row<LPPool3d>("LPPool3d", 3));
  all.add(adaptive_row<AdaptiveAvgPool1d>("AdaptiveAvgPool1d", 1, "means"));
  all.add(adaptive_row<AdaptiveAvgPool2d>("AdaptiveAvgPool2d", 2, "means"));
  all.add(adaptive_row<AdaptiveAvgPool3d>("AdaptiveAvgPool3d", 3, "means"));
  all.add(adaptive_row<AdaptiveMaxPool1d>("AdaptiveMaxPool1d", 1, "largest elements"));
  all.add(adaptive_row<AdaptiveMaxPool2d>("AdaptiveMaxPool2d", 2, "largest elements"));
  all.add(adaptive_row<AdaptiveMaxPool3d>("AdaptiveMaxPool3d", 3, "largest elements"));
}

}  // namespace halfstep::app
