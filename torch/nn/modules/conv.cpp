// SPDX-License-Identifier: Apache-2.0
#include "torch/nn/modules/conv.h"

#include "torch/nn/init.h"
#include "torch/nn/modules/define.h"

namespace torch::nn {
namespace {

// Draws the weight and the bias as libtorch does.
void draw_conv(const Tensor& weight, const Tensor& bias) {
  NoGradGuard off;
  init::kaiming_uniform_(weight, std::sqrt(5.0));
  if (!bias.defined()) return;
  const double bound = 1 / std::sqrt(double(std::get<0>(init::_calculate_fan_in_and_fan_out(weight))));
  init::uniform_(bias, -bound, bound);
}
// Returns the shape of a weight: two numbers, then the kernel.
template <size_t D>
std::vector<int64_t> weight_shape(int64_t first, int64_t second, const ExpandingArray<D>& kernel) {
  std::vector<int64_t> s{first, second};
  s.insert(s.end(), kernel->begin(), kernel->end());
  return s;
}
template <class Options>
void check_channels(const Options& o) {
  TORCH_CHECK(o.in_channels() > 0 && o.groups() > 0 && o.out_channels() > 0,
              "in_channels, groups and out_channels must be a positive integer.");
  TORCH_CHECK(o.in_channels() % o.groups() == 0, "in_channels must be divisible by groups");
  TORCH_CHECK(o.out_channels() % o.groups() == 0, "out_channels must be divisible by groups");
}
// Returns the amounts for pad(), last dimension first.
template <size_t D>
hs::Dims pads_of(const ConvOptions<D>& o) {
  hs::Dims pads;
  for (size_t d = D; d-- > 0;) {
    int64_t before = 0, after = 0;
    if (auto* p = std::get_if<0>(&o.padding())) {
      before = after = (**p)[d];
    } else if (std::holds_alternative<enumtype::kSame>(o.padding())) {
      const int64_t all = (*o.dilation())[d] * ((*o.kernel_size())[d] - 1);
      before = all / 2;
      after = all - before;
    }
    pads.push_back(before);
    pads.push_back(after);
  }
  return pads;
}
// Prints what both kinds print of options that differ from their defaults.
template <class Options>
void print_end(std::ostream& out, const Options& o) {
  if (o.groups() != 1) out << ", groups=" << o.groups();
  if (!o.bias()) out << ", bias=" << o.bias();
  if (!std::holds_alternative<enumtype::kZeros>(o.padding_mode()))
    out << ", padding_mode=" << enumtype::get_enum_name(o.padding_mode());
  out << ")";
}

}  // namespace

template <size_t D, class Derived>
ConvNdImpl<D, Derived>::ConvNdImpl(ConvOptions<D> o) : options(std::move(o)) {
  ConvNdImpl::reset();
}
template <size_t D, class Derived>
void ConvNdImpl<D, Derived>::reset() {
  check_channels(options);
  if (std::holds_alternative<enumtype::kSame>(options.padding())) {
    for (int64_t s : *options.stride()) TORCH_CHECK(s == 1, "padding='same' is not supported for strided convolutions");
  }
  weight = this->register_parameter(
      "weight",
      torch::empty(weight_shape(options.out_channels(), options.in_channels() / options.groups(), options.kernel_size())));
  bias = this->register_parameter("bias", options.bias() ? torch::empty({options.out_channels()}) : Tensor(), options.bias());
  reset_parameters();
}
template <size_t D, class Derived>
void ConvNdImpl<D, Derived>::reset_parameters() {
  draw_conv(weight, bias);
}
template <size_t D, class Derived>
void ConvNdImpl<D, Derived>::pretty_print(std::ostream& out) const {
  out << std::boolalpha << "torch::nn::Conv" << D << "d(" << options.in_channels() << ", " << options.out_channels()
      << ", kernel_size=" << options.kernel_size() << ", stride=" << options.stride();
  if (auto* p = std::get_if<0>(&options.padding())) {
    if (**p != *ExpandingArray<D>(0)) out << ", padding=" << *p;
  } else {
    out << ", padding='" << (std::holds_alternative<enumtype::kSame>(options.padding()) ? "same" : "valid") << "'";
  }
  if (*options.dilation() != *ExpandingArray<D>(1)) out << ", dilation=" << options.dilation();
  print_end(out, options);
}
template <size_t D, class Derived>
Tensor ConvNdImpl<D, Derived>::forward(const Tensor& x) {
  constexpr const char* modes[] = {"constant", "reflect", "replicate", "circular"};
  const size_t mode = options.padding_mode().index();
  const hs::ConvOptions o{.stride = options.stride().d(),
                          .padding = mode == 0 ? F::detail::conv_padding(options.padding()) : hs::ConvPadding(0),
                          .dilation = options.dilation().d(),
                          .groups = options.groups()};
  const hs::Tensor in = mode == 0 ? x.h() : hs::pad(x.h(), pads_of(options), modes[mode]);
  if constexpr (D == 1) return hs::conv1d(in, weight.h(), bias.h(), o);
  if constexpr (D == 2) return hs::conv2d(in, weight.h(), bias.h(), o);
  if constexpr (D == 3) return hs::conv3d(in, weight.h(), bias.h(), o);
}

template <size_t D, class Derived>
ConvTransposeNdImpl<D, Derived>::ConvTransposeNdImpl(ConvTransposeOptions<D> o) : options(std::move(o)) {
  ConvTransposeNdImpl::reset();
}
template <size_t D, class Derived>
void ConvTransposeNdImpl<D, Derived>::reset() {
  check_channels(options);
  weight = this->register_parameter(
      "weight",
      torch::empty(weight_shape(options.in_channels(), options.out_channels() / options.groups(), options.kernel_size())));
  bias = this->register_parameter("bias", options.bias() ? torch::empty({options.out_channels()}) : Tensor(), options.bias());
  reset_parameters();
}
template <size_t D, class Derived>
void ConvTransposeNdImpl<D, Derived>::reset_parameters() {
  draw_conv(weight, bias);
}
template <size_t D, class Derived>
void ConvTransposeNdImpl<D, Derived>::pretty_print(std::ostream& out) const {
  out << std::boolalpha << "torch::nn::ConvTranspose" << D << "d(" << options.in_channels() << ", " << options.out_channels()
      << ", kernel_size=" << options.kernel_size() << ", stride=" << options.stride();
  if (*options.padding() != *ExpandingArray<D>(0)) out << ", padding=" << options.padding();
  if (*options.dilation() != *ExpandingArray<D>(1)) out << ", dilation=" << options.dilation();
  if (*options.output_padding() != *ExpandingArray<D>(0)) out << ", output_padding=" << options.output_padding();
  print_end(out, options);
}
template <size_t D, class Derived>
hs::Dims ConvTransposeNdImpl<D, Derived>::extra_for(const Tensor& x, const std::optional<IntArrayRef>& output_size) const {
  hs::Dims extra = options.output_padding().d();
  if (!output_size) return extra;
  const IntArrayRef want = output_size->size() == D ? *output_size : output_size->slice(output_size->size() - D);
  for (size_t d = 0; d < D; ++d) {
    const int64_t stride = (*options.stride())[d], dilation = (*options.dilation())[d];
    const int64_t least = (x.size(int64_t(d) - int64_t(D)) - 1) * stride - 2 * (*options.padding())[d] +
                          dilation * ((*options.kernel_size())[d] - 1) + 1;
    TORCH_CHECK(want[d] >= least && want[d] < least + std::max(stride, dilation), "requested an output size of ", want,
                ", but valid sizes range from ", least, " in dimension ", d);
    extra[int(d)] = want[d] - least;
  }
  return extra;
}
template <size_t D, class Derived>
Tensor ConvTransposeNdImpl<D, Derived>::forward(const Tensor& x, const std::optional<IntArrayRef>& output_size) {
  TORCH_CHECK(std::holds_alternative<enumtype::kZeros>(options.padding_mode()),
              "Only `zeros` padding mode is supported for ConvTranspose", D, "d");
  const hs::ConvTransposeOptions o{.stride = options.stride().d(),
                                   .padding = options.padding().d(),
                                   .output_padding = extra_for(x, output_size),
                                   .groups = options.groups(),
                                   .dilation = options.dilation().d()};
  if constexpr (D == 1) return hs::conv_transpose1d(x.h(), weight.h(), bias.h(), o);
  if constexpr (D == 2) return hs::conv_transpose2d(x.h(), weight.h(), bias.h(), o);
  if constexpr (D == 3) return hs::conv_transpose3d(x.h(), weight.h(), bias.h(), o);
}

#define HS_TORCH_CONV(D)                             \
  template class Cloneable<Conv##D##dImpl>;          \
  template class Cloneable<ConvTranspose##D##dImpl>; \
  template class ConvNdImpl<D, Conv##D##dImpl>;      \
  template class ConvTransposeNdImpl<D, ConvTranspose##D##dImpl>;
HS_TORCH_CONV(1)
HS_TORCH_CONV(2)
HS_TORCH_CONV(3)
#undef HS_TORCH_CONV

#define HS_TORCH_PAD(Name, D, mode_)                                      \
  HS_TORCH_DEFINE_FUNCTION(Name, "(padding=" << options.padding() << ")", \
                           F::pad(x, F::PadFuncOptions({options.padding()->begin(), options.padding()->end()}).mode(mode_)))
    HS_TORCH_PADS(HS_TORCH_PAD)
#undef HS_TORCH_PAD
#define HS_TORCH_PAD(Name)                                                            \
  HS_TORCH_DEFINE_FUNCTION(                                                           \
      Name, "(padding=" << options.padding() << ", value=" << options.value() << ")", \
      F::pad(x, F::PadFuncOptions({options.padding()->begin(), options.padding()->end()}).value(options.value())))
        HS_TORCH_PAD(ConstantPad1d) HS_TORCH_PAD(ConstantPad2d) HS_TORCH_PAD(ConstantPad3d)
#undef HS_TORCH_PAD

}  // namespace torch::nn
