// SPDX-License-Identifier: Apache-2.0
// The op table on the device that computes nothing: shapes, dtypes, strides and errors are the CPU's.
#include <doctest/doctest.h>

#include <set>

#include "framework/tensor/memory.h"
#include "tests/ops/meta_lists.h"
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
  CHECK_EQ(joined_names(refused), joined_names(kNeedValues));
}

TEST_CASE("a plan for a GPU has the longer rows of a large product and of its loss's gradient") {
  for (const Device::Type type : {Device::Type::cpu, Device::Type::cuda}) {
    const PlanFor target(type);
    const bool gpu = type == Device::Type::cuda;
    const TensorOptions half{.dtype = DType::f16, .device = Device::meta};
    const Tensor x = empty({4096, 768}, half), w = empty({1001, 768}, half),
                 next = empty({4096}, {.dtype = DType::i64, .device = Device::meta});
    CHECK(linear(x, w).stride(0) == 1001);  // no backward follows
    w.set_requires_grad();
    const Tensor y = linear(x, w);
    CHECK(y.shape() == Shape{4096, 1001});
    CHECK(y.stride(0) == (gpu ? 1008 : 1001));
    CHECK(linear(x.narrow(0, 0, 512), w).stride(0) == 1001);  // a small product
    CHECK(linear(x, w, {}, true).stride(0) == 1001);          // with its ReLU
    int64_t step = 0;
    y.register_hook([&](const Tensor& g) {
      step = g.stride(0);
      return Tensor();
    });
    cross_entropy(y, next).backward();
    CHECK(step == (gpu ? 1008 : 1001));
  }
}
