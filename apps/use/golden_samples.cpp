// SPDX-License-Identifier: Apache-2.0
#include "apps/use/golden_samples.h"

#include <cmath>
#include <set>

#include "apps/terminal/build_info.h"
#include "apps/use/predictor.h"
#include "framework/backend/backend.h"
#include "framework/backend/op_log.h"
#include "framework/io/checkpoint/checkpoint.h"
#include "framework/io/files/base64.h"
#include "framework/io/files/printable.h"

namespace halfstep::app {
namespace {

constexpr int64_t kSamples = 3, kMostOutputs = 4096;     // kMostOutputs: stored numbers of a sample
constexpr double kFloatBound = 1e-4, kHalfBound = 3e-2;  // see check_proof
constexpr uint64_t kSeed = 2026;                         // of the inputs

// Returns the build and the machine, on which equal computations give equal bits.
Json build_and_machine(const Predictor& model) {
  Json out = build_info();
  out["device"] = backend_for(model.parts().device).describe();
  out["threads"] = num_threads();
  return out;
}

}  // namespace

Tensor golden_inputs(const DataForm& form) {
  Generator generator(kSeed);
  const Shape shape = with_batch(kSamples, form.input);
  if (form.input_dtype == DType::i64 || form.vocabulary > 0)
    return randint(0, std::max<int64_t>(form.vocabulary, 1), shape, {.dtype = DType::i64, .device = Device::cpu}, &generator);
  const Tensor x = empty(shape, {.device = Device::cpu});
  return std::holds_alternative<ImageForm>(form.source) ? x.uniform_(0, 1, &generator) : x.normal_(0, 1, &generator);
}

namespace {

// Returns k, where every k-th number of a large output is stored: at most kMostOutputs for each sample.
int64_t stride_of(const Tensor& output) {
  const int64_t numbers = output.numel() / std::max<int64_t>(output.size(0), 1);  // of a sample
  return std::max<int64_t>((numbers + kMostOutputs - 1) / kMostOutputs, 1);
}
// Returns every k-th number of each sample.
Tensor thinned(const Tensor& output) {
  const int64_t stride = stride_of(output);
  if (stride == 1) return output.contiguous();
  return index_select(output.reshape({output.size(0), -1}), 1, arange(0, output.numel() / output.size(0), stride)).contiguous();
}

// Returns the dtypes in which each op computed.
Json computed_dtypes(const OpLogScope& log) {
  std::map<std::string, std::set<std::string>> by_op;
  for (const LoggedCall& call : log.calls())
    if (is_floating(call.compute) && call.op != "to") by_op[call.op].insert(joined(call.compute));
  return by_op;
}

bool computes_in_half(const Json& computed) {
  for (const auto& [op, dtypes] : computed.items())
    for (const Json& d : dtypes)
      if (d == "float16" || d == "bfloat16") return true;
  return false;
}

std::set<std::string> ops_of(const Json& computed) {
  std::set<std::string> out;
  for (const auto& [op, dtypes] : computed.items()) out.insert(op);
  return out;
}

Json tensor_json(const Tensor& t) {
  const std::string_view bytes(static_cast<const char*>(t.const_data_ptr()), size_t(t.nbytes()));
  return {{"dtype", joined(t.dtype())},
          {"shape", std::vector<int64_t>(t.shape().begin(), t.shape().end())},
          {"base64", to_base64(bytes)}};
}

Tensor tensor_of(const Json& json, const std::string& what) {
  const std::string dtype_name = json.at("dtype").get<std::string>();
  check<CheckpointError>(dtype_name == "int64" || dtype_name == "float32" || dtype_name == "float64", "model", what,
                         " must be float32, float64 or int64, got ", printable(dtype_name));
  const DType dtype = dtype_name == "int64" ? DType::i64 : dtype_name == "float64" ? DType::f64 : DType::f32;
  const Shape shape(json.at("shape").get<std::vector<int64_t>>());
  check_size("proof", shape);
  const std::string bytes = from_base64(json.at("base64").get<std::string>(), what);
  check<CheckpointError>(int64_t(bytes.size()) == numel(shape) * int64_t(size_of(dtype)), "model", what, " has ", bytes.size(),
                         " bytes, which are not ", shape);
  const Tensor out = Tensor::empty(shape, {.dtype = dtype, .device = Device::cpu});
  std::copy(bytes.begin(), bytes.end(), static_cast<char*>(out.view().data));
  return out;
}

}  // namespace

Proof make_proof(const Predictor& model, const Tensor& input, const ProofFunction& function) {
  const OpLogScope log(model.parts().device);
  const Tensor output = function(input);
  return {input, thinned(output), computed_dtypes(log), build_and_machine(model)};
}
Proof make_proof(const Predictor& model) {
  return make_proof(model, golden_inputs(model.form()), [&](const Tensor& x) { return model(x); });
}

std::string to_text(const Proof& proof) {
  return Json{{"input", tensor_json(proof.input)},
              {"output", tensor_json(proof.output)},
              {"computed", proof.computed},
              {"written_by", proof.written_by}}
      .dump();
}

Proof read_proof(const std::string& text, const std::string& path) {
  const std::string what = path + ": its golden samples (halfstep.proof)";
  try {
    const Json json = Json::parse(text);
    const Proof out{tensor_of(json.at("input"), what), tensor_of(json.at("output"), what), json.at("computed"),
                    json.at("written_by")};
    check<CheckpointError>(
        out.input.dim() > 0 && out.output.dim() > 0 && out.input.size(0) == out.output.size(0) && out.input.size(0) > 0, "model",
        what, " must be as many inputs as outputs, and at least one, got ", out.input.shape(), " and ", out.output.shape());
    return out;
  } catch (const CheckpointError&) { throw; } catch (const Error&) {
    fail<CheckpointError>("model", what, " cannot be read");
  } catch (const Json::exception&) { fail<CheckpointError>("model", what, " cannot be read"); }
}

std::string check_proof(const Predictor& model, const Proof& proof) {
  const OpLogScope log(model.parts().device);
  const Tensor full_output = model(proof.input), output = thinned(full_output);
  const Json computed = computed_dtypes(log);
  const std::string where = model.checkpoint().string();
  check<CheckpointError>(output.shape() == proof.output.shape(), "check", where, ": the golden samples' answers had the shape ",
                         proof.output.shape(), " when the file was written, and have ", output.shape(), " now");
  // The same ops in other dtypes are the same model in another precision, as with --no-amp.
  const bool is_same_build =
      build_and_machine(model) == proof.written_by && (computed == proof.computed || ops_of(computed) != ops_of(proof.computed));
  const double bound = is_same_build                                                    ? 0
                       : computes_in_half(computed) || computes_in_half(proof.computed) ? kHalfBound
                                                                                        : kFloatBound;
  const std::vector<double> now = output.to_vector<double>(), then = proof.output.to_vector<double>();
  const size_t samples = size_t(output.size(0)), width = samples ? now.size() / samples : 0;  // width: numbers of a sample
  double worst = 0;
  for (size_t i = 0; i < now.size(); ++i) {
    if (now[i] == then[i] || (std::isnan(now[i]) && std::isnan(then[i]))) continue;
    const double deviation = std::abs(now[i] - then[i]) / (1 + std::abs(then[i]));
    check<CheckpointError>(
        deviation <= bound, "check", where, ": golden sample ", i / width + 1, " of ", samples, ", output ",
        int64_t(i % width) * stride_of(full_output), " was ", then[i], " when the file was written, and is ", now[i],
        " now (bound ", bound, ")",
        Help{is_same_build ? "machine and build are the same: weights, config or data of the file were changed"
                           : "weights, config or data of the file were changed, or this machine computes otherwise"});
    worst = std::max(worst, deviation);
  }
  return worst == 0 ? joined(samples, " golden samples: to the bit")
                    : joined(samples, " golden samples: within ", worst, " of 1 + |y| (bound ", bound, ")");
}

}  // namespace halfstep::app
