// SPDX-License-Identifier: Apache-2.0
#include "apps/examine/op_call.h"

#include <charconv>
#include <new>

#include "amp/autocast/autocast.h"
#include "framework/autograd/autograd.h"
#include "framework/base/check.h"
#include "framework/io/files/json.h"
#include "framework/io/weights/safetensors.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/ops.h"

namespace halfstep::app {
namespace {

constexpr size_t kMaxArguments = 1000;  // positions of a call, and elements of a list

// Parses "3" and "3.1" as positions; empty if `text` is neither.
std::optional<std::pair<size_t, std::optional<size_t>>> position_of(std::string_view text) {
  const auto number = [](std::string_view digits) -> std::optional<size_t> {
    size_t out = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
    return error == std::errc() && end == digits.data() + digits.size() && out < kMaxArguments ? std::optional(out) : std::nullopt;
  };
  const size_t dot = text.find('.');
  const auto first = number(text.substr(0, dot));
  if (!first) return {};
  if (dot == std::string_view::npos) return std::pair{*first, std::optional<size_t>()};
  const auto second = number(text.substr(dot + 1));
  return second ? std::optional(std::pair{*first, second}) : std::nullopt;
}

struct OpInputs {
  std::vector<TensorArgument> arguments;
  TensorMap floating;  // by name in the file: tensors that get a gradient
  TensorMap weights;   // of the outputs, by name in the file
};

OpInputs load_inputs(const OpCall& call) {
  OpInputs in;
  if (call.in.empty()) return in;
  for (const auto& [name, loaded] : load_safetensors(call.in, call.device).tensors) {
    if (name == "w" || name.starts_with("w.")) {
      in.weights.emplace(name, loaded);
      continue;
    }
    const auto at = position_of(name);
    check<DataError>(at.has_value(), "op", "tensor '", name, "' of ", call.in.string(), " is no argument",
                     Help{"arguments are named 0, 1, ..., members of a list 1.0, 1.1, ..., weights of the outputs w or w.0, ..."});
    if (call.grad && loaded.is_floating_point()) in.floating.emplace(name, loaded.set_requires_grad());
    if (in.arguments.size() <= at->first) in.arguments.resize(at->first + 1);
    TensorArgument& a = in.arguments[at->first];
    check<DataError>(!(at->second ? a.one.defined() : a.is_list), "op", "argument ", at->first, " of ", call.in.string(),
                     " is both a tensor and a list");
    if (!at->second) {
      a.one = loaded;
      continue;
    }
    a.is_list = true;
    if (a.many.size() <= *at->second) a.many.resize(*at->second + 1);
    a.many[*at->second] = loaded;
  }
  return in;
}

// Adds the gradients of the weighted sum of the outputs.
void add_gradients(const OpInputs& in, const TensorMap& outputs, TensorMap& results) {
  Tensors differentiable, weights, inputs;
  for (const auto& [name, out] : outputs) {
    if (!out.requires_grad()) continue;
    const auto w = in.weights.find("w" + name.substr(3));  // out.1 -> w.1
    differentiable.push_back(out);
    if (w == in.weights.end()) {
      weights.push_back(full(out.shape(), 1, {.dtype = out.dtype(), .device = out.device()}));
      continue;
    }
    check<ShapeError>(w->second.shape() == out.shape(), "op", w->first, " must have the shape of ", name, ", ", out.shape(),
                      ", got ", w->second.shape());
    weights.push_back(w->second.to(out.dtype()));
  }
  if (differentiable.empty()) return;
  for (const auto& [name, t] : in.floating) inputs.push_back(t);
  const Tensors gradients = grad(differentiable, inputs, weights, {.allow_unused = true});
  size_t i = 0;
  for (const auto& [name, t] : in.floating)
    if (const Tensor& g = gradients[i++]; g.defined()) results.emplace("grad." + name, g);
}

std::string_view type_name(const Error& e) {
#define HALFSTEP_ERROR(type) \
  if (dynamic_cast<const type*>(&e)) return #type;
  HALFSTEP_ERROR(ShapeError)
  HALFSTEP_ERROR(DTypeError)
  HALFSTEP_ERROR(RecordingError)  // also a DeviceError
  HALFSTEP_ERROR(DeviceError)
  HALFSTEP_ERROR(ValueError)
  HALFSTEP_ERROR(IndexError)
  HALFSTEP_ERROR(AutogradError)
  HALFSTEP_ERROR(AmpError)
  HALFSTEP_ERROR(MemoryError)
  HALFSTEP_ERROR(ConfigError)
  HALFSTEP_ERROR(DataError)
  HALFSTEP_ERROR(IoError)
#undef HALFSTEP_ERROR
  return "Error";
}

nlohmann::json parsed(std::string_view text, const char* what) {
  try {
    return read_json<nlohmann::json>(text);
  } catch (const JsonError& e) {
    fail<ConfigError>("op", what, " must be JSON: ", e.what(), e.column ? " in column " + std::to_string(e.column) : "",
                      Help{R"(names and texts are in double quotes; true, false, null, "inf" and "nan" are written so)"});
  }
}

// Prints the first 200 bytes of a value.
std::string excerpt(const nlohmann::json& value) {
  constexpr size_t kMostBytes = 200;
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true);
  return text.size() > kMostBytes ? text.substr(0, kMostBytes) + "..." : text;
}

void check_attributes(const nlohmann::json& value) {
  check<ConfigError>(value.is_object(), "op", "attrs must be a JSON object, got ", excerpt(value), Help{R"(e.g. {"stride": 2})"});
}

}  // namespace

