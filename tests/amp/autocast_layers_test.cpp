// SPDX-License-Identifier: Apache-2.0
// The policies of the ops of layers: as amp_policies checks op by op, with the values that matter.
#include <doctest/doctest.h>

#include <cmath>
#include <tuple>

#include "tests/amp/autocast_calls.h"

using namespace halfstep;
using namespace halfstep::calls;

namespace {
constexpr DType kLowTypes[] = {DType::bf16, DType::f16};
}

TEST_CASE("amp 8: index_put and scatter_add promote whichever side is 16-bit") {
  const Tensor index = from_vector<int64_t>({0, 2}, {2});
  for (DType low : kLowTypes) {
    const Tensor x = rand({3}), values = rand({2});
    const Autocast region(Device::cpu, low);
    for (bool accumulate : {false, true}) {
      CHECK(index_put(x.to(low), {index}, values, accumulate).dtype() == DType::f32);
      CHECK(index_put(x, {index}, values.to(low), accumulate).dtype() == DType::f32);
      CHECK(index_put(x.to(low), {index}, values.to(low), accumulate).dtype() == low);
    }
    CHECK(scatter_add(x.to(low), 0, index, values).dtype() == DType::f32);
    CHECK(scatter_add(x, 0, index, values.to(low)).dtype() == DType::f32);
  }
}

TEST_CASE("amp 15: norms of 16-bit tensors are float32, with and without dimensions") {
  const Tensor x = full({300, 300}, 300, {.dtype = DType::f16});
  const Autocast region(Device::cpu, DType::f16);
  for (double p : {1.0, 2.0}) {
    CHECK(norm(x, p).dtype() == DType::f32);
    CHECK(norm(x, p, {1}).dtype() == DType::f32);
  }
  CHECK(norm(x, 2).item<double>() == doctest::Approx(90000));  // above float16's range
  CHECK(norm(x, 1, {0})[0].item<double>() == doctest::Approx(90000));
}

TEST_CASE("amp 16: a number divided by a 16-bit tensor is float32") {
  const Tensor x = full({3}, 3, {.dtype = DType::f16});
  CHECK((1.0 / x).dtype() == DType::f16);
  const Autocast region(Device::cpu, DType::f16);
  CHECK((1.0 / x).dtype() == DType::f32);
  CHECK((2.0 / x)[0].item<float>() == 2.0f / 3.0f);
}

TEST_CASE("amp 17: normalize of a 16-bit tensor is float32") {
  const Autocast region(Device::cpu, DType::f16);
  const Tensor y = normalize(full({2, 4}, 30000, {.dtype = DType::f16}));
  CHECK(y.dtype() == DType::f32);
  CHECK(y[0][0].item<float>() == 0.5f);
}

TEST_CASE("amp 18: relu, dropout and batch_norm keep the dtype; batch_norm takes 16-bit input with float32 parameters") {
  manual_seed(1);
  for (DType low : kLowTypes) {
    const Autocast region(Device::cpu, low);
    for (DType dtype : {low, DType::f32}) {
      const Tensor x = randn({8, 3, 4}).to(dtype), mean = zeros({3}), var = ones({3});
      CHECK(relu(x).dtype() == dtype);
      CHECK(dropout(x, 0.5).dtype() == dtype);
      const Tensor y = batch_norm(x, mean, var, ones({3}), zeros({3}), /*training=*/true);
      CHECK(y.dtype() == dtype);
      CHECK(mean.dtype() == DType::f32);
      // Statistics are float32 whatever the input: the running mean is a tenth of the mean of the very values.
      const Tensor want = x.to(DType::f32).mean({0, 2}) * 0.1;
      for (int64_t c = 0; c < 3; ++c) CHECK(mean[c].item<float>() == doctest::Approx(want[c].item<float>()).epsilon(1e-4));
    }
  }
}

