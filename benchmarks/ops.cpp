// SPDX-License-Identifier: Apache-2.0
// Times ops by name, for compare_torch_ops.py: a line of JSON in, a line of JSON out.
//   {"op": "linear", "in": [[512, 1024], [1024, 1024], [1024]], "attrs": {}, "dtype": "bfloat16", "backward": true, "repeat": 5,
//   "seconds": 0.03}
//   {"ms": 1.234}
// in: shapes of normal numbers; {"shape": [8192], "below": 50000} are integers, {"list": [...]} a list argument, null one left
// out, {"shape": [], "positive": true} numbers in [0.1, 1.1), "fixed": true takes no gradient, "channels_last": true lies in that
// format. ms: the fastest of `repeat` runs, or of more as long as `seconds` have not passed.
// "threads_independent": as performance.threads_independent.
// backward: forward and backward; else forward without a graph.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>

#include "framework/ops/core/registry.h"
#include "halfstep.h"

using namespace halfstep;
using Json = nlohmann::json;

namespace {

struct Call {
  std::string text = {}, op = {};
  std::vector<TensorArgument> in = {};
  Json attrs = {};
  Tensors wanted = {}, out_gradients = {};
  bool backward = false;
};

Tensor tensor_of(const Json& spec, DType dtype, Call& call) {
  const Json& dims = spec.is_array() ? spec : spec.at("shape");
  const Shape shape(std::span<const int64_t>(dims.get<std::vector<int64_t>>()));
  if (spec.is_object() && spec.contains("below")) return randint(0, spec.at("below").get<int64_t>(), shape);
  const bool positive = spec.is_object() && spec.value("positive", false);
  const MemoryFormat format =
      spec.is_object() && spec.value("channels_last", false) ? MemoryFormat::channels_last : MemoryFormat::contiguous;
  const Tensor t = (positive ? rand(shape) + 0.1 : randn(shape)).to(dtype).to(format).detach();
  if (call.backward && !(spec.is_object() && spec.value("fixed", false))) call.wanted.push_back(t.set_requires_grad());
  return t;
}

Call prepare(const std::string& line) {
  const Json j = Json::parse(line);
  Call call{.text = line, .op = j.at("op"), .attrs = j.value("attrs", Json::object()), .backward = j.value("backward", false)};
  const DType dtype = parse_dtype(j.value("dtype", "float32")).value();
  set_threads_independent(j.value("threads_independent", false));
  for (const Json& spec : j.at("in")) {
    TensorArgument a{.is_list = spec.is_object() && spec.contains("list")};
    if (a.is_list) {
      for (const Json& s : spec.at("list")) a.many.push_back(tensor_of(s, dtype, call));
    } else if (!spec.is_null()) {
      a.one = tensor_of(spec, dtype, call);
    }
    call.in.push_back(a);
  }
  return call;
}

double run(Call& call) {
  const auto begin = std::chrono::steady_clock::now();
  if (call.backward) {
    Tensors out;
    for (const Tensor& t : invoke(call.op, call.in, call.attrs))
      if (t.requires_grad()) out.push_back(t);
    if (call.out_gradients.empty())
      for (const Tensor& t : out) call.out_gradients.push_back(ones_like(t));
    grad(out, call.wanted, call.out_gradients, {.allow_unused = true});
  } else {
    const NoGrad quiet;
    invoke(call.op, call.in, call.attrs);
  }
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) set_num_threads(std::atoi(argv[1]));
  Call call;
  for (std::string line; std::getline(std::cin, line);) {
    try {
      if (line != call.text) {
        call = prepare(line);
        run(call);
      }
      double best = run(call);
      const Json j = Json::parse(line);
      const auto begin = std::chrono::steady_clock::now();
      const std::chrono::duration<double> least(j.value("seconds", 0.0));
      for (int i = 1; i < j.value("repeat", 5) || std::chrono::steady_clock::now() - begin < least; ++i)
        best = std::min(best, run(call));
      std::cout << Json{{"ms", best}} << std::endl;
    } catch (const std::exception& e) { std::cout << Json{{"error", e.what()}} << std::endl; }
  }
}
