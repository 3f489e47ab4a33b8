// SPDX-License-Identifier: Apache-2.0
#include "framework/interchange/onnx_export.h"

#include <algorithm>

#include "framework/autograd/grad_mode.h"
#include "framework/interchange/onnx_rows.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {

constexpr const char* kExport = "export";
constexpr int64_t kSamplesA = 2, kSamplesB = 3;

// Returns a tensor of `shape` whose element i is element i * step + begin of the example, in a circle.
Tensor rearranged(const Tensor& x, const Shape& shape, int64_t step, int64_t begin) {
  const Tensor flat = x.reshape({-1});
  std::vector<int64_t> from(size_t(numel(shape)));
  for (size_t i = 0; i < from.size(); ++i) from[i] = (int64_t(i) * step + begin) % flat.numel();
  return index_select(flat, 0, from_vector(from, {int64_t(from.size())}, Device::cpu)).reshape(shape);
}

struct Samples {
  Tensor a, b;
};
// Makes the samples of both calls with different values, so that everything that depends on them differs.
Samples samples_of(const Tensor& example, int dim, bool has_batch) {
  const Tensor x = example.detach().cpu().contiguous();
  check<ExportError>(x.numel() > 0, kExport, "an example must have elements, got ", x.shape());
  Shape shape_a = x.shape(), shape_b = x.shape();
  if (has_batch) shape_a[dim] = kSamplesA, shape_b[dim] = kSamplesB;
  const Tensor a = rearranged(x, shape_a, 1, 0);
  constexpr int64_t kMostOrders = 100, kStep = 7;  // orders that are tried until the values differ
  const auto differs = [&](const Tensor& b) { return !same_values(a, has_batch ? b.narrow(dim, 0, kSamplesA) : b); };
  for (int64_t begin = 1; begin <= std::min(x.numel(), kMostOrders); ++begin) {
    if (const Tensor b = rearranged(x, shape_b, kStep, begin); differs(b)) return {a, b};
  }
  check<ExportError>(x.is_floating_point(), kExport, "an example's values must differ, got ", x.shape(), " of one value",
                     Help{"what depends on the input is found by calls with different values"});
  const double value = x.reshape({-1})[0].item<double>();
  // All elements are equal: b is another value.
  return {a, full(shape_b, value == 0 ? 0.5 : 0.75 * value, {.dtype = x.dtype()})};
}

// Returns the row that exports a call of the op; null if there is none.
const OnnxRow* row_for(std::string_view op, const Attributes& a, std::span<const Tensor> inputs) {
  const auto row = onnx_rows().find(op);
  return row != onnx_rows().end() && (!row->second.accepts || row->second.accepts(a, inputs)) ? &row->second : nullptr;
}

// Calls f and returns the ops that it called; `out` gets its results.
std::vector<TraceCall> trace_calls(const OnnxFunction& f, const Tensors& in, Tensors& out) {
  const GraphTrace scope(in, [](auto op, auto& attributes, auto inputs) { return row_for(op, attributes, inputs) != nullptr; });
  out = f(in);
  return scope.calls();
}

// Returns the given name of input or output i, or one made of `what`, for one of `count`.
std::string name_of(const std::vector<std::string>& names, size_t i, const std::string& what, size_t count) {
  if (i < names.size()) return names[i];
  return count == 1 ? what : what + std::to_string(i);
}

// Adds the nodes of one call. Calls that do not depend on the inputs only made constants.
void add_call(OnnxGraph& graph, const TraceCall& a, const TraceCall& b) {
  OnnxCall call(graph, a, b);
  if (a.op != b.op || a.inputs.size() != b.inputs.size() || a.outputs.size() != b.outputs.size())
    fail<ExportError>(kExport, "the model does different things for different inputs: ", a.op, " for one, ", b.op, " for another",
                      a.layer.empty() ? "" : ", in layer " + a.layer);
  for (const TraceTensor& t : a.inputs) {
    if (t.depends && !graph.varying.contains(value_of(t)))
      call.refuse("it reads memory of which a part was written in place, which has no form in ONNX");
  }
  if (!call.any_varies()) return;
  Tensors inputs;
  for (const TraceTensor& t : a.inputs) inputs.push_back(t.tensor);
  const OnnxRow* const row = row_for(a.op, a.attributes, inputs);
  if (!row) call.refuse("it has no form in ONNX");
  graph.file.layer(a.layer);
  const OnnxNames out = row->nodes(call);
  for (size_t i = 0; i < out.size() && i < a.outputs.size(); ++i) graph.varying[value_of(a.outputs[i])] = out[i];
}

}  // namespace

OnnxSummary export_onnx(const std::filesystem::path& path, const OnnxFunction& function,
                        const std::vector<std::pair<std::string, Tensor>>& names, const Tensors& examples,
                        const OnnxOptions& options) {
  const NoGrad off;
  check<ExportError>(!examples.empty(), kExport, "a model needs an example of its input");
  const int dim = options.batch_dim;
  const int64_t samples = examples[0].size(dim);
  Tensors in_a, in_b;
  OnnxGraph graph;
  graph.samples_a = kSamplesA, graph.samples_b = kSamplesB;
  graph.batch_dim = dim;
  for (size_t i = 0; i < examples.size(); ++i) {
    const bool has_batch = examples[i].dim() > dim && examples[i].size(dim) == samples;
    const Samples s = samples_of(examples[i], dim, has_batch);
    in_a.push_back(s.a);
    in_b.push_back(s.b);
    const std::string name = name_of(options.input_names, i, "input", examples.size());
    if (i == 0) graph.batch_input = name;
    graph.file.input(name, s.a.dtype(), s.a.shape(), has_batch ? dim : -1);
    graph.varying[value_of({s.a, s.a.version()})] = name;
  }
  for (const auto& [name, tensor] : names)
    if (tensor.defined()) graph.parameters[value_of({tensor, tensor.version()})] = name;

  function(in_a);  // makes what layers create at their first call and keep
  Tensors out_a, out_b;
  const std::vector<TraceCall> a = trace_calls(function, in_a, out_a), b = trace_calls(function, in_b, out_b);
  check<ExportError>(a.size() == b.size() && out_a.size() == out_b.size(), kExport,
                     "the model does different things for different inputs: ", a.size(), " ops for one, ", b.size(),
                     " for another");
  for (size_t i = 0; i < a.size(); ++i) add_call(graph, a[i], b[i]);

  graph.file.layer("");
  for (size_t i = 0; i < out_a.size(); ++i) {
    const Tensor& y = out_a[i];
    const auto found = graph.varying.find(value_of({y, y.version()}));
    check<ExportError>(found != graph.varying.end(), kExport, "the result does not depend on the input",
                       Help{"or is made from it by something that is no op"});
    int batch = -1;
    for (int d = 0; d < y.dim(); ++d)
      if (y.size(d) != out_b[i].size(d)) batch = d;
    const std::string name = name_of(options.output_names, i, "output", out_a.size());
    graph.file.result(found->second, name, y.dtype(), y.shape(), batch);
  }
  return {graph.file.ops(), graph.file.save(path, options.metadata, options.external)};
}

}  // namespace halfstep
