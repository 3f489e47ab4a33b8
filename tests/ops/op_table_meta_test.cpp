// SPDX-License-Identifier: Apache-2.0
// The op table on the device that computes nothing: shapes, dtypes, strides and errors are the CPU's.
#include <doctest/doctest.h>

#include <map>
#include <set>

#include "framework/base/log.h"
#include "tests/ops/damaged_calls.h"
#include "tests/ops/op_cases.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

// The table twice, with inputs of equal geometry.
struct Tables {
  std::vector<OpCase> cpu = op_cases(), meta = op_cases(Device::meta);
  size_t size() const { return cpu.size(); }
};

// Outputs, their gradients by the inputs, and the gradients of those.
Tensors all_results(const OpCase& c, const Tensors& in, bool twice) {
  Tensors all = c.run(in), wanted;
  for (const Tensor& t : in)
    if (t.requires_grad()) wanted.push_back(t);
  const size_t outputs = all.size();
  if (!c.gradient || wanted.empty()) return all;
  for (size_t k = 0; k < outputs; ++k) {
    if (!all[k].requires_grad()) continue;
    const Tensors first =
        grad({all[k]}, wanted, {ones_like(all[k])}, {.retain_graph = true, .create_graph = twice, .allow_unused = true});
    all.insert(all.end(), first.begin(), first.end());
    if (!twice || !c.second_gradient) continue;
    for (const Tensor& g : first) {
      if (!g.defined() || !g.requires_grad()) continue;
      const Tensors second = grad({g}, wanted, {ones_like(g)}, {.retain_graph = true, .allow_unused = true});
      all.insert(all.end(), second.begin(), second.end());
    }
  }
  return all;
}

void check_alike(const Tensors& got, const Tensors& want) {
  REQUIRE(got.size() == want.size());
  for (size_t k = 0; k < got.size(); ++k) {
    CAPTURE(k);
    REQUIRE(got[k].defined() == want[k].defined());
    if (!got[k].defined()) continue;
    CHECK(got[k].shape() == want[k].shape());
    CHECK(got[k].dtype() == want[k].dtype());
    CHECK(got[k].strides() == want[k].strides());
    CHECK(got[k].requires_grad() == want[k].requires_grad());
  }
}

// Ops that check values where reading them is free, which is on the CPU.
const std::set<std::string> kCheckValues = {"bernoulli", "binary_cross_entropy", "cholesky", "gaussian_nll_loss",
    "inverse", "linalg_eigh", "linalg_lstsq", "linalg_matrix_rank", "linalg_pinv", "linalg_solve", "linalg_svd",
    "linalg_svdvals", "logdet", "matrix_power", "multinomial", "pinverse", "repeat_interleave", "slogdet"};
// Ops whose result's shape or course depends on values, which therefore refuse: in all their forms, or in that of a mask (index,
// index_put, where), of numbers in 0-dim tensors (linspace, narrow), of sizes left to be found (embedding_bag with offsets for the
// largest elements, one_hot, repeat_interleave).
const std::set<std::string> kNeedValues = {
    "allclose",  "bincount",          "ctc_loss",       "embedding_bag",      "equal",  "index",
    "index_put", "linspace",          "masked_scatter", "masked_select",      "narrow", "nonzero",
    "one_hot",   "repeat_interleave", "unique",         "unique_consecutive", "where"};

std::string joined(const std::set<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : " ") + name;
  return all;
}

// How a call ends.
struct Outcome {
  Tensors results = {};
  std::string error = {};                              // the text, empty without one
  bool memory = false, index = false, values = false;  // MemoryError, IndexError, MetaError
};

Outcome outcome(const Call& c, bool with_gradient) {
  try {
    return {.results = run(c, with_gradient)};
  } catch (const MemoryError& e) { return {.error = e.what(), .memory = true}; } catch (const IndexError& e) {
    return {.error = e.what(), .index = true};
  } catch (const MetaError& e) { return {.error = e.what(), .values = true}; } catch (const Error& e) {
    return {.error = e.what()};
  }
}

