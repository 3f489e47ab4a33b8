// SPDX-License-Identifier: Apache-2.0
// Rows of convolutions and pooling.
#include "apps/catalog/rows/layer_rows.h"

namespace halfstep::app {
namespace {

const char* input_of(int dims) { return dims == 1 ? "[C, L]" : dims == 2 ? "[C, H, W]" : "[C, D, H, W]"; }

template <class M>
ModuleRow conv_row(const char* what) {
  return from_input(class_row<M>(joined(what, " of ", input_of(M::kDims))), "in_channels", 1, "those of the input");
}
template <class M>
ModuleRow conv_transpose_row() {
  ModuleRow row = conv_row<M>("transposed convolution");
  row.component.fields.push_back(choice("padding_mode", "zeros", {"zeros"}, "as in PyTorch there is no other"));
  return row;
}

template <class M>
ModuleRow max_pool_row() {
  return class_row<M>(joined("largest element of each window of ", input_of(M::kDims)));
}

template <class M>
ModuleRow avg_pool_row() {
  ModuleRow row = class_row<M>(joined("mean of each window of ", input_of(M::kDims)));
  if (M::kDims == 1) std::erase_if(row.component.fields, [](const Field& f) { return f.key == "divisor_override"; });
  return row;
}

template <class M>
ModuleRow lp_pool_row() {
  return class_row<M>(joined("(sum of x^norm_type)^(1 / norm_type) of each window of ", input_of(M::kDims)));
}

// Makes a row whose sizes are at least 1 in configs.
template <class M>
ModuleRow adaptive_row(const char* what) {
  ModuleRow row = class_row<M>(joined(what, " of windows that cover ", input_of(M::kDims), " evenly"));
  Field& size = row.component.fields[0];
  size.item = std::make_shared<const Field>(size.item->at_least(1));
  if (M::kDims > 1) size = size.with_nulls();
  return row;
}

}  // namespace

void add_window_rows(Catalog<ModuleRow>& catalog) {
  catalog.add(conv_row<Conv1d>("convolution"));
  catalog.add(conv_row<Conv2d>("convolution"));
  catalog.add(conv_row<Conv3d>("convolution"));
  catalog.add(conv_transpose_row<ConvTranspose1d>());
  catalog.add(conv_transpose_row<ConvTranspose2d>());
  catalog.add(conv_transpose_row<ConvTranspose3d>());
  catalog.add(max_pool_row<MaxPool1d>());
  catalog.add(max_pool_row<MaxPool2d>());
  catalog.add(max_pool_row<MaxPool3d>());
  catalog.add(avg_pool_row<AvgPool1d>());
  catalog.add(avg_pool_row<AvgPool2d>());
  catalog.add(avg_pool_row<AvgPool3d>());
  catalog.add(lp_pool_row<LPPool1d>());
  catalog.add(lp_pool_row<LPPool2d>());
  catalog.add(lp_pool_row<LPPool3d>());
  catalog.add(adaptive_row<AdaptiveAvgPool1d>("means"));
  catalog.add(adaptive_row<AdaptiveAvgPool2d>("means"));
  catalog.add(adaptive_row<AdaptiveAvgPool3d>("means"));
  catalog.add(adaptive_row<AdaptiveMaxPool1d>("largest elements"));
  catalog.add(adaptive_row<AdaptiveMaxPool2d>("largest elements"));
  catalog.add(adaptive_row<AdaptiveMaxPool3d>("largest elements"));
}

}  // namespace halfstep::app
