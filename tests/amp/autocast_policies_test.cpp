// SPDX-License-Identifier: Apache-2.0
// Which dtype every op runs in, inside a region and outside.
#include <doctest/doctest.h>

#include <cmath>

#include "framework/autograd/autograd.h"
#include "tests/amp/autocast_calls.h"

using namespace halfstep;
using namespace halfstep::calls;

namespace {

constexpr DType kLowDTypes[] = {DType::bf16, DType::f16};

// Inside a `low` region: the op on `in` gives `expected`, and bit for bit what it gives on inputs cast by hand to `as`, with
// autocast off.
void check_region(const OpCall& call, const Tensors& in, DType low, DType as, DType expected) {
  REQUIRE(!enabled());
  {
    const Autocast region(Device::cpu, low);
    CHECK(enabled());
    const Tensor out = call.run(in);
    CHECK(out.dtype() == (call.op == "linalg_matrix_rank" ? DType::i64 : expected));
    {
      const Autocast off(Device::cpu, {.enabled = false});
      CHECK(!enabled());
      CHECK(bitwise(out, call.run(cast(in, as))));
    }
    CHECK(enabled());
    CHECK(bitwise(out, call.run(in)));  // behaviour 39
  }
  CHECK(!enabled());
}

const OpCall& call_of(const OpInfo& op) {
  CAPTURE(op.name);
  const OpCall* call = find(op.name);
  REQUIRE_MESSAGE(call != nullptr, "the op table needs a case without constants for it");
  return *call;
}

}  // namespace

TEST_CASE("amp 1: linear of float32 gives the region's dtype, bit for bit as on inputs cast by hand") {
  manual_seed(1);
  const Tensor x = randn({5, 8}), w = randn({3, 8}), b = randn({3});
  for (DType low : kLowDTypes) {
    const Autocast region(Device::cpu, low);
    const Tensor y = linear(x, w, b);
    CHECK(y.dtype() == low);
    const Autocast off(Device::cpu, {.enabled = false});
    CHECK(bitwise(y, linear(x.to(low), w.to(low), b.to(low))));
  }
  const Autocast region(Device::cpu);
  CHECK(linear(x, w).dtype() == DType::bf16);
  CHECK(linear(randn({2, 5, 8}), w, b).dtype() == DType::bf16);
}

TEST_CASE("amp 2: every `low` op gives the region's dtype for float32 inputs") {
  manual_seed(2);
  const auto ops = with_policy(CastPolicy::low);
  CHECK(ops.size() >= 5);
  for (const OpInfo& op : ops)
    for (DType low : kLowDTypes) {
      CAPTURE(op.name);
      CAPTURE(low);
      const OpCall& call = call_of(op);
      check_region(call, draw(call, DType::f32), low, low, low);
      check_region(call, draw(call, low == DType::f16 ? DType::bf16 : DType::f16), low, low, low);  // the other 16-bit type too
    }
}

TEST_CASE("amp 3: every `f32` op gives float32 for 16-bit inputs") {
  manual_seed(3);
  for (CastPolicy policy : {CastPolicy::f32, CastPolicy::f32_output})
    for (const OpInfo& op : with_policy(policy))
      for (DType low : kLowDTypes) {
        CAPTURE(op.name);
        CAPTURE(low);
        const OpCall& call = call_of(op);
        check_region(call, draw(call, low), low, DType::f32, DType::f32);
        check_region(call, draw(call, DType::f32), low, DType::f32, DType::f32);
      }
}