Tensor same_geometry(const Tensor& t) {
  int64_t extent = t.numel() > 0;
  for (int d = 0; d < t.dim() && extent > 0; ++d) extent += (t.size(d) - 1) * t.strides()[d];
  return empty({extent}, {.dtype = t.dtype(), .device = Device::meta}).alias(t.shape(), t.strides(), 0);
}

Call on_meta(const Call& c) {
  Call moved = c;
  for (Tensor* t : slots(moved))
    if (t->defined()) *t = same_geometry(*t);
  return moved;
}

std::string geometry(const Tensors& results) {
  std::ostringstream out;
  for (const Tensor& t : results) {
    if (t.defined())
      out << t.dtype() << t.shape() << t.strides() << ' ';
    else
      out << "none ";
  }
  return out.str();
}

}  // namespace

TEST_CASE("the whole op table has the CPU's shapes, dtypes and strides on meta, forward and backward, in any layout and dtype") {
  const Tables tables;
  std::set<std::string> refused;
  for (size_t i = 0; i < tables.size(); ++i) {
    const OpCase &cpu = tables.cpu[i], &meta = tables.meta[i];
    CAPTURE(title(cpu));
    for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
      CAPTURE(name(dtype));
      const Tensors cpu_in = in_dtype(cpu.inputs, dtype), meta_in = in_dtype(meta.inputs, dtype);
      constexpr decltype(&spread_out) kLayouts[] = {&spread_out, &reversed, &channels_last};
      for (int layout = 0; layout < (dtype == DType::f32 ? 4 : 1); ++layout) {
        CAPTURE(layout);
        Tensors a, b;
        for (size_t k = 0; k < cpu_in.size(); ++k) {
          a.push_back(layout == 0 ? cpu_in[k] : kLayouts[layout - 1](cpu_in[k]));
          b.push_back(layout == 0 ? meta_in[k] : kLayouts[layout - 1](meta_in[k]));
        }
        const bool twice = dtype == DType::f64;
        try {
          const Tensors got = all_results(meta, b, twice);
          check_alike(got, all_results(cpu, a, twice));
          for (const Tensor& t : got)
            if (t.defined() && !meta.inputs.empty()) CHECK(t.device() == Device::meta);
        } catch (const MetaError&) {
          if (cpu.op != "to_device") refused.insert(cpu.op);  // back to the CPU
        }
      }
    }
  }
  CHECK_EQ(joined(refused), joined(kNeedValues));
}

TEST_CASE("damaged calls end on meta as on the CPU: with the same shapes or the same error, but for what values decide") {
  std::map<std::string, std::string> differ;
  std::set<std::string> refused, blind;
  const MemoryLimit limit;
  const logging::Capture quiet([](logging::Level, std::string_view) {});
  for_damaged_calls([&](const Call& c, bool with_gradient) {
    if (c.op == "to_device") return;
    const Outcome cpu = outcome(c, with_gradient);
    if (cpu.memory) return;
    const Outcome meta = outcome(on_meta(c), with_gradient);
    if (meta.values)
      refused.insert(c.op);
    else if (cpu.index)
      return;  // where an index points is a value, too
    else if (cpu.error != meta.error && kCheckValues.contains(c.op))
      blind.insert(c.op);
    else if (cpu.error != meta.error)
      differ.try_emplace(c.op + ": \n  " + cpu.error + "\n  " + meta.error, c.str());
    else if (geometry(cpu.results) != geometry(meta.results))
      differ.try_emplace(c.op + ": \n  " + geometry(cpu.results) + "\n  " + geometry(meta.results), c.str());
  });
  for (const auto& [what, example] : differ) FAIL_CHECK(what, "\n  e.g. ", example);
  CHECK_EQ(joined(refused), joined(kNeedValues));
  CHECK_EQ(joined(blind), joined(kCheckValues));
}
