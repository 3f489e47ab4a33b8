// SPDX-License-Identifier: Apache-2.0
// Layers for positions in a sequence. Their values are compared with PyTorch's in tests/apps/catalog/layer_goldens_test.cpp.
#include "layers/sequences/positions.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <thread>
#include <vector>

#include "amp/autocast/autocast.h"
#include "framework/autograd/grad_mode.h"
#include "framework/autograd/gradcheck.h"
#include "tests/layers/support.h"

using namespace halfstep;
using namespace halfstep::testing;

TEST_CASE("PositionalEncoding's rows are sines and cosines, far positions too") {
  PositionalEncoding positions(6);
  CHECK(positions.pe.shape() == Shape{5000, 1, 6});
  for (int64_t i : {0, 1, 7, 4999}) {
    for (int64_t j = 0; j < 6; ++j) {
      const double angle = double(i) * std::pow(10000.0, -double(j / 2 * 2) / 6);
      const double want = j % 2 ? std::cos(angle) : std::sin(angle);
      CHECK(std::abs(positions.pe.select(0, i)[0][j].item<double>() - want) < 1e-7);
    }
  }
  positions.eval();
  const Tensor x = randn({3, 2, 6}), y = positions(x);  // [L, N, E]
  CHECK(largest(y - (x + positions.pe.narrow(0, 0, 3))) == 0);
  CHECK(largest(positions(x.select(1, 0)) - y.select(1, 0)) == 0);  // [L, E]
  PositionalEncoding batches(6, {.dropout = 0, .batch_first = true});
  CHECK(largest(batches(x.transpose(0, 1)).transpose(0, 1) - y) == 0);
  const DefaultDevice on(Device::meta);
  CHECK(PositionalEncoding(6, {.max_len = int64_t(1) << 31}).pe.size(0) == int64_t(1) << 31);  // at once, and without memory
}

TEST_CASE("positions beyond max_len and wrong widths are refused") {
  const auto refuses = [](const std::string& message, auto&& call) { CHECK_THROWS_WITH_AS(call(), message.c_str(), ShapeError); };
  PositionalEncoding waves(4, {.max_len = 5, .batch_first = true});
  PositionEmbedding learned(5, 4);
  refuses("[PositionalEncoding] takes at most max_len, 5, positions, with batch_first=true, got [2, 6, 4]", [&] {
    waves(ones({2, 6, 4}));
  });
  refuses("[PositionalEncoding] the last dimension must be d_model, 4, got [2, 3, 3]", [&] { waves(ones({2, 3, 3})); });
  refuses("[PositionEmbedding] takes at most max_len, 5, positions, with batch_first=false, got [6, 2, 4]", [&] {
    learned(ones({6, 2, 4}));
  });
  refuses("[PositionEmbedding] needs an input of 2 to 3 dimensions, got [4]", [&] { learned(ones({4})); });
  RotaryEmbedding rotary(4);
  refuses("[RotaryEmbedding] needs [..., L, width] with a width of dim, 4, or more, got [5, 3]", [&] { rotary(ones({5, 3})); });
  refuses("[RotaryEmbedding] positions must broadcast to the dimensions before the last of [2, 5, 4], got [3, 2, 5]", [&] {
    rotary(ones({2, 5, 4}), ones({2, 5, 4}), zeros({3, 2, 5}));
  });
  CHECK_THROWS_WITH_AS(RotaryEmbedding(3), "[RotaryEmbedding] dim must be even, got 3", ValueError);
  CHECK_THROWS_WITH_AS(RotaryEmbedding(4, {.base = 0}), "[RotaryEmbedding] base must be > 0, got 0", ValueError);
  CHECK_THROWS_AS(PositionEmbedding(0, 4), ValueError);
  CHECK_THROWS_AS(PositionalEncoding(4, {.max_len = 0}), ValueError);
}

