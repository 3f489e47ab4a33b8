// SPDX-License-Identifier: Apache-2.0
// The ops that have a form in ONNX. What has no row is exported as the simpler ops that it is made of; what has neither is refused.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "framework/interchange/onnx_call.h"

namespace halfstep {

struct OnnxRow {
  using Nodes = std::function<OnnxNames(OnnxCall&)>;
  using Takes = std::function<bool(const Attributes&, std::span<const Tensor>)>;
  Nodes nodes;  // adds them; the names of the results
  Takes takes;  // which calls of the op it is for; empty: all

  OnnxRow() = default;
  OnnxRow(Nodes n, Takes t = {}) : nodes(std::move(n)), takes(std::move(t)) {}
};
using OnnxRows = std::map<std::string, OnnxRow, std::less<>>;
const OnnxRows& onnx_rows();

void add_elementwise_rows(OnnxRows& rows);
void add_product_rows(OnnxRows& rows);  // and normalisations
void add_window_rows(OnnxRows& rows);
void add_shape_rows(OnnxRows& rows);  // views, reductions, indices
void add_recurrent_rows(OnnxRows& rows);

}  // namespace halfstep
