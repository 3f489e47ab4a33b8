// SPDX-License-Identifier: Apache-2.0
// A residual and its ReLU in the pass of a batch normalisation: the bits of the two ops, forward and backward.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "amp/autocast/autocast.h"
#include "framework/autograd/autograd.h"
#include "framework/backend/kernel_log.h"
#include "framework/backend/op_log.h"
#include "framework/ops/ops.h"
#include "tests/support/same_bits.h"

using namespace halfstep;

namespace {

constexpr DType kJoinDTypes[] = {DType::f32, DType::f64, DType::bf16, DType::f16};
constexpr MemoryFormat kJoinRows = MemoryFormat::contiguous, kJoinLast = MemoryFormat::channels_last;

struct JoinCase {
  const char* what;
  Shape shape;
  MemoryFormat format = kJoinRows;
};
const JoinCase kJoinCases[] = {{"a matrix", {37, 5}},
                               {"a wide matrix", {6, 4500}},
                               {"a few pixels", {3, 7, 3, 2}},
                               {"short runs", {4, 6, 5, 9}},
                               {"long runs", {2, 3, 35, 41}},
                               {"sequences", {3, 5, 130}},
                               {"few channels last", {3, 5, 7, 6}, kJoinLast},
                               {"channels last", {4, 48, 9, 9}, kJoinLast},
                               {"many channels last", {2, 1100, 3, 3}, kJoinLast}};

// The tensors of a call. In evaluation x has a NaN and an infinity; the second channel of x and residual cancels exactly.
struct JoinInputs {
  Tensor x, residual, mean, var, w, b;

  JoinInputs(const JoinCase& c, DType t, bool training, bool parameters) {
    manual_seed(5);
    const int64_t channels = c.shape[1];
    const DType wide = t == DType::f64 ? t : DType::f32;
    x = randn(c.shape), residual = randn(c.shape);
    if (!training) {
      x.reshape({-1}).narrow(0, 0, 1).fill_(NAN);
      x.reshape({-1}).narrow(0, 1, 1).fill_(INFINITY);
    }
    x = x.to(t).to(c.format).detach().set_requires_grad();
    mean = (randn({channels}) * 0.1).to(wide), var = (rand({channels}) + 0.5).to(wide);
    if (parameters) {
      w = randn({channels}), b = randn({channels});
      w.narrow(0, 1, 1).fill_(0), b.narrow(0, 1, 1).fill_(0.75), residual.narrow(1, 1, 1).fill_(-0.75);
      w = w.to(wide).detach().set_requires_grad(), b = b.to(wide).detach().set_requires_grad();
    }
    residual = residual.to(t).to(c.format).detach().set_requires_grad();
  }
  Tensor call(bool training, bool fused) const {
    return fused ? batch_norm_add_relu(x, residual, mean, var, w, b, training)
                 : add_relu(batch_norm(x, mean, var, w, b, training), residual);
  }
  Tensors leaves() const { return w.defined() ? Tensors{x, residual, w, b} : Tensors{x, residual}; }
};

enum class JoinReader { one, two, recorded, hook, retained };

// Result, running statistics and gradients. Where ReLU lets nothing through, the gradient is infinite: it must not count.
Tensors run_join(const JoinCase& c, DType t, bool training, bool parameters, JoinReader how, bool fused) {
  const JoinInputs in(c, t, training, parameters);
  const Tensor y = in.call(training, fused);
  const auto some = [&] { return where(y.detach() <= 0, INFINITY, randn(c.shape).to(t)).to(c.format); };
  const Tensor doubled = y * 2.0, negative = neg(y);
  Tensors outputs{y}, given{some()}, out{y.detach(), in.mean, in.var};
  if (how == JoinReader::two) outputs = {doubled, negative}, given.push_back(some());
  if (how == JoinReader::hook) y.register_hook([](const Tensor& g) { return g * 0.5; });
  if (how == JoinReader::retained) {
    y.retain_grad();
    backward({doubled, negative}, {given[0], some()});
    for (const Tensor& leaf : in.leaves()) out.push_back(leaf.grad());
    out.push_back(y.grad());
    return out;
  }
  for (const Tensor& g : grad(outputs, in.leaves(), given, {.create_graph = how == JoinReader::recorded}))
    out.push_back(g.detach());
  return out;
}

}  // namespace

