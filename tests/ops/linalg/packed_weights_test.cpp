// SPDX-License-Identifier: Apache-2.0
// Weights that are kept packed in InferenceMode: the same products, and memory that goes when it should.
#include "framework/ops/linalg/packed_weights.h"

#include <doctest/doctest.h>

#include "halfstep.h"

using namespace halfstep;

namespace {

size_t kept_bytes() { return allocator(Device::cpu).stats().live_by_tag[size_t(MemoryTag::shadows)]; }
double difference(const Tensor& a, const Tensor& b) { return (a.to(DType::f64) - b.to(DType::f64)).abs().max().item(); }
bool packs() {
  return backend_for(Device::cpu).gains_by_packing(128, 64, 128, DType::f32);  // needs oneDNN
}

}  // namespace

TEST_CASE("in InferenceMode linear and mlp give what they give elsewhere, with and without a packed weight") {
  manual_seed(1);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    const Tensor w1 = randn({300, 64}).to(dtype), b1 = randn({300}).to(dtype), w2 = randn({40, 300}).to(dtype);
    for (const int64_t rows : {1, 8, 16, 100, 512, 513}) {
      CAPTURE(name(dtype));
      CAPTURE(rows);
      const Tensor x = randn({rows, 64}).to(dtype);
      const auto calls = [&] {
        return Tensors{linear(x, w1, b1, true), linear(x, w1), linear(x, w1.narrow(0, 100, 150)),
                       mlp(x, {{w1, b1, Activation::gelu}, {w2, Tensor(), Activation::none}})};
      };
      const Tensors want = no_grad(calls);
      const InferenceMode inference;
      for (int call = 0; call < 3; ++call) {
        const Tensors got = calls();
        for (size_t i = 0; i < got.size(); ++i)
          CHECK(difference(got[i], want[i]) <= (is_half(dtype) ? 0.02 : 1e-5) * (1 + want[i].abs().max().to(DType::f64).item()));
      }
    }
  }
}

TEST_CASE("a weight is packed in its second call, again after it has changed, and the memory goes with it") {
  if (!packs()) return;
  manual_seed(1);
  const Tensor x = randn({128, 64});
  const size_t before = kept_bytes();
  {
    Tensor w = randn({128, 64});
    (void)linear(x, w);
    CHECK(kept_bytes() == before);  // outside of InferenceMode never
    const InferenceMode inference;
    (void)linear(x, w);
    CHECK(kept_bytes() == before);
    const Tensor first = linear(x, w);
    const size_t packed = kept_bytes() - before;
    CHECK(packed >= 128 * 64 * sizeof(float));
    CHECK(packed <= 128 * 64 * sizeof(float) * 5 / 4);
    CHECK(difference(linear(x, w), first) == 0);
    CHECK(kept_bytes() == before + packed);  // once
    (void)linear(randn({4, 64}), w);         // few rows, which need none
    w.mul_(2);
    CHECK(kept_bytes() == before);
    for (int call = 0; call < 3; ++call) CHECK(difference(linear(x, w), first * 2) <= 1e-4);
    CHECK(kept_bytes() == before + packed);
  }
  CHECK(kept_bytes() == before);
}

TEST_CASE("under autocast the 16-bit copy of a weight is packed, and a step of training is seen") {
  manual_seed(1);
  Linear layer(64, 128);
  const Tensor x = randn({128, 64});
  SGD optimizer(layer.parameters(), SGDOptions{.lr = 0.5});
  for (int step = 0; step < 3; ++step) {
    const Autocast region(Device::cpu, DType::bf16);
    const Tensor want = no_grad([&] { return layer(x); });
    {
      const InferenceMode inference;
      for (int call = 0; call < 3; ++call) CHECK(difference(layer(x), want) <= 0.05);
    }
    layer(x).to(DType::f32).square().mean().backward();
    optimizer.step();
    optimizer.zero_grad();
  }
}
