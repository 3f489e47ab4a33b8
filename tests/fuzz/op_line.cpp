// SPDX-License-Identifier: Apache-2.0
// A line of `halfstep op --batch`. Its op runs on a few small tensors, and without writing anything.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/examine/op_call.h"
#include "framework/io/files/json.h"
#include "framework/io/weights/safetensors.h"
#include "framework/ops/ops.h"
#include "tests/fuzz/fuzz.h"

using namespace halfstep;

namespace {

// The product of all whole numbers above 1. What asks for much memory, and gets it, is no finding here.
double extent(const nlohmann::json& value) {
  double out = 1;
  if (value.is_structured()) {
    for (const auto& inner : value) out *= extent(inner);
  } else if (value.is_number()) {
    out = std::max(1.0, std::abs(value.get<double>()));
  }
  return out;
}

}  // namespace

HALFSTEP_FUZZ_HARNESS(op_line) {
  static const std::filesystem::path inputs = [] {
    const auto path = fuzz::folder() / "in.safetensors";
    const Tensor x = (arange(0, 6, 1) * 0.25 - 0.5).reshape({2, 3});
    save_safetensors(path, {{"0", x}, {"1", x * 2.0}, {"2", arange(0, 3, 1)}});
    return path;
  }();
  static const std::filesystem::path one = [] {
    const auto path = fuzz::folder() / "one.safetensors";
    save_safetensors(path, {{"0", arange(0, 8, 1).reshape({1, 2, 2, 2})}});
    return path;
  }();
  fuzz::typed([&] {
    app::OpCall call = app::read_op_call(fuzz::text_of(data, size));
    call.out.clear();
    if (!call.in.empty()) call.in = call.in == "one" ? one : inputs;
    if (!call.device.is_cpu() || extent(call.attrs) > 1e5) return;
    app::describe_outputs(app::run_op_call(call)).dump();
  });
  return 0;
}
