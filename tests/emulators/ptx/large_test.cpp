// SPDX-License-Identifier: Apache-2.0
// What a launch does only for models of billions of parameters, too slow for the emulator.
#include <doctest/doctest.h>

#include <cmath>

#include "framework/base/check.h"
#include "tests/cuda/kernels/device.h"

using namespace halfstep;
using namespace halfstep::testing;

TEST_SUITE("slow") {
  TEST_CASE("norms of more parts than the scratch memory has places for are summed in long chunks") {
    constexpr int64_t kPlaces = cuda::kScratchDoubles, kChunk = 32 * 256;
    // One tensor many times: two parts of the usual length, and one of the long ones.
    const int64_t length = kChunk + 1;
    const OnDevice one(uniform(DType::bf16, {length}, 1, 0.5, 0.6)), norm(make(DType::f32, {1}));
    const std::vector<TensorView> many(size_t(kPlaces / 2 + 1), one.view);
    for (double p : {1.0, 2.0, double(INFINITY)}) {
      const auto norm_of = [&](std::span<const TensorView> list) {
        cuda::norm(queue(), list, p, norm.as<float>());
        float got = 0;
        REQUIRE(cudaMemcpy(&got, norm.view.data, sizeof got, cudaMemcpyDeviceToHost) == cudaSuccess);
        return double(got);
      };
      const double single = norm_of(std::span(many).first(1));
      CHECK(norm_of(many) == doctest::Approx(std::isinf(p) ? single : single * std::pow(double(many.size()), 1 / p)).epsilon(2e-7));
    }
  }

  TEST_CASE("a norm of more tensors than the scratch memory has places for is refused") {
    const OnDevice one(make(DType::f32, {1})), norm(make(DType::f32, {1}));
    const std::vector<TensorView> many(cuda::kScratchDoubles + 1, one.view);
    CHECK_THROWS_AS(cuda::norm(queue(), many, 2, norm.as<float>()), ValueError);
  }
}
