// SPDX-License-Identifier: Apache-2.0
// Tensors as options, such as the weights of classes.
#pragma once

#include "framework/base/options.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

template <>
struct OptionMember<Tensor> {
  static constexpr OptionKind kKind = OptionKind::tensor;
  static OptionValue get(const Tensor&) { return {}; }        // values of a tensor are not read back
  static bool put(Tensor& member, const OptionValue& value);  // from a list of numbers
};
// Returns the option for the weights of a loss.
template <class O>
Option<O> weight_of(const char* doc, Tensor O::*member = &O::weight, const char* name = "weight") {
  return option(name, member, doc).at_least(0).unseen();
}

}  // namespace halfstep