TEST_CASE("amp 4: every `promote` op gives float32 for a mixture and the low dtype for low inputs, in any order") {
  manual_seed(4);
  const auto ops = with_policy(CastPolicy::promote);
  CHECK(ops.size() >= 3);
  for (const OpInfo& op : ops)
    for (DType low : kLowDTypes) {
      CAPTURE(op.name);
      CAPTURE(low);
      const OpCall& call = call_of(op);
      const DType foreign = low == DType::f16 ? DType::bf16 : DType::f16;
      const Tensors lows = draw(call, low);
      check_region(call, lows, low, low, low);
      int floating = 0;
      for (size_t i = 0; i < lows.size(); ++i) {
        if (!lows[i].is_floating_point()) continue;
        ++floating;
        // A 16-bit type that is not the region's counts as float32, in any place.
        for (DType other : {DType::f32, foreign}) {
          Tensors mixed = lows;
          mixed[i] = mixed[i].to(other);
          check_region(call, mixed, low, DType::f32, DType::f32);
        }
      }
      CHECK(floating >= 2);
      check_region(call, cast(lows, foreign), low, DType::f32, DType::f32);
    }
}

TEST_CASE("promotion sees every input of a long list") {
  Tensors parts(20, ones({1}, {.dtype = DType::bf16}));
  parts[19] = full({1}, 1.0000001);
  const Autocast region(Device::cpu);
  const Tensor joined = cat(parts);
  CHECK(joined.dtype() == DType::f32);
  CHECK(joined[19].item<float>() == 1.0000001f);
}

TEST_CASE("ops without a policy run in their inputs' dtype, region or not") {
  manual_seed(5);
  for (const OpInfo& op : with_policy(CastPolicy::keep)) {
    const OpCall* call = find(op.name);
    if (!call || op.name == "to" || op.name == "float_power") continue;  // makes a tensor of nothing, or of another dtype
    CAPTURE(op.name);
    for (DType dtype : {DType::bf16, DType::f16, DType::f32, DType::f64}) {
      const Tensors in = draw(*call, dtype);
      const Tensor outside = call->run(in);
      const Autocast region(Device::cpu);
      CHECK(bitwise(outside, call->run(in)));
      if (outside.is_floating_point()) CHECK(outside.dtype() == dtype);
    }
  }
}

TEST_CASE("amp 5: mm of float32 and 16-bit needs no cast by hand") {
  const Tensor a = randn({4, 4}), b = randn({4, 4});
  const Autocast region(Device::cpu, DType::f16);
  CHECK(mm(a, b.to(DType::f16)).dtype() == DType::f16);
  CHECK(mm(a.to(DType::f16), b).dtype() == DType::f16);
  CHECK(mm(a.to(DType::bf16), b).dtype() == DType::f16);
}

TEST_CASE("amp 6: arithmetic promotes and comparisons give bool, inside a region as outside") {
  const Tensor wide = rand({4}), low = rand({4}).to(DType::f16);
  for (bool on : {false, true}) {
    const Autocast region(Device::cpu, DType::f16, on);
    for (const Tensor& t : {wide + low, low + wide, wide * low, low - wide, wide / low}) CHECK(t.dtype() == DType::f32);
    for (const Tensor& t : {eq(wide, low), ne(wide, low), lt(low, wide), le(wide, low), gt(low, wide), ge(wide, low)})
      CHECK(t.dtype() == DType::boolean);
    CHECK((low * 2.0).dtype() == DType::f16);
    CHECK((low + low).dtype() == DType::f16);
  }
}

TEST_CASE("amp 7: cat and stack promote") {
  const Tensor low = rand({2, 3}).to(DType::f16), wide = rand({2, 3});
  for (DType region_dtype : kLowDTypes) {
    const Autocast region(Device::cpu, region_dtype);
    CHECK(cat({low, wide}).dtype() == DType::f32);
    CHECK(cat({wide, low}, 1).dtype() == DType::f32);
    CHECK(stack({low, wide}).dtype() == DType::f32);
    CHECK(stack({wide.to(DType::bf16), wide}).dtype() == DType::f32);
  }
}

