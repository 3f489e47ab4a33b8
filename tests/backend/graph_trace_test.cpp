// SPDX-License-Identifier: Apache-2.0
// Traces: what they keep of op calls, and what they take for an input.
#include "framework/backend/graph_trace.h"

#include <doctest/doctest.h>

#include "amp/autocast/autocast.h"
#include "framework/backend/op_log.h"
#include "framework/base/layer_path.h"
#include "framework/ops/ops.h"

using namespace halfstep;

namespace {

std::vector<std::string> ops(const GraphTrace& trace) {
  std::vector<std::string> out;
  for (const TraceCall& call : trace.calls()) out.push_back(call.op);
  return out;
}
const auto everything = [](std::string_view, const Attributes&, std::span<const Tensor>) { return true; };
const auto all_but = [](std::string_view left_out) {
  return [=](std::string_view op, const Attributes&, std::span<const Tensor>) { return op != left_out; };
};

}  // namespace

TEST_CASE("a trace has each call with its layer, attributes, tensors and whether they depend on the input") {
  const Tensor x = randn({1, 3, 8, 8}), w = randn({4, 3, 3, 3});
  const std::string layer = "features.0";
  const GraphTrace trace({x}, everything);
  Tensor y;
  {
    const LayerScope in(&layer);
    y = conv2d(x, w, Tensor(), {.stride = 2, .padding = 1});
  }
  const Tensor last = y.permute({0, 2, 3, 1});
  mul(last, (w + 1).sum());
  CHECK(ops(trace) == std::vector<std::string>{"conv2d", "permute", "add", "sum", "mul"});
  const TraceCall& conv = trace.calls()[0];
  CHECK(conv.layer == layer);
  CHECK(text(conv.attributes) ==
        "kernel_size=[3, 3] stride=[2, 2] padding=[1, 1] dilation=[1, 1] groups=1 relu=false in=[8, 8] out=[4, 4]");
  CHECK(conv.inputs.size() == 3);
  CHECK(conv.inputs[0].tensor.same(x));
  CHECK(conv.inputs[0].depends);
  CHECK(!conv.inputs[1].depends);
  CHECK(!conv.inputs[2].tensor.defined());
  CHECK(conv.outputs[0].tensor.same(y));
  CHECK(text(trace.calls()[1].attributes) == "dims=[0, 2, 3, 1]");
  const TraceCall& product = trace.calls()[4];
  CHECK(product.inputs[0].depends);  // through the view
  CHECK(!product.inputs[1].depends);
}

TEST_CASE("an op that the reader does not take is traced as the ops that it is made of") {
  const Tensor x = rand({2, 4, 4});
  {
    const GraphTrace trace({x}, all_but("silu"));
    const Tensor y = silu(x);
    CHECK(ops(trace) == std::vector<std::string>{"sigmoid", "mul"});
    CHECK(trace.calls()[1].outputs[0].tensor.same(y));
  }
  const GraphTrace trace({x}, all_but("scaled_dot_product_attention"));
  scaled_dot_product_attention(x, x, x);
  CHECK(ops(trace).size() > 3);
  for (const TraceCall& call : trace.calls()) CHECK(call.op != "scaled_dot_product_attention");
}

TEST_CASE("an op without simpler ops is in the trace, though the reader does not take it") {
  const Tensor x = rand({3});
  const GraphTrace trace({x}, all_but("digamma"));
  digamma(x);
  CHECK(ops(trace) == std::vector<std::string>{"digamma"});
}

TEST_CASE("casts of autocast and writes in place are calls") {
  const Tensor x = randn({2, 3}), w = randn({4, 3});
  const GraphTrace trace({x}, everything);
  {
    const Autocast region(Device::cpu, {.dtype = DType::bf16});
    linear(x, w);
  }
  const Tensor y = x * 2;
  y.relu_();
  CHECK(ops(trace) == std::vector<std::string>{"to", "to", "linear", "mul", "relu", "copy_"});
  CHECK(text(trace.calls()[0].attributes) == "dtype=bfloat16");
  const TraceCall& write = trace.calls()[5];
  CHECK(write.outputs[0].tensor.same(y));
  CHECK(write.outputs[0].version == trace.calls()[3].outputs[0].version + 1);
}

TEST_CASE("numbers that depend on the input cannot be read on the host while a trace is open") {
  const Tensor x = randn({4}), w = randn({4});
  {
    const GraphTrace trace({x}, everything);
    CHECK_THROWS_AS(x.sum().item<double>(), ExportError);
    CHECK_THROWS_AS(x.view({2, 2}).to_vector<float>(), ExportError);
    CHECK_NOTHROW(w.sum().item<double>());
  }
  CHECK_NOTHROW(x.sum().item<double>());
}

TEST_CASE("the log of calls has the attributes of a call") {
  const OpLogScope log(Device::cpu);
  rand({2, 3}).sum(1, true);
  CHECK(text(log.calls().back().attributes) == "dims=[1] keepdim=true");
}
