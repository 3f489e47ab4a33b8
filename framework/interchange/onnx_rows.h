// SPDX-License-Identifier: Apache-2.0
// The ops that have a form in ONNX. An op without a row is exported as the simpler ops that compose it, or refused if there are
// none.
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
  using Accepts = std::function<bool(const Attributes&, std::span<const Tensor>)>;
  Nodes nodes;      // adds the nodes; returns the names of the results
  Accepts accepts;  // whether it can export a call of the op; empty: always

  OnnxRow() = default;
  OnnxRow(Nodes nodes_, Accepts accepts_ = {}) : nodes(std::move(nodes_)), accepts(std::move(accepts_)) {}
};
using OnnxRows = std::map<std::string, OnnxRow, std::less<>>;
const OnnxRows& onnx_rows();

void add_elementwise_rows(OnnxRows& rows);
void add_product_rows(OnnxRows& rows);  // includes normalisations
void add_window_rows(OnnxRows& rows);
void add_shape_rows(OnnxRows& rows);  // includes views, reductions and indices
void add_recurrent_rows(OnnxRows& rows);

}  // namespace halfstep
