// SPDX-License-Identifier: Apache-2.0
// The norm of a residual sum: the bits of the sum and the norm, forward and backward, and no more that is kept; and norms that
// round to a reader's 16 bits at once.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "amp/autocast/autocast.h"
#include "framework/autograd/autograd.h"
#include "framework/backend/op_log.h"
#include "framework/ops/ops.h"
#include "tests/support/same_bits.h"

using namespace halfstep;

namespace {

struct Norm {
  Shape shape, normalized;
  bool centered = true, affine = true;
  MemoryFormat format = MemoryFormat::contiguous;

  Tensors operator()(bool fused, const Tensor& x, const Tensor& branch, const Tensor& w, const Tensor& b,
                     std::optional<DType> rounded = {}) const {
    if (fused)
      return centered ? add_layer_norm(x, branch, normalized, w, b, 1e-5, rounded)
                      : add_rms_norm(x, branch, normalized, w, 1e-5, rounded);
    const Tensor sum = x + branch;
    return {centered ? layer_norm(sum, normalized, w, b, 1e-5, rounded) : rms_norm(sum, normalized, w, 1e-5, rounded), sum};
  }
};
const Norm kNorms[] = {{{37, 5}, {5}},
                       {{37, 64}, {64}, false},
                       {{3, 70, 33}, {33}, true, false},
                       {{300, 130}, {130}},
                       {{6, 4500}, {4500}},
                       {{9, 1025}, {1025}, false, false},
                       {{2, 3, 4, 5}, {4, 5}, true, true, MemoryFormat::channels_last},
                       {{0, 5}, {5}}};

// Which outputs a loss reads.
enum class Uses { both, norm, sum };

// Results and gradients. low: a region's dtype.
Tensors run(const Norm& n, bool fused, DType x_dtype, DType branch_dtype, Uses uses, std::optional<DType> low = {},
            std::optional<DType> rounded = {}) {
  manual_seed(5);
  const auto leaf = [](const Tensor& t, DType dtype, MemoryFormat format) {
    return t.to(dtype).to(format).detach().set_requires_grad();
  };
  const Tensor x = leaf(randn(n.shape) * 2.0 + 1.0, x_dtype, n.format), branch = leaf(randn(n.shape), branch_dtype, n.format);
  const DType sum_dtype = promote(x_dtype, branch_dtype), wide = is_half(sum_dtype) ? DType::f32 : sum_dtype;
  const auto parameter = [&] { return n.affine ? leaf(randn(n.normalized), wide, MemoryFormat::contiguous) : Tensor(); };
  const Tensor w = parameter(), b = n.centered ? parameter() : Tensor();
  Tensors out;
  {
    const Autocast region(Device::cpu, low);
    // The inputs' gradients are those of nodes, as in a net: so that they have the dtypes of x and branch.
    out = n(fused, x * 1.0, branch * 1.0, w, b, rounded);
  }
  manual_seed(6);
  const Tensor g_y = randn(n.shape).to(out[0].dtype()), g_sum = randn(n.shape).to(out[1].dtype());
  Tensors wanted{x, branch};
  if (w.defined()) wanted.push_back(w);
  if (b.defined()) wanted.push_back(b);
  const GradOptions unused{.allow_unused = true};
  const Tensors grads = uses == Uses::both   ? grad({out[0], out[1]}, wanted, {g_y, g_sum}, unused)
                        : uses == Uses::norm ? grad({out[0]}, wanted, {g_y}, unused)
                                             : grad({out[1]}, wanted, {g_sum}, unused);
  out.insert(out.end(), grads.begin(), grads.end());
  return out;
}

}  // namespace

