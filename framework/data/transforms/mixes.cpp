// SPDX-License-Identifier: Apache-2.0
// Transforms that mix samples of a batch, and their targets, with their neighbours.
#include <algorithm>
#include <cmath>

#include "framework/base/check.h"
#include "framework/data/transforms/image_transforms.h"

namespace halfstep {
namespace {

void check_classes(std::string_view name, const Batch& batch, const Draws& draws) {
  check<ValueError>(draws.classes > 0, name, "mixes classes, so it needs data with classes");
  const bool numbers = batch.target.dim() == 1 && batch.target.dtype() == DType::i64;
  const bool shares = batch.target.dim() == 2 && batch.target.dtype() == DType::f32 && batch.target.size(1) == draws.classes;
  check<ShapeError>(numbers || shares, name, "needs one class a sample, got targets ", batch.target.dtype(), ' ',
                    batch.target.shape());
}

// Returns targets as shares of the classes, [B, classes] f32.
Tensor shares_of(const Tensor& target, int64_t classes) {
  if (target.dtype() == DType::f32) return target.contiguous();
  const Tensor out = Tensor::empty({target.numel(), classes}, {.device = Device::cpu});
  std::fill_n(out.data_ptr<float>(), out.numel(), 0.f);
  const Tensor packed = target.contiguous();
  for (int64_t b = 0; b < target.numel(); ++b) {
    const int64_t c = packed.const_data_ptr<int64_t>()[b];
    check<IndexError>(c >= 0 && c < classes, "Mixup", "a class must be in [0, ", classes, "), got ", c);
    out.data_ptr<float>()[b * classes + c] = 1;
  }
  return out;
}

// Writes row b of the mixture: lambda times the row, plus 1 - lambda times the row before it.
void mix_row(const Tensor& from, const Tensor& to, int64_t b, float lambda) {
  const int64_t n = from.numel() / from.size(0), before = (b == 0 ? from.size(0) : b) - 1;
  const float *x = from.const_data_ptr<float>() + b * n, *y = from.const_data_ptr<float>() + before * n;
  float* const out = to.data_ptr<float>() + b * n;
  for (int64_t i = 0; i < n; ++i) out[i] = lambda * x[i] + (1 - lambda) * y[i];
}

Tensor empty_like_on_host(const Tensor& t) { return Tensor::empty(t.shape(), {.device = Device::cpu}); }

}  // namespace

HALFSTEP_OPTIONS(MixOptions, option("alpha", &O::alpha, "of the Beta distribution").above(0).under(HUGE_VAL))

Batch Mixup::apply(const Batch& batch, const Draws& draws) const {
  constexpr const char* kName = "Mixup";
  check<DTypeError>(batch.input.dtype() == DType::f32, kName, "needs float32 inputs, got ", batch.input.dtype());
  check<DeviceError>(!batch.input.device().is_cuda(), kName, "needs data on the host, got ", batch.input.device());
  check_classes(kName, batch, draws);
  if (batch.input.device().is_meta()) return batch;
  const Tensor input = batch.input.contiguous(), out = empty_like_on_host(input);
  const Tensor target = shares_of(batch.target, draws.classes), mixed = empty_like_on_host(target);
  for (int64_t b = 0; b < input.size(0); ++b) {
    SampleRandom random(draws, size_t(b));
    const float lambda = float(random.beta(options_.alpha));
    mix_row(input, out, b, lambda);
    mix_row(target, mixed, b, lambda);
  }
  return {out, mixed};
}

Batch CutMix::apply(const Batch& batch, const Draws& draws) const {
  constexpr const char* kName = "CutMix";
  check_images(kName, batch.input);
  check_classes(kName, batch, draws);
  if (batch.input.device().is_meta()) return batch;
  const Tensor input = batch.input.contiguous(), out = batch.input.clone().contiguous();
  const Tensor target = shares_of(batch.target, draws.classes), mixed = empty_like_on_host(target);
  const int64_t samples = input.size(0), channels = input.size(1), height = input.size(2), width = input.size(3);
  for (int64_t b = 0; b < samples; ++b) {
    SampleRandom random(draws, size_t(b));
    const double reach = 0.5 * std::sqrt(1 - random.beta(options_.alpha));
    const int64_t x = random.integer(width), y = random.integer(height);
    const auto half_width = int64_t(reach * double(width)), half_height = int64_t(reach * double(height));
    const int64_t left = std::max<int64_t>(x - half_width, 0), right = std::min(x + half_width, width);
    const int64_t top = std::max<int64_t>(y - half_height, 0), bottom = std::min(y + half_height, height);
    const int64_t before = (b == 0 ? samples : b) - 1;
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t row = top; row < bottom; ++row) {
        const auto line = [&](int64_t sample) { return ((sample * channels + c) * height + row) * width + left; };
        std::copy_n(input.data_ptr<float>() + line(before), right - left, out.data_ptr<float>() + line(b));
      }
    }
    mix_row(target, mixed, b, float(1 - double((right - left) * (bottom - top)) / double(width * height)));
  }
  return {out, mixed};
}

}  // namespace halfstep