TEST_CASE("batch_norm_add_relu is batch_norm and add_relu, to the bit") {
  for (const JoinCase& c : kJoinCases) {
    for (DType t : kJoinDTypes) {
      for (bool training : {true, false}) {
        for (bool parameters : {true, false}) {
          CAPTURE(c.what);
          CAPTURE(name(t));
          CAPTURE(training);
          CAPTURE(parameters);
          const Tensors plain = run_join(c, t, training, parameters, JoinReader::one, false);
          CHECK(any(plain[0] == 0.0).item<bool>());
          CHECK(any(isfinite(plain[3]) & (plain[3] != 0.0)).item<bool>());
          if (!training) CHECK(any(isnan(plain[0])).item<bool>());
          check_same_bits(run_join(c, t, training, parameters, JoinReader::one, true), plain);
        }
      }
    }
  }
}

TEST_CASE("batch_norm_add_relu has the gradients of the two ops, however its result is read") {
  for (const JoinCase& c : {kJoinCases[3], kJoinCases[7]}) {
    for (DType t : kJoinDTypes) {
      for (const JoinReader how : {JoinReader::two, JoinReader::recorded, JoinReader::hook, JoinReader::retained}) {
        for (bool training : {true, false}) {
          CAPTURE(name(t));
          CAPTURE(int(how));
          check_same_bits(run_join(c, t, training, true, how, true), run_join(c, t, training, true, how, false));
        }
      }
    }
  }
}

TEST_CASE("batch_norm_add_relu computes in one kernel, and keeps what batch_norm and add_relu keep") {
  const JoinInputs in({"", {4, 3, 5, 5}}, DType::f32, true, true);
  const auto saved_bytes = [&](bool fused) {
    const OpLogScope log(Device::cpu);
    in.call(true, fused);
    size_t bytes = 0;
    for (const LoggedCall& call : log.calls())
      for (const LoggedTensor& t : call.saved) bytes += size_t(numel(t.shape)) * size_of(t.dtype);
    CHECK(log.calls().size() == (fused ? 1 : 2));
    return bytes;
  };
  CHECK(saved_bytes(true) == saved_bytes(false));
  const KernelLog log(Device::cpu);
  const Tensor y = in.call(true, true);
  grad({y * 2.0, neg(y)}, in.leaves(), {ones(y.shape()), ones(y.shape())});
  int joined = 0, norms = 0, sums = 0, other = 0;
  for (const KernelEvent& e : log.events()) {
    joined += e.kernel == "add_relu_backward";
    norms += e.kernel == "batch_norm" || e.kernel == "batch_norm_backward";
    sums += e.kernel == "add" || e.kernel == "add_relu";
    other += e.kernel == "relu" || e.kernel == "relu_backward";
  }
  CHECK(joined == 1);
  CHECK(norms == 2);
  CHECK(sums == 0);
  CHECK(other == 0);
}

TEST_CASE("only the gradients that are needed are computed") {
  for (bool of_residual : {true, false}) {
    const JoinInputs in({"", {4, 3, 5, 5}}, DType::f32, true, true);
    for (const Tensor& t : of_residual ? Tensors{in.x, in.w, in.b} : Tensors{in.residual}) t.set_requires_grad(false);
    const Tensors wanted = of_residual ? Tensors{in.residual} : Tensors{in.x, in.w, in.b};
    const Tensor y = in.call(true, true), z = in.call(true, false);
    const KernelLog log(Device::cpu);
    const Tensors got = grad({y}, wanted, {ones(y.shape())});
    for (const KernelEvent& e : log.events()) CHECK(!(of_residual && e.kernel == "batch_norm_backward"));
    check_same_bits(got, grad({z}, wanted, {ones(z.shape())}));
  }
}

