// SPDX-License-Identifier: Apache-2.0
// Optimizers as configs name them, under the settings of PyTorch's own tests (scripts/make_optim_db_goldens.py).
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "apps/catalog/optimizers.h"
#include "framework/io/weights/safetensors.h"
#include "tests/optim/problem.h"
#include "tests/support/source_dir.h"

using namespace halfstep;
using namespace halfstep::app;

namespace {

// Muon multiplies its matrices in bfloat16; NAdam and Adafactor keep a number of each parameter in float32. In float32 a sign can
// decide otherwise, and with it Rprop's next step.
double tolerance_of(const std::string& type, DType dtype, int64_t steps) {
  if (type == "Muon") return double(steps) * 2e-4 + 1e-3;
  if (dtype == DType::f64) return type == "NAdam" || type == "Adafactor" ? 1e-6 : 1e-12;
  return type == "Rprop" ? 1e-5 : 4e-6;
}

std::unique_ptr<Optimizer> optimizer_of(const std::string& type, Json args, const Tensor& parameter) {
  args["type"] = type;
  Issues issues;
  const Json self = validate(args, component("optimizer", optimizer_family(), ""), "optimizer", issues);
  for (const Issue& issue : issues.list()) FAIL_CHECK(issue.path << ": " << issue.message);
  return optimizer_catalog().row(self).make(self, {ParamGroup{{parameter}}});
}

}  // namespace

TEST_CASE("a config's optimizers do what PyTorch's do under the settings of its own tests") {
  const TensorFile file = load_safetensors(halfstep_source_dir() + "/tests/apps/catalog/optim_db.safetensors");
  const Json steps = Json::parse(file.metadata.at("steps"));
  REQUIRE(file.tensors.size() >= 84);
  for (const auto& [key, want] : file.tensors) {
    const Json golden = Json::parse(file.metadata.at(key));
    CAPTURE(golden.dump());
    for (DType dtype : {DType::f64, DType::f32}) {
      CAPTURE(dtype);
      const Tensor p = problem::parameter(dtype, {2, 3});
      const auto optimizer = optimizer_of(golden["type"], golden["args"], p);
      int done = 0;
      for (size_t k = 0; k < steps.size(); ++k) {
        for (; done < steps[k].get<int>(); ++done) {
          problem::set_gradient(p, done);
          optimizer->step();
        }
        CAPTURE(done);
        const std::vector<double> got = p.to(DType::f64).to_vector<double>(), wanted = want[int64_t(k)].to_vector<double>();
        for (size_t i = 0; i < got.size(); ++i)
          CHECK(std::abs(got[i] - wanted[i]) <= tolerance_of(golden["type"], dtype, done) * (1 + std::abs(wanted[i])));
      }
    }
  }
}
