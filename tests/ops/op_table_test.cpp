// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include "framework/ops/core/registry.h"
#include "tests/ops/op_cases.h"

using namespace halfstep;
using halfstep::testing::channels_last;
using halfstep::testing::op_cases;
using halfstep::testing::OpCase;
using halfstep::testing::reversed;
using halfstep::testing::spread_out;

namespace {

Tensors to_dtype(const Tensors& in, DType dtype) {
  Tensors out;
  for (const Tensor& t : in) out.push_back(t.is_floating_point() ? t.detach().to(dtype) : t);
  return out;
}

bool same_number(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

}  // namespace

TEST_CASE("every op has a case, a documented row and, unless declared, a gradient") {
  if (std::getenv("HALFSTEP_OP")) return;
  std::set<std::string> with_case, with_gradient;
  for (const OpCase& c : op_cases()) {
    CHECK_MESSAGE(find_op(c.op) != nullptr, "case for an op that is not registered: ", c.op);
    with_case.insert(c.op);
    if (c.gradient) with_gradient.insert(c.op);
  }
  std::set<std::string_view> names;
  for (const Op& op : all_ops()) {
    if (!op.alias_of.empty()) continue;
    const std::string name(op.name);
    CAPTURE(name);
    CHECK(names.insert(op.name).second);
    CHECK(!op.doc.empty());
    CHECK_MESSAGE(with_case.contains(name), "no case");
    if (op.differentiable) CHECK_MESSAGE(with_gradient.contains(name), "no gradient case");
  }
}

TEST_CASE("first derivatives against differences" * doctest::test_suite("values")) {
  for (const OpCase& c : op_cases()) {
    if (!c.gradient) continue;
    CAPTURE(title(c));
    CHECK_NOTHROW(gradcheck(c.run, c.inputs));
  }
}

TEST_CASE("second derivatives against differences" * doctest::test_suite("values")) {
  for (const OpCase& c : op_cases()) {
    if (!c.gradient || !c.second_gradient) continue;
    CAPTURE(title(c));
    CHECK_NOTHROW(gradgradcheck(c.run, c.inputs));
  }
}

TEST_CASE("other layouts give the same values and gradients" * doctest::test_suite("values")) {
  for (const OpCase& c : op_cases()) {
    CAPTURE(title(c));
    const Tensors expected = c.run(c.inputs);
    for (auto* relayout : {&spread_out, &reversed, &channels_last}) {
      Tensors in;
      bool changed = false;
      for (const Tensor& t : c.inputs) {
        in.push_back((*relayout)(t));
        changed = changed || !in.back().same(t);
      }
      if (!changed) continue;
      const Tensors got = c.run(in);
      REQUIRE(got.size() == expected.size());
      for (size_t i = 0; i < got.size(); ++i) {
        CHECK(got[i].shape() == expected[i].shape());
        const auto a = got[i].to_vector<double>(), b = expected[i].to_vector<double>();
        for (size_t k = 0; k < a.size(); ++k)
          if (!same_number(a[k], b[k])) CHECK(a[k] == doctest::Approx(b[k]).epsilon(1e-12));
      }
      if (c.gradient) CHECK_NOTHROW(gradcheck(c.run, in));
    }
  }
}

TEST_CASE("float32, float16 and bfloat16 are within rounding of float64" * doctest::test_suite("values")) {
  for (DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const OpCase& c : op_cases()) {
      CAPTURE(title(c));
      CAPTURE(name(dtype));
      if (c.inputs.empty()) continue;  // its dtype is an attribute
      // The rounded inputs in float64 are the truth.
      const Tensors low = to_dtype(c.inputs, dtype);
      const Tensors got = c.run(low), want = c.run(to_dtype(low, DType::f64));
      for (size_t i = 0; i < got.size(); ++i) {
        if (!is_floating(want[i].dtype())) {
          CHECK(all(got[i] == want[i]).item<bool>());
          continue;
        }
        // Of integers: float32.
        CHECK(got[i].dtype() == (want[i].dtype() == DType::f64 && !c.always_f64 ? dtype : want[i].dtype()));
        const auto a = got[i].to_vector<double>(), b = want[i].to_vector<double>();
        for (size_t k = 0; k < a.size(); ++k) {
          if (same_number(a[k], b[k])) continue;
          // float32 intermediate results cost a few of its own ulps; 16-bit results are one rounding away.
          const double ulp = std::max(std::fabs(b[k]), dtype == DType::f16 ? 6.1e-5 : 1e-30) * epsilon(dtype);
          CHECK(std::fabs(a[k] - b[k]) <= (dtype == DType::f32 ? 16 : c.ulps) * ulp + 4e-7);
        }
      }
    }
  }
}

TEST_CASE("a graph recorded inside backward gives the gradients of a plain one") {
  for (const OpCase& c : op_cases()) {
    if (!c.gradient) continue;
    CAPTURE(title(c));
    Tensors wanted;
    for (const Tensor& t : c.inputs)
      if (t.requires_grad()) wanted.push_back(t);
    for (size_t o = 0; o < c.run(c.inputs).size(); ++o) {
      const Tensor plain = c.run(c.inputs)[o], again = c.run(c.inputs)[o];
      if (!plain.requires_grad()) continue;
      const Tensor g = full(plain.shape(), 0.7, {.dtype = DType::f64});
      const Tensors a = grad({plain}, wanted, {g}, {.allow_unused = true});
      const Tensors b = grad({again}, wanted, {g}, {.create_graph = true, .allow_unused = true});
      for (size_t i = 0; i < a.size(); ++i) {
        REQUIRE(a[i].defined() == b[i].defined());
        if (!a[i].defined()) continue;
        const auto x = a[i].to_vector<double>(), y = b[i].to_vector<double>();
        for (size_t k = 0; k < x.size(); ++k) CHECK(x[k] == doctest::Approx(y[k]).epsilon(1e-10));
      }
    }
  }
}
