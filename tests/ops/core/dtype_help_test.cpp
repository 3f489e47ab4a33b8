// SPDX-License-Identifier: Apache-2.0
// What errors of dtypes advise is done here, and must help.
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "halfstep.h"
#include "tests/ops/op_cases.h"
#include "tests/support/errors.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

constexpr const char *kConvert = "help: convert with to(dtype)", *kRegion = "compute inside an Autocast region";

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("what errors of mixed dtypes advise helps, for every op") {
  int helped_by_region = 0, without_region = 0;
  for (const OpCase& c : op_cases()) {
    if (c.constants) continue;
    for (const auto& [dtype, other] : {std::pair(DType::f32, DType::bf16),
                                       {DType::f16, DType::f32},
                                       {DType::bf16, DType::f16},
                                       {DType::f32, DType::f64},
                                       {DType::f64, DType::f32},
                                       {DType::f32, DType::i64}}) {
      for (size_t i = 0; i < c.inputs.size(); ++i) {
        if (!c.inputs[i].defined() || !c.inputs[i].is_floating_point()) continue;
        const NoGrad off;
        Tensors mixed = in_dtype(c.inputs, dtype);
        mixed[i] = mixed[i].detach().to(other);
        const std::string error = error_of([&] { c.run(mixed); });
        if (!has(error, "all inputs must have one dtype")) continue;
        const std::string what = title(c) + " " + std::to_string(i) + " of " + std::string(name(other)) + ": " + error;
        CAPTURE(what);
        CHECK(has(error, kConvert));
        CHECK(error_of([&] { c.run(in_dtype(c.inputs, DType::f32)); }) == "");
        if (!has(error, kRegion)) {
          ++without_region;
          continue;
        }
        ++helped_by_region;
        const Autocast region(Device::cpu, DType::bf16);
        CHECK(error_of([&] { c.run(mixed); }) == "");
      }
    }
  }
  if (std::getenv("HALFSTEP_OP")) return;
  CHECK(helped_by_region > 20);
  CHECK(without_region > 20);
}

TEST_CASE("a region is advised only where it casts") {
  Linear layer(3, 2);
  for (const DType dtype : {DType::f64, DType::i64})
    CHECK(error_of([&] {
            layer(ones({2, 3}, {.dtype = dtype}));
          }) == "[linear] all inputs must have one dtype, got " + std::string(name(dtype)) +
                    " [2, 3] and float32 [2, 3]\nhelp: convert with to(dtype)");
  const Tensor low = ones({2, 3}, {.dtype = DType::bf16});
  CHECK(has(error_of([&] { layer(low); }), kRegion));
  CHECK(!has(error_of([&] { zeros({2, 3}).scatter_(1, zeros({2, 3}, {.dtype = DType::i64}), low); }), kRegion));  // in place
}

TEST_CASE("helps of modules help") {
  Sequential net{std::make_shared<Linear>(2, 2), std::make_shared<ReLU>()};
  net[0]->recompute_in_backward(true);
  const NamedTensors none = std::vector<NamedTensor>{};
  const std::string error = error_of([&] { functional_call(net, none, ones({1, 2})); });
  CHECK(has(error, "help: get_submodule(\"0\").recompute_in_backward(false)"));
  net.get_submodule("0").recompute_in_backward(false);
  CHECK_NOTHROW(functional_call(net, none, ones({1, 2})));
  net.recompute_in_backward(true);
  CHECK(has(error_of([&] { functional_call(net, none, ones({1, 2})); }), "help: recompute_in_backward(false)"));

  Linear symmetric = register_parametrization(Linear(2, 2), "weight", [](const Tensor& w) { return w + w.t(); });
  CHECK(has(error_of([&] { symmetric.weight = eye(2); }),
            "help: within NoGrad: parametrizations(module, \"weight\").original().copy_(value)"));
  const NoGrad off;
  parametrizations(symmetric, "weight").original().copy_(eye(2));
  CHECK(parametrizations(symmetric, "weight").value().to_vector<float>() == std::vector<float>{2, 0, 0, 2});
}