TEST_CASE("the norm of a residual sum has the bits of add and the norm, forward and backward") {
  constexpr DType kPairs[][2] = {{DType::f32, DType::f32},  {DType::f64, DType::f64}, {DType::bf16, DType::bf16},
                                 {DType::f16, DType::f16},  {DType::f32, DType::f16}, {DType::f32, DType::bf16},
                                 {DType::bf16, DType::f32}, {DType::f16, DType::bf16}};
  for (const Norm& n : kNorms) {
    for (const auto& pair : kPairs) {
      const DType x = pair[0], branch = pair[1];
      CAPTURE(n.shape);
      CAPTURE(name(x));
      CAPTURE(name(branch));
      for (Uses uses : {Uses::both, Uses::norm, Uses::sum}) {
        CAPTURE(int(uses));
        const Tensors fused = run(n, true, x, branch, uses), plain = run(n, false, x, branch, uses);
        check_same_bits(fused, plain);
        if (is_half(promote(x, branch))) continue;  // a region's sum is float32
        for (DType low : {DType::f16, DType::bf16})
          check_same_bits(run(n, true, x, branch, uses, low), run(n, false, x, branch, uses, low));
      }
    }
  }
}

TEST_CASE("in a region a norm writes its reader's 16 bits at once, and its gradients stay as of a float32 result") {
  for (const Norm& n : kNorms) {
    for (DType x : {DType::f32, DType::bf16}) {
      for (DType low : {DType::f16, DType::bf16}) {
        CAPTURE(n.shape);
        CAPTURE(name(low));
        for (bool fused : {false, true}) {
          const Tensors got = run(n, fused, x, low, Uses::both, low, low), want = run(n, fused, x, low, Uses::both, low);
          CHECK(got[0].dtype() == low);
          CHECK(bytes_of(got[0]) == bytes_of(want[0].to(low)));
          check_same_bits({got[1]}, {want[1]});
        }
      }
    }
  }
  // A product reads the result, also a view of it: its gradient of the input stays float32.
  manual_seed(1);
  const Tensor x = randn({4, 6, 8}).set_requires_grad(), w = randn({5, 8}).set_requires_grad(),
               scale = randn({8}).set_requires_grad();
  for (bool view : {false, true}) {
    const auto step = [&](std::optional<DType> rounded) {
      const Autocast region(Device::cpu, DType::bf16);
      const Tensor y = layer_norm(x, {8}, scale, {}, 1e-5, rounded);
      const Tensor z = linear(view ? y.flatten(0, 1).unsqueeze(0) : y, w);
      Tensors out = grad({z.to(DType::f32).square().sum()}, {x, w, scale});
      out.push_back(z);
      return out;
    };
    step({});  // which casts the weight
    const uint64_t before = autocast::cast_count();
    const Tensors plain = step({});
    const uint64_t between = autocast::cast_count();
    check_same_bits(step(DType::bf16), plain);
    CHECK(autocast::cast_count() - between + 1 == between - before);
  }
}

TEST_CASE("in a region the sum of 16-bit tensors is float32, as of inputs cast to float32") {
  const Tensor x = randn({4, 8}).to(DType::bf16), branch = randn({4, 8}).to(DType::bf16);
  const Tensors want = add_layer_norm(x.to(DType::f32), branch.to(DType::f32), {8});
  const Autocast region(Device::cpu, DType::bf16);
  check_same_bits(add_layer_norm(x, branch, {8}), want);
}

TEST_CASE("a norm rounds to no reader's dtype outside of a region, of float64, or under policies for ops") {
  const Tensor x = randn({4, 8}), w = ones({8});
  CHECK(layer_norm(x, {8}, w, {}, 1e-5, DType::f16).dtype() == DType::f32);
  CHECK(add_rms_norm(x, x, {8}, w, 1e-5, DType::f16)[0].dtype() == DType::f32);
  {
    const Autocast region(Device::cpu, DType::f16);
    CHECK(layer_norm(x, {8}, w, {}, 1e-5, DType::f16).dtype() == DType::f16);
    CHECK(layer_norm(x.to(DType::f64), {8}, {}, {}, 1e-5, DType::f16).dtype() == DType::f64);
    CHECK(add_layer_norm(x, x.to(DType::f64), {8}, {}, {}, 1e-5, DType::f16)[0].dtype() == DType::f64);
  }
  const Autocast region(Device::cpu, {.dtype = DType::f16, .policies = OpPolicies{{"linear", CastPolicy::f32}}});
  CHECK(rms_norm(x, {8}, w, 1e-5, DType::f16).dtype() == DType::f32);
}