TEST_CASE("amp 9: banned ops throw in a region even for float32 and work in a disabled one inside it") {
  for (const OpInfo& op : with_policy(CastPolicy::banned)) {
    CAPTURE(op.name);
    const OpCall& call = call_of(op);
    const Tensors in = draw(call, DType::f32);
    const Autocast region(Device::cpu);
    CHECK_THROWS_WITH_AS(call.run(in), doctest::Contains("is unsafe to autocast"), AmpError);
    CHECK(!op.advice.empty());
    const Autocast off(Device::cpu, {.enabled = false});
    CHECK(call.run(in).dtype() == DType::f32);
  }
}

TEST_CASE("amp 11: cross_entropy of 16-bit logits gives a float32 loss and a 16-bit gradient") {
  manual_seed(6);
  for (DType low : kLowDTypes) {
    const Tensor logits = leaf({4, 3}, low), target = from_vector<int64_t>({0, 2, 1, 0}, {4});
    Tensor loss;
    {
      const Autocast region(Device::cpu, low);
      loss = cross_entropy(logits, target);
    }
    CHECK(loss.dtype() == DType::f32);
    loss.backward();
    CHECK(logits.grad().dtype() == low);
    const Tensor wide = logits.detach().to(DType::f32).set_requires_grad();
    cross_entropy(wide, target).backward();
    CHECK(bitwise(logits.grad(), wide.grad().to(low)));
  }
}

TEST_CASE("cross_entropy with probabilities as targets is float32 throughout a region") {
  manual_seed(7);
  const Tensor logits = randn({4, 3}).to(DType::bf16), target = rand({4, 3}).to(DType::bf16);
  for (double smoothing : {0.0, 0.1}) {
    CrossEntropyOptions options;
    options.label_smoothing = smoothing;
    const Tensor wide = cross_entropy(logits.to(DType::f32), target.to(DType::f32), options);
    const Autocast region(Device::cpu);
    CHECK(bitwise(cross_entropy(logits, target, options), wide));
  }
}

TEST_CASE("amp 12: mse_loss of a 16-bit output and a float32 target is float32") {
  const Tensor y = randn({4, 4}).to(DType::f16), target = randn({4, 4});
  const Autocast region(Device::cpu, DType::f16);
  for (Reduction r : {Reduction::mean, Reduction::sum, Reduction::none}) CHECK(mse_loss(y, target, r).dtype() == DType::f32);
}

TEST_CASE("amp 13: softmax of 16-bit is float32, unless the caller chose a dtype") {
  for (DType low : kLowDTypes) {
    const Tensor x = randn({4, 8}).to(low);
    CHECK(softmax(x, 1).dtype() == low);
    const Autocast region(Device::cpu, low);
    CHECK(softmax(x, 1).dtype() == DType::f32);
    CHECK(softmax(x, 1, low).dtype() == low);
    CHECK(log_softmax(x, 1).dtype() == DType::f32);
    CHECK(log_softmax(x, 1, DType::f64).dtype() == DType::f64);
  }
}

TEST_CASE("amp 14: sum of 4096 sixteens is inf in float16 and 65536 inside a region") {
  const Tensor x = full({4096}, 16, {.dtype = DType::f16});
  CHECK(std::isinf(sum(x).item<float>()));
  const Autocast region(Device::cpu, DType::f16);
  CHECK(sum(x).dtype() == DType::f32);
  CHECK(sum(x).item<float>() == 65536.0f);
}

TEST_CASE("amp 16: powers of 16-bit tensors are float32") {
  const Tensor x = full({3}, 4, {.dtype = DType::f16});
  const Autocast region(Device::cpu, DType::f16);
  CHECK(pow(x, 1.5).dtype() == DType::f32);
  CHECK(pow(x, 1.5)[0].item<float>() == doctest::Approx(8));
  CHECK(pow(2.0, x).dtype() == DType::f32);
  CHECK(reciprocal(x).dtype() == DType::f32);
}

