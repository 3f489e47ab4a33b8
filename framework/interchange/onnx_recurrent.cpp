// SPDX-License-Identifier: Apache-2.0
// Exports recurrent layers as ONNX's LSTM, GRU and RNN, whose weights have their gates in another order.
#include "framework/interchange/onnx_rows.h"
#include "framework/ops/ops.h"
#include "framework/ops/recurrent/sequence_layer.h"

namespace halfstep {
namespace {
namespace row {  // separate from the ops of these names

// Returns the rows of a parameter with its gates in ONNX's order.
Tensor in_onnx_order(const Tensor& t, const Ints& gates, int64_t units) {
  Tensors rows;
  for (const int64_t g : gates) rows.push_back(t.narrow(0, g * units, units));
  return cat(rows, 0);
}

// Exports one layer in one direction, over all steps. The rows of x are steps times samples.
OnnxNames recurrent_layer(OnnxCall& c) {
  const bool lstm = c.op() == "lstm", gru = c.op() == "gru";
  const int64_t units = c.x(kWhh).size(1);
  const Ints order = lstm ? Ints{0, 3, 1, 2} : gru ? Ints{1, 0, 2} : Ints{0};  // i o f c; z r h
  const Tensor zero = zeros({int64_t(order.size()) * units}, {.dtype = c.x(kWhh).dtype()});
  const auto weight = [&](size_t i) { return c.constant(in_onnx_order(c.x(i), order, units).unsqueeze(0)); };
  const auto bias = [&](size_t i) { return in_onnx_order(c.has_input(i) ? c.x(i) : zero, order, units); };
  const auto state = [&](size_t i) { return c.has_input(i) ? c.unsqueeze(c.in(i), 0) : std::string(); };

  const std::string x = c.reshape(c.in(kX), {c.size("steps"), c.size("batch"), {c.x(kX).size(1)}});
  OnnxNames in{x, weight(kWih), weight(kWhh), c.constant(cat({bias(kBih), bias(kBhh)}, 0).unsqueeze(0)), "", state(kH)};
  if (lstm) in.push_back(state(kC));
  OnnxFile::Named a{{"hidden_size", units}, {"direction", std::string(c.flag("reverse") ? "reverse" : "forward")}};
  if (gru) a.push_back({"linear_before_reset", int64_t(1)});
  if (!lstm && !gru) a.push_back({"activations", std::vector<std::string>{c.op() == "rnn_tanh" ? "Tanh" : "Relu"}});
  const OnnxNames made = c.file().nodes(lstm ? "LSTM" : gru ? "GRU" : "RNN", in, a, lstm ? 3 : 2);
  OnnxNames out{c.reshape(made[0], c.result_shape(0))};
  for (size_t i = 1; i < made.size(); ++i) out.push_back(c.squeeze(made[i], 0));
  return out;
}

// Accepts sequences of equal length, without the projection that ONNX's LSTM lacks.
bool has_onnx_form(const Attributes& a, std::span<const Tensor> in) {
  const bool* const uniform = find_attribute<bool>(a, "uniform");
  return uniform && *uniform && !in[kWhr].defined();
}

}  // namespace row
}  // namespace

void add_recurrent_rows(OnnxRows& rows) {
  for (const char* op : {"lstm", "gru", "rnn_tanh", "rnn_relu"}) rows[op] = {row::recurrent_layer, row::has_onnx_form};
}

}  // namespace halfstep