TEST_CASE("a learned position begins as N(0, 0.02)") {
  Generator generator(1);
  const PositionEmbedding learned(100, 64, {}, &generator);
  CHECK(std::abs(learned.weight.detach().square().mean().item<double>() / (0.02 * 0.02) - 1) < 0.05);
}

TEST_CASE("products of turned queries and keys depend on their distance alone") {
  manual_seed(1);
  for (const RotaryEmbeddingOptions& o : {RotaryEmbeddingOptions{}, RotaryEmbeddingOptions{.base = 100, .interleaved = true}}) {
    RotaryEmbedding rotary(8, o);
    const Tensor one = randn({1, 8}, {.dtype = DType::f64}), other = randn({1, 8}, {.dtype = DType::f64});
    const auto [q, k] = rotary(one.expand({12, 8}), other.expand({12, 8}));
    const Tensor scores = matmul(q, k.t());
    for (int64_t apart : {-3, 0, 5}) {
      for (int64_t i = 3; i < 6; ++i)
        CHECK(scores[i][i + apart].item<double>() == doctest::Approx(scores[4][4 + apart].item<double>()).epsilon(1e-12));
    }
    CHECK(std::abs(scores[4][4].item<double>() - scores[4][7].item<double>()) > 1e-3);
    // The same, from positions that are given.
    const auto [late, later] = rotary(one.expand({2, 1, 3, 8}), other.expand({2, 1, 3, 8}), arange(5, 8));
    CHECK(largest(late[1][0] - q.narrow(0, 5, 3)) < 1e-14);
    const auto [each, unused] =
        rotary(one.expand({2, 3, 8}), other.expand({2, 3, 8}), tensor({0.0, 1, 2, 7, 1, 0}).reshape({2, 3}));
    CHECK(largest(each[1][0] - q[7]) < 1e-14);
    CHECK(largest(each[0] - q.narrow(0, 0, 3)) < 1e-14);
  }
}

TEST_CASE("turning keeps dtypes, takes longer sequences later, and has its gradients") {
  manual_seed(2);
  RotaryEmbedding rotary(4);
  const Tensor x = randn({2, 3, 6, 4});
  const Tensor y = rotary(x.narrow(2, 0, 2)), all = rotary(x);
  CHECK(largest(all.narrow(2, 0, 2) - y) == 0);
  for (DType low : {DType::bf16, DType::f16}) {
    const Autocast region(Device::cpu, low);
    const Tensor z = rotary(x.to(low));
    CHECK(z.dtype() == low);
    CHECK(largest(z.to(DType::f32) - all) < 0.05);
    CHECK(rotary(x).dtype() == DType::f32);
  }
  CHECK(rotary(x.to(DType::f64)).dtype() == DType::f64);
  CHECK_THROWS_AS(rotary(x.to(DType::i64)), DTypeError);
  const Tensor there = rotary(x.to(Device::meta));
  CHECK(there.device() == Device::meta);
  CHECK(there.shape() == x.shape());
  CHECK(largest(rotary(x) - all) == 0);  // back from another device
  const Tensor wide = randn({3, 6}, {.dtype = DType::f64}).set_requires_grad();
  CHECK_NOTHROW(gradcheck([&](const Tensors& in) { return Tensors{rotary(in[0])}; }, {wide}));
}

TEST_CASE("threads may turn sequences of growing lengths at once") {
  RotaryEmbedding rotary(4);
  const Tensor x = ones({64, 4}), all = RotaryEmbedding(4)(x);
  std::vector<double> largest_of(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < largest_of.size(); ++i) {
    threads.emplace_back([&, i] {
      const NoGrad off;
      for (int64_t n = 1 + int64_t(i); n <= 64; n += 3) {
        const Tensor y = rotary(x.narrow(0, 0, n));
        largest_of[i] = std::max(largest_of[i], largest(y - all.narrow(0, 0, n)));
      }
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(largest_of == std::vector<double>(4));
}