TEST_CASE("the norm of a residual sum keeps what the norm keeps, in one kernel each way, and gives a 16-bit branch its gradient") {
  const auto on_meta = [](DType t) { return empty({6, 8}, {.dtype = t, .device = Device::meta}).set_requires_grad(); };
  const Tensor w = empty({8}, {.device = Device::meta}).set_requires_grad(), x = on_meta(DType::f32), branch = on_meta(DType::f16);
  const auto saved = [](const OpLogScope& log) {
    size_t bytes = 0;
    for (const LoggedCall& call : log.calls())
      for (const LoggedTensor& t : call.saved) bytes += size_t(numel(t.shape)) * size_of(t.dtype);
    return bytes;
  };
  const OpLogScope plain;
  layer_norm(x + branch, {8}, w, w);
  CHECK(plain.calls().size() == 2);
  const OpLogScope fused;
  const Tensors out = add_layer_norm(x, branch, {8}, w, w);
  REQUIRE(fused.calls().size() == 1);
  CHECK(fused.calls()[0].kernels == 1);
  CHECK(saved(fused) == saved(plain));
  const OpLogScope backward;
  const Tensors g = grad({out[0], out[1]}, {x, branch}, {empty_like(out[0]), empty_like(out[1])});
  CHECK(g[0].dtype() == DType::f32);
  CHECK(g[1].dtype() == DType::f16);
  int kernels = 0;
  for (const LoggedCall& call : backward.calls()) kernels += int(call.kernels);
  CHECK(kernels <= 1);
}

TEST_CASE("hooks and retained gradients of a norm that rounds to a reader's 16 bits see its gradient") {
  const Tensor x = randn({3, 8}).set_requires_grad(), w = randn({8, 5});
  Tensor y, loss;
  int calls = 0;
  {
    const Autocast region(Device::cpu, DType::bf16);
    y = layer_norm(x, {8}, {}, {}, 1e-5, DType::bf16);
    y.retain_grad();
    y.register_hook([&](const Tensor& g) {
      ++calls;
      return g * 2.0;
    });
    loss = mm(y, w).to(DType::f32).sum();
  }
  loss.backward();
  CHECK(calls == 1);
  const Tensor read = y.detach().set_requires_grad();
  {
    const Autocast region(Device::cpu, DType::bf16);
    mm(read, w).to(DType::f32).sum().backward();
  }
  REQUIRE(y.grad().defined());
  CHECK(bytes_of(y.grad().to(DType::bf16)) == bytes_of(read.grad() * 2.0));
  const Tensor plain = x.detach().set_requires_grad();
  layer_norm(plain, {8}).backward(y.grad().to(DType::f32));
  CHECK(bytes_of(x.grad()) == bytes_of(plain.grad()));
}

TEST_CASE("errors of the norm of a residual sum name the op") {
  const Tensor x = randn({4, 8});
  CHECK_THROWS_WITH_AS(add_layer_norm(x, randn({8}), {8}), "[add_layer_norm] x and branch must have one shape, got [4, 8] and [8]",
                       ShapeError);
  CHECK_THROWS_WITH_AS(add_rms_norm(x, x, {4}), doctest::Contains("[add_rms_norm] the input's last dimensions"), ShapeError);
  CHECK_THROWS_WITH_AS(add_rms_norm(x, Tensor(), {8}), "[add_rms_norm] an input is undefined", ValueError);
  CHECK_THROWS_WITH_AS(add_layer_norm(x, Tensor(), {8}), "[add_layer_norm] an input is undefined", ValueError);
  CHECK_THROWS_WITH_AS(add_layer_norm(x, x, {8}, randn({4})), doctest::Contains("[add_layer_norm] weight must be [8]"), ShapeError);
  CHECK_THROWS_WITH_AS(add_layer_norm(x, ones({4, 8}).to(DType::i64), {8}), doctest::Contains("[add_layer_norm] "), DTypeError);
}
