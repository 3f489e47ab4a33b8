// SPDX-License-Identifier: Apache-2.0
// ReLU in the pass of a product or a convolution: libraries' own differs where numbers are not finite.
#include <doctest/doctest.h>

#include <array>
#include <cmath>

#include "framework/autograd/autograd.h"
#include "framework/ops/ops.h"

using namespace halfstep;

TEST_CASE("NaN goes through a ReLU in a product's pass, and negative infinity does not") {
  for (DType t : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    for (const auto& sizes : {std::array<int64_t, 3>{1, 8, 8}, {3, 5, 7}, {64, 64, 64}, {70, 512, 96}, {300, 400, 300}}) {
      const int64_t m = sizes[0], k = sizes[1], n = sizes[2];
      for (bool biased : {true, false}) {
        CAPTURE(name(t));
        CAPTURE(m);
        CAPTURE(biased);
        manual_seed(3);
        Tensor x = randn({m, k});
        x.select(0, 0).narrow(0, 0, 1).fill_(NAN);
        x.select(0, m - 1).narrow(0, 0, 1).fill_(m > 1 ? -INFINITY : NAN);
        x = x.to(t);
        const Tensor w = rand({n, k}).to(t), b = biased ? randn({n}).to(t) : Tensor(), square = rand({n, n}).to(t);
        const Tensor y = linear(x, w, b, /*relu=*/true);
        CHECK(sum(isnan(y)).item<int64_t>() == n);
        if (m > 1) CHECK(sum(y.select(0, m - 1) == 0.0).item<int64_t>() == n);
        CHECK(sum(isnan(mlp(x, {{w, b, Activation::relu}, {square, Tensor(), Activation::relu}}))).item<int64_t>() == n);
      }
    }
  }
}

TEST_CASE("a ReLU in a convolution's pass is relu() of its result, NaN and infinities and all") {
  struct Case {
    const char* what;
    Shape x, w;
    ConvOptions options;
    bool biased = true;
  };
  const Case cases[] = {{"channels in blocks", {2, 16, 8, 8}, {32, 16, 3, 3}, {.padding = 1}},
                        {"few channels", {2, 3, 9, 8}, {5, 3, 3, 3}, {.stride = {2}}},
                        {"one tap", {2, 16, 8, 8}, {32, 16, 1, 1}, {}},
                        {"one tap, no bias", {2, 5, 4, 4}, {3, 5, 1, 1}, {}, false},
                        {"depthwise", {2, 8, 6, 6}, {8, 1, 3, 3}, {.groups = 8}},
                        {"dilated, no bias", {1, 4, 9, 9}, {4, 4, 3, 3}, {.dilation = {2}}, false}};
  for (const Case& c : cases) {
    for (DType t : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
      for (MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
        CAPTURE(c.what);
        CAPTURE(name(t));
        CAPTURE(format == MemoryFormat::channels_last);
        manual_seed(31);
        Tensor x = randn(c.x), w = randn(c.w), bias = c.biased ? randn({c.w[0]}) : Tensor();
        x.select(0, 0).select(0, 0).select(0, 0).narrow(0, 0, 1).fill_(NAN);
        x.select(0, 0).select(0, 1).select(0, 3).narrow(0, 3, 1).fill_(INFINITY);
        x = x.to(t).to(format).detach().set_requires_grad(), w = w.to(t).to(format).detach().set_requires_grad();
        if (c.biased) bias = bias.to(t).detach().set_requires_grad();
        const auto run = [&](bool fused) {
          const Tensor y = fused ? conv2d(x, w, bias, c.options, true) : relu(conv2d(x, w, bias, c.options));
          // Where nothing is infinite, gradients can be compared.
          const Tensor g = isfinite(y).to(t) * nan_to_num(y.detach());
          std::vector<Tensor> all{y.detach()};
          for (const Tensor& d : grad({y}, c.biased ? Tensors{x, w, bias} : Tensors{x, w}, {g})) all.push_back(d);
          return all;
        };
        const auto fused = run(true), plain = run(false);
        CHECK(any(isnan(plain[0])).item<bool>());
        CHECK(any(plain[0] == 0.0).item<bool>());
        CHECK(fused[0].format() == plain[0].format());
        for (size_t i = 0; i < plain.size(); ++i) {
          CAPTURE(i);
          CHECK(allclose(fused[i], plain[i], 0, 0, /*equal_nan=*/true));
        }
      }
    }
  }
}
