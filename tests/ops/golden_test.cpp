// SPDX-License-Identifier: Apache-2.0
// Outputs, gradients and autocast results against PyTorch's, replayed by name from goldens.safetensors (scripts/make_goldens.py).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "framework/io/weights/safetensors.h"
#include "framework/ops/core/registry.h"
#include "halfstep.h"
#include "tests/support/source_dir.h"

using namespace halfstep;
using Json = nlohmann::json;

namespace {

const std::string kOps = halfstep_source_dir() + "/tests/ops/";

bool chosen(const std::string& op) {
  const char* wanted = std::getenv("HALFSTEP_OP");
  return !wanted || op.find(wanted) != std::string::npos;
}

// The tensors of one case, and the case.
struct Golden {
  Json text;
  TensorMap tensors;

  bool has(const std::string& label) const { return tensors.contains(label); }
  // The arguments with floating ones in `dtype`; those that have a gradient require it.
  std::vector<TensorArgument> arguments(DType dtype, TensorMap& leaves) const {
    std::vector<TensorArgument> out;
    const auto get = [&](const std::string& label) {
      Tensor t = tensors.at(label);
      if (!t.is_floating_point()) return t;
      t = t.to(dtype).clone();
      if (has("grad." + label)) leaves[label] = t.set_requires_grad();
      return t;
    };
    for (size_t i = 0; i < text["in"].size(); ++i) {
      const Json& spec = text["in"][i];
      TensorArgument a;
      a.is_list = spec.is_object() && spec.contains("list");
      if (a.is_list)
        for (size_t k = 0; k < spec["list"].size(); ++k)
          a.many.push_back(spec["list"][k].is_null() ? Tensor() : get(std::to_string(i) + "." + std::to_string(k)));
      else if (!spec.is_null())
        a.one = get(std::to_string(i));
      out.push_back(a);
    }
    return out;
  }
  Tensors run(DType dtype, TensorMap& leaves) const {
    return invoke(text["op"].get<std::string>(), arguments(dtype, leaves), text["attrs"]);
  }
};

std::map<std::string, Golden> goldens() {
  const auto file = load_safetensors(kOps + "goldens.safetensors");
  std::map<std::string, Golden> out;
  for (const auto& [key, text] : file.metadata)
    if (key != "torch") out[key].text = Json::parse(text);
  for (const auto& [label, t] : file.tensors)
    out.at(label.substr(0, label.find('/'))).tensors[label.substr(label.find('/') + 1)] = t;
  std::erase_if(out, [](const auto& entry) { return !chosen(entry.second.text["op"]); });
  return out;
}

// |got - want| <= rtol (floor + |want|)
void check_close(const Tensor& got, const Tensor& want, double rtol, double floor = 1) {
  REQUIRE(got.shape() == want.shape());
  const auto a = got.to_vector<double>(), b = want.to_vector<double>();
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    CHECK_MESSAGE(std::fabs(a[i] - b[i]) <= rtol * (floor + std::fabs(b[i])), "element ", i, ": ", a[i], " against ", b[i]);
  }
}

std::string label(const Tensors& out, size_t i) { return out.size() == 1 ? "out" : "out." + std::to_string(i); }

// The sum of out.k cos(k, k + 1, ...) differentiated.
void backward_weighted(const Tensors& out) {
  Tensors of, weights;
  for (size_t k = 0; k < out.size(); ++k) {
    if (!out[k].requires_grad()) continue;
    of.push_back(out[k]);
    weights.push_back(
        cos(arange(0, double(out[k].numel()), 1, {.dtype = DType::f64}) + double(k)).reshape(out[k].shape()).to(out[k].dtype()));
  }
  if (!of.empty()) backward(of, weights);
}

double largest(const Tensor& t) {
  double m = 0;
  for (double x : t.to_vector<double>()) m = std::max(m, std::isfinite(x) ? std::fabs(x) : 0);
  return m;
}

}  // namespace

TEST_CASE("ops and their gradients agree with PyTorch" * doctest::test_suite("values")) {
  for (const auto& entry : goldens()) {
    const Golden& golden = entry.second;
    CAPTURE(entry.first);
    CAPTURE(golden.text.dump());
    for (const DType dtype : {DType::f64, DType::f32}) {
      CAPTURE(name(dtype));
      TensorMap leaves;
      Tensors out;
      REQUIRE_NOTHROW(out = golden.run(dtype, leaves));
      for (size_t i = 0; i < out.size(); ++i) {
        REQUIRE(golden.has(label(out, i)));
        const Tensor& want = golden.tensors.at(label(out, i));
        if (dtype == DType::f64) CHECK(out[i].dtype() == want.dtype());
        check_close(out[i], want, out[i].dtype() == DType::f64 ? 1e-10 : 1e-5);
      }
      CHECK(!golden.has("out." + std::to_string(out.size())));
      backward_weighted(out);
      for (const auto& entry_of_leaf : leaves) {
        const Tensor& leaf = entry_of_leaf.second;
        CAPTURE(entry_of_leaf.first);
        const Tensor& want = golden.tensors.at("grad." + entry_of_leaf.first);
        check_close(leaf.grad().defined() ? leaf.grad() : zeros_like(leaf), want, dtype == DType::f64 ? 1e-10 : 2e-5,
                    std::max(1.0, largest(want)));
      }
    }
  }
}

TEST_CASE("ops in a bfloat16 region agree with PyTorch's" * doctest::test_suite("values")) {
  for (const auto& entry : goldens()) {
    const Golden& golden = entry.second;
    if (!golden.has("low.out") && !golden.has("low.out.0")) continue;
    CAPTURE(entry.first);
    CAPTURE(golden.text.dump());
    const bool low = find_op(golden.text["op"].get<std::string>())->policy == CastPolicy::low;
    const Autocast region(Device::cpu, DType::bf16);
    TensorMap leaves;
    const Tensors out = golden.run(low ? DType::f32 : DType::bf16, leaves);
    for (size_t i = 0; i < out.size(); ++i) {
      const Tensor& want = golden.tensors.at("low." + label(out, i));
      CHECK(out[i].dtype() == want.dtype());
      check_close(out[i], want, low ? 2 * epsilon(DType::bf16) : 2e-5, std::max(low ? 0.1 : 1.0, largest(want)));
    }
  }
}

TEST_CASE("every case that PyTorch can answer has a golden") {
  std::set<std::string> have;
  std::set<std::string> ops;
  for (const auto& [key, golden] : goldens()) {
    have.insert(golden.text.dump());
    ops.insert(golden.text["op"].get<std::string>());
  }
  for (const auto& entry : std::filesystem::directory_iterator(kOps + "cases")) {
    if (entry.path().extension() != ".json") continue;
    std::ifstream file(entry.path());
    for (const Json& c : Json::parse(file)) {
      if (!c.value("torch", true) || c.value("sampled", false) || !chosen(c["op"])) continue;
      const Json text = {
          {"op", c["op"]}, {"in", c["in"]}, {"attrs", c.value("attrs", Json::object())}, {"gradient", c.value("gradient", true)}};
      CHECK_MESSAGE(have.contains(text.dump()), "no golden for ", text.dump(),
                    ": run python3 scripts/make_goldens.py (it needs torch)");
    }
  }
#define HS_ROW(name, ...) \
  CHECK_MESSAGE((!chosen(#name) || ops.contains(#name)), "no golden for the row " #name ": run python3 scripts/make_goldens.py");
#define HS_UNARY HS_ROW
#define HS_BINARY HS_ROW
#define HS_TEST HS_ROW
#include "framework/math/elementwise.def"
#undef HS_ROW
}