DType autocast_dtype(const std::string& name) {
  const auto dtype = parse_dtype(name);
  check<ConfigError>(dtype && is_half(*dtype), "op", "autocast must be float16 or bfloat16, got '", name, "'");
  return *dtype;
}

OpCall read_op_call(std::string_view text) {
  const nlohmann::json line = parsed(text, "a line");
  check<ConfigError>(line.is_object(), "op", "a line must be an object, got ", excerpt(line));
  OpCall call;
  const auto string = [&](const char* key, const nlohmann::json& value) {
    check<ConfigError>(value.is_string(), "op", "'", key, "' must be a string, got ", excerpt(value));
    return value.get<std::string>();
  };
  for (const auto& [key, value] : line.items()) {
    if (key == "op")
      call.op = string("op", value);
    else if (value.is_null())
      continue;
    else if (key == "in")
      call.in = string("in", value);
    else if (key == "out")
      call.out = string("out", value);
    else if (key == "attrs")
      check_attributes(value), call.attrs = value;
    else if (key == "autocast")
      call.autocast = autocast_dtype(string("autocast", value));
    else if (key == "device")
      call.device = parse_device(string("device", value));
    else if (key == "grad")
      check<ConfigError>(value.is_boolean(), "op", "'grad' must be true or false, got ", excerpt(value)), call.grad = value;
    else
      fail<ConfigError>("op", "a line has no key ", excerpt(key), Help{"the keys are op, in, attrs, autocast, device, grad, out"});
  }
  check<ConfigError>(!call.op.empty(), "op", "a line must name its op, got ", excerpt(line));
  return call;
}

nlohmann::json read_attributes(std::string_view text) {
  nlohmann::json attributes = parsed(text, "attrs");
  check_attributes(attributes);
  return attributes;
}

TensorMap run_op_call(const OpCall& call) {
  const OpInputs in = load_inputs(call);
  const Tensors out = [&] {
    std::optional<Autocast> region;
    if (call.autocast) region.emplace(call.device, *call.autocast);
    return invoke(call.op, in.arguments, call.attrs);
  }();
  TensorMap outputs;
  for (size_t i = 0; i < out.size(); ++i)
    if (out[i].defined()) outputs.emplace(out.size() == 1 ? "out" : "out." + std::to_string(i), out[i]);
  TensorMap results = outputs;
  if (call.grad) add_gradients(in, outputs, results);
  if (!call.out.empty()) save_safetensors(call.out, results);
  return results;
}

Json describe_outputs(const TensorMap& outputs) {
  Json list = Json::array();
  for (const bool gradients : {false, true})  // after the outputs
    for (const auto& [label, t] : outputs)
      if (label.starts_with("grad.") == gradients)
        list.push_back(
            {{"name", label}, {"dtype", name(t.dtype())}, {"shape", std::vector<int64_t>(t.shape().begin(), t.shape().end())}});
  return {{"ok", true}, {"outputs", list}};
}

Json describe_exception() {
  const auto failure = [](std::string_view type, const std::string& error) -> Json {
    return {{"ok", false}, {"type", type}, {"error", error}};
  };
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return failure("MemoryError", "[memory] the host has no memory left");
  } catch (const Error& e) { return failure(type_name(e), e.what()); } catch (...) {
    // Hide a third-party library's message, which does not help users.
    return failure("Exception", "[halfstep] a defect of halfstep itself\nhelp: please report the line");
  }
}

}  // namespace halfstep::app