TEST_CASE("batch_norm_add_relu of a residual with another dtype, shape, format or layout is the two ops") {
  const JoinInputs in({"", {3, 4, 6, 5}}, DType::bf16, true, true);
  const Tensor same = in.residual.detach();
  struct JoinGiven {
    const char* what;
    Tensor residual;
    size_t calls;
  };
  const JoinGiven all[] = {{"float32", same.to(DType::f32), 2},
                           {"one for each channel", randn({4, 1, 1}).to(DType::bf16), 2},
                           {"more dimensions", randn({2, 3, 4, 6, 5}).to(DType::bf16), 2},
                           {"channels last", same.to(kJoinLast), 2},
                           {"a view", randn({3, 4, 6, 7}).to(DType::bf16).narrow(3, 1, 5), 1},
                           {"transposed", same.transpose(2, 3).contiguous().transpose(2, 3), 1}};
  for (const JoinGiven& g : all) {
    CAPTURE(g.what);
    const Tensor residual = g.residual.detach().set_requires_grad();
    const auto run_given = [&](bool fused) {
      const Tensor mean = zeros({4}), var = ones({4});
      const Tensor y = fused ? batch_norm_add_relu(in.x, residual, mean, var, in.w, in.b, true)
                             : add_relu(batch_norm(in.x, mean, var, in.w, in.b, true), residual);
      Tensors out{y.detach(), mean, var};
      for (const Tensor& d : grad({y}, {in.x, residual, in.w, in.b}, {ones(y.shape()).to(y.dtype())})) out.push_back(d);
      return out;
    };
    check_same_bits(run_given(true), run_given(false));
    const OpLogScope log(Device::cpu);
    const NoGrad off;
    batch_norm_add_relu(in.x, residual, {}, {}, in.w, in.b, true);
    size_t found = 0;
    for (const LoggedCall& call : log.calls()) found += call.op.find("relu") != std::string::npos || call.op == "batch_norm";
    CHECK(found == g.calls);
  }
}

TEST_CASE("in a region batch_norm_add_relu keeps the dtype of 16-bit tensors, and float32 beside them is the result's") {
  for (DType low : {DType::f16, DType::bf16}) {
    const Autocast region(Device::cpu, low);
    const Tensor x = randn({4, 3, 5}).to(low), w = rand({3}), b = rand({3}), mean = zeros({3}), var = ones({3});
    CHECK(batch_norm_add_relu(x, x, mean, var, w, b).dtype() == low);
    CHECK(batch_norm_add_relu(x, randn({4, 3, 5}), mean, var, w, b).dtype() == DType::f32);
    CHECK(batch_norm_add_relu(x.to(DType::f32), x, mean, var, w, b).dtype() == DType::f32);
  }
}

TEST_CASE("batch_norm_add_relu refuses what the two ops refuse, under its name") {
  const Tensor x = randn({4, 3, 5}), mean = zeros({3}), var = ones({3});
  CHECK_THROWS_WITH_AS(batch_norm_add_relu(x, Tensor(), mean, var), "[batch_norm_add_relu] an input is undefined", ValueError);
  CHECK_THROWS_WITH_AS(batch_norm_add_relu(x, randn({2, 5}), mean, var), doctest::Contains("[batch_norm_add_relu] "), ShapeError);
  CHECK_THROWS_WITH_AS(batch_norm_add_relu(x, x, mean, ones({4})),
                       doctest::Contains("[batch_norm_add_relu] running_var must be [3]"), ShapeError);
  CHECK_THROWS_WITH_AS(batch_norm_add_relu(x, x, {}, {}), doctest::Contains("[batch_norm_add_relu] needs running_mean"),
                       ValueError);
  CHECK_THROWS_WITH_AS(batch_norm_add_relu(x, x, {}, {}, {}, {}, true, 0.1, 0), doctest::Contains("[batch_norm_add_relu] eps"),
                       ValueError);
  const Tensor one = randn({1, 3});
  CHECK_THROWS_WITH_AS(batch_norm_add_relu(one, one, {}, {}, {}, {}, true), doctest::Contains("[batch_norm_add_relu] needs more"),
                       ValueError);
  const Tensor whole = ones({4, 3}).to(DType::i64);
  CHECK_THROWS_WITH_AS(batch_norm_add_relu(whole, whole, mean, var), doctest::Contains("[batch_norm_add_relu] "), DTypeError);
}
