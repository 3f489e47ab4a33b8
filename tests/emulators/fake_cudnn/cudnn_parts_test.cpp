// SPDX-License-Identifier: Apache-2.0
// Convolutions of more elements than the library may count, as a limit of few elements pretends them.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "cuda/dnn/conv.h"
#include "cuda/gpu.cuh"
#include "halfstep.h"

using namespace halfstep;

namespace {

struct Largest {
  explicit Largest(int64_t elements) { cuda::dnn::set_largest_convolution(elements); }
  ~Largest() { cuda::dnn::set_largest_convolution(std::numeric_limits<int32_t>::max()); }
};

// The result of a convolution in two groups, or of a transposed one, and the gradients of its input, weight and bias.
Tensors convolved(Device device, DType dtype, bool transposed, MemoryFormat format) {
  manual_seed(51);
  const auto leaf = [&](const Shape& shape) {
    const Tensor t = randn(shape).to(DType::f16).to(dtype).to(device);
    return (shape.size() == 4 ? t.contiguous(format) : t).detach().set_requires_grad();
  };
  const Tensor x = leaf({5, 8, 7, 6}), w = leaf({8, 4, 3, 3}), bias = leaf({8});
  const Tensor y =
      transposed ? conv_transpose2d(x, w, bias, {.stride = 2, .groups = 2}) : conv2d(x, w, bias, {.padding = 1, .groups = 2});
  const Tensors d = grad({y}, {x, w, bias}, {full_like(y, 0.5)});
  return {y.detach(), d[0], d[1], d[2]};
}

double relative_error(const Tensor& got, const Tensor& want) {
  const Tensor difference = (got.to(Device::cpu).to(DType::f64) - want).abs();
  return difference.max().item<double>() / want.abs().max().item<double>();
}

int64_t calls_of_library(const emu::Operations& done) {
  return std::count_if(done.list.begin(), done.list.end(), [](const emu::Operation& o) { return o.name == "cudnn"; });
}

}  // namespace

TEST_CASE("convolutions of too many elements for the library are given to it in parts, by samples") {
  // Of 5 samples the larger tensor may have 2 in a part, which makes three; or less than one, which no part can have.
  for (const bool transposed : {false, true}) {
    for (const int64_t samples : {2, 0}) {
      const int64_t elements = transposed ? 8 * 15 * 13 : 8 * 7 * 6;
      for (const DType dtype : {DType::f32, DType::f16}) {
        for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
          CAPTURE(transposed);
          CAPTURE(samples);
          CAPTURE(name(dtype));
          const Tensors want = convolved(Device::cpu, DType::f64, transposed, MemoryFormat::contiguous);
          const Largest limit(samples == 0 ? elements - 1 : samples * elements + 1);
          const emu::Operations done;
          const Tensors got = convolved(Device::cuda, dtype, transposed, format);
          CHECK(calls_of_library(done) == (samples == 0 ? 0 : 3 * 3));
          for (size_t i = 0; i < want.size(); ++i) {
            CAPTURE(i);
            CHECK(relative_error(got[i], want[i]) < (dtype == DType::f16 ? 4e-3 : 1e-5));
          }
        }
      }
    }
  }
}

TEST_CASE("a convolution whose weight has too many elements for the library is not given to it") {
  manual_seed(52);
  const Tensor x = randn({2, 8, 3, 3}), w = randn({64, 8, 3, 3}), want = conv2d(x.to(DType::f64), w.to(DType::f64));
  for (const bool fits : {true, false}) {
    const Largest limit(w.numel() - !fits);
    const emu::Operations done;
    CHECK(relative_error(conv2d(x.to(Device::cuda), w.to(Device::cuda)), want) < 1e-5);
    CHECK(calls_of_library(done) == fits);
  }
}