TEST_CASE("amp 19: layer_norm and group_norm of 16-bit are float32, computed from the 16-bit values without a cast") {
  manual_seed(2);
  const Tensor w = rand({8}), b = rand({8});
  for (DType low : kLowTypes) {
    const Tensor x = randn({4, 8}).to(low);
    const Autocast region(Device::cpu, low);
    const uint64_t casts = autocast::cast_count();
    const Tensor y = layer_norm(x, {8}, w, b), z = group_norm(x, 2, w, b), r = rms_norm(x, {8}, w);
    CHECK(autocast::cast_count() == casts);
    for (const Tensor& t : {y, z, r}) CHECK(t.dtype() == DType::f32);
    const Autocast off(Device::cpu, {.enabled = false});
    CHECK(bitwise(y, layer_norm(x.to(DType::f32), {8}, w, b)));
    CHECK(bitwise(z, group_norm(x.to(DType::f32), 2, w, b)));
    CHECK(bitwise(r, rms_norm(x.to(DType::f32), {8}, w)));
  }
}

TEST_CASE("amp 20: convolutions of float32 give the region's dtype; float32 weights have float32 gradients") {
  manual_seed(3);
  for (DType low : kLowTypes) {
    const Tensor w = leaf({4, 3, 3, 3}), x = leaf({2, 3, 6, 6});
    Tensor y;
    {
      const Autocast region(Device::cpu, low);
      y = conv2d(x, w, {}, {.padding = {1}});
      CHECK(conv1d(rand({2, 3, 9}), rand({4, 3, 3})).dtype() == low);
      CHECK(conv3d(rand({1, 2, 4, 4, 4}), rand({3, 2, 3, 3, 3})).dtype() == low);
      CHECK(conv_transpose2d(x, rand({3, 2, 2, 2})).dtype() == low);
      CHECK(prelu(x, full({1}, 0.25)).dtype() == low);
    }
    CHECK(y.dtype() == low);
    y.sum().backward();
    CHECK(w.grad().dtype() == DType::f32);
    CHECK(x.grad().dtype() == DType::f32);
  }
}

TEST_CASE("amp 21: losses of 16-bit tensors are float32, their gradients 16-bit") {
  manual_seed(4);
  using Loss = Tensor (*)(const Tensor&, const Tensor&);
  const Loss losses[] = {[](const Tensor& a, const Tensor& b) { return l1_loss(a, b); },
                         [](const Tensor& a, const Tensor& b) { return smooth_l1_loss(a, b); },
                         [](const Tensor& a, const Tensor& b) { return huber_loss(a, b); },
                         [](const Tensor& a, const Tensor& b) { return kl_div(a, b); },
                         [](const Tensor& a, const Tensor& b) { return soft_margin_loss(a, b); },
                         [](const Tensor& a, const Tensor& b) { return poisson_nll_loss(a, b); },
                         [](const Tensor& a, const Tensor& b) { return binary_cross_entropy_with_logits(a, b); }};
  for (DType low : kLowTypes)
    for (Loss loss : losses) {
      const Tensor x = leaf({4, 3}, low), target = rand({4, 3}).to(low);
      Tensor l;
      {
        const Autocast region(Device::cpu, low);
        l = loss(x, target);
      }
      CHECK(l.dtype() == DType::f32);
      l.backward();
      CHECK(x.grad().dtype() == low);
    }
}

TEST_CASE("amp 55, cells: recurrent cells run in the region's dtype and equal cells on inputs cast by hand") {
  manual_seed(5);
  const Tensor x = randn({4, 6}), h = randn({4, 5}), c = randn({4, 5});
  for (DType low : kLowTypes) {
    const Tensor w_ih = leaf({20, 6}), w_hh = leaf({20, 5}), b_ih = leaf({20}), b_hh = leaf({20});
    Tensor h2, c2;
    {
      const Autocast region(Device::cpu, low);
      std::tie(h2, c2) = lstm_cell(x, h, c, w_ih, w_hh, b_ih, b_hh);
    }
    CHECK(h2.dtype() == low);
    CHECK(c2.dtype() == low);
    const auto [h3, c3] = lstm_cell(x.to(low), h.to(low), c.to(low), w_ih.to(low), w_hh.to(low), b_ih.to(low), b_hh.to(low));
    CHECK(bitwise(h2, h3));
    CHECK(bitwise(c2, c3));
    (h2.sum() + c2.sum()).backward();
    CHECK(w_ih.grad().dtype() == DType::f32);
  }
}