TEST_CASE("amp 22: float64 is left alone") {
  const Tensor d = rand({4, 4}, {.dtype = DType::f64}), h = rand({4, 4}).to(DType::f16);
  const Autocast region(Device::cpu, DType::f16);
  CHECK(mm(d, d).dtype() == DType::f64);
  CHECK_THROWS_WITH_AS(mm(d, h), doctest::Contains("[mm] all inputs must have one dtype, got float64 [4, 4] and float16 [4, 4]"),
                       DTypeError);
  CHECK_THROWS_AS(mm(d, rand({4, 4})), DTypeError);
  CHECK(pow(d, 2.0).dtype() == DType::f64);
  CHECK(exp(d).dtype() == DType::f64);
  CHECK(sum(d).dtype() == DType::f64);
  CHECK(softmax(d, 0).dtype() == DType::f64);
  CHECK(mse_loss(d, d).dtype() == DType::f64);
  CHECK(mse_loss(h, d).dtype() == DType::f64);
  CHECK(cat({d, h}).dtype() == DType::f64);  // promotes by itself
}

TEST_CASE("amp 23: integers have the dtype they have outside") {
  const Tensor i = arange(1, 5, 1, {.dtype = DType::i32});
  const DType power = pow(i, 2.0).dtype(), root = pow(i, 0.5).dtype(), total = sum(i).dtype(), e = exp(i).dtype();
  const Autocast region(Device::cpu);
  CHECK(pow(i, 2.0).dtype() == power);
  CHECK(pow(i, 0.5).dtype() == root);
  CHECK(sum(i).dtype() == total);
  CHECK(total == DType::i64);
  CHECK(exp(i).dtype() == e);
  CHECK(cat({i, i}).dtype() == DType::i32);
}

TEST_CASE("amp 24: in-place forms are not cast") {
  const Tensor low = full({3}, 2, {.dtype = DType::bf16}), wide = full({3}, 2.0);
  const Autocast region(Device::cpu);
  low.exp_();  // a float32 op out of place
  CHECK(low.dtype() == DType::bf16);
  CHECK(low[0].item<float>() == doctest::Approx(7.375));
  low.add_(wide).pow_(1.5);
  CHECK(low.dtype() == DType::bf16);
  wide.mul_(low);
  CHECK(wide.dtype() == DType::f32);
  const Tensor integers = arange(3);
  CHECK_THROWS_WITH_AS(integers.add_(wide), "[add] in place, a result of float32 cannot be stored in int64", DTypeError);
}

TEST_CASE("amp 25: a dtype chosen by the caller is respected") {
  const Tensor x = rand({8}).to(DType::bf16);
  const Autocast region(Device::cpu);
  CHECK(sum(x, {}, false, DType::f64).dtype() == DType::f64);
  CHECK(sum(x, {}, false, DType::bf16).dtype() == DType::bf16);
  CHECK(sum(x, {}, false, DType::i64).dtype() == DType::i64);
  CHECK(mean(x, {}, false, DType::f32).dtype() == DType::f32);
}

TEST_CASE("amp 26: inside a composite op nothing is cast again") {
  manual_seed(8);
  const Tensor logp = log_softmax(randn({6, 5}), 1), target = randint(0, 5, {6}), weight = rand({5});
  // mse_loss without a reduction and nll_loss are made of other ops, addmm of a product and a sum.
  const Tensor x = randn({4, 8}), t = randn({4, 8}).to(DType::bf16);
  const Autocast region(Device::cpu);
  const Tensor nll = nll_loss(logp, target, {.weight = weight}), squares = mse_loss(x, t, Reduction::none);
  const Tensor batched = matmul(x.reshape({2, 2, 8}), t.reshape({2, 2, 8}).transpose(1, 2));
  const Autocast off(Device::cpu, {.enabled = false});
  CHECK(bitwise(nll, nll_loss(logp, target, {.weight = weight})));
  CHECK(bitwise(squares, mse_loss(x, t.to(DType::f32), Reduction::none)));
  CHECK(bitwise(batched, matmul(x.to(DType::bf16).reshape({2, 2, 8}), t.reshape({2, 2, 8}).transpose(1, 2))));
}
