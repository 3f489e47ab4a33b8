// SPDX-License-Identifier: Apache-2.0
#include "framework/backend/machine_rates.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "framework/backend/backend.h"
#include "framework/base/check.h"
#include "framework/tensor/tensor.h"

namespace halfstep {
namespace {

constexpr double kLargeProduct = 2e9;  // operations above which only part of the rows is computed
constexpr double kTrySeconds = 2e-3;   // about the least time of one try, so that the clock's error does not matter
constexpr double kAllSeconds = 0.1;    // no further try begins after it, once there were kFewestTries
constexpr int kFewestTries = 3, kMostTries = 10;
constexpr int kSmallestCopyLog2 = 12, kLargestCopyLog2 = 28;  // log2 of the bytes that a copy reads and writes: 4 KiB to 256 MiB

// Returns the seconds of one call of `work`, which may return before the device is done: the least mean of several tries.
template <class Work>
double seconds_of(Backend& backend, const Work& work) {
  using Clock = std::chrono::steady_clock;
  const auto time = [&](int64_t calls) {
    const auto begin = Clock::now();
    for (int64_t i = 0; i < calls; ++i) work();
    backend.synchronize();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  time(1);  // the first call of a shape also prepares later ones
  const double one_call = std::max(time(1), 1e-9);
  const int64_t calls = std::max<int64_t>(1, std::llround(kTrySeconds / one_call));
  double best = one_call, spent = 0;
  for (int tries = 0; tries < kFewestTries || (spent < kAllSeconds && tries < kMostTries); ++tries) {
    const double taken = time(calls);
    best = std::min(best, taken / double(calls));
    spent += taken;
  }
  return best;
}

Tensor filled(const Shape& shape, DType dtype, Device device) {
  const Tensor out = Tensor::empty(shape, {.dtype = dtype, .device = device});
  backend_for(device).fill(out.view(), 0.5);
  return out;
}

}  // namespace

double MachineRates::product_seconds(DType dtype, int64_t m, int64_t n, int64_t k, int64_t batch) {
  check<DTypeError>(is_floating(dtype), "machine_rates", "products are of floating dtypes, got ", dtype);
  check<ValueError>(m >= 0 && n >= 0 && k >= 0 && batch >= 0, "machine_rates", "sizes must not be negative, got ", m, ", ", n, ", ",
                    k, " and ", batch);
  if (m == 0 || n == 0 || k == 0) return 0;
  double& seconds = products_[{dtype, m, n, k}];  // 0: not measured
  if (seconds == 0) {
    const double operations = 2 * double(m) * double(n) * double(k);
    const int64_t rows =
        operations <= kLargeProduct ? m : std::clamp<int64_t>(int64_t(kLargeProduct / operations * double(m)), 1, m);
    const Tensor a = filled({rows, k}, dtype, device_), b = filled({k, n}, dtype, device_), c = filled({rows, n}, dtype, device_);
    Backend& backend = backend_for(device_);
    seconds = seconds_of(backend, [&] { backend.gemm({.a = a.view(), .b = b.view(), .c = c.view()}); }) * double(m) / double(rows);
  }
  return seconds * double(batch);
}

double MachineRates::seconds(const MatrixProduct& p) {
  if (!p.fused) return product_seconds(p.dtype, p.m, p.n, p.k, p.batch);
  constexpr int64_t kSide = 2048;  // a product of this side runs at the machine's full rate
  const MatrixProduct large{.dtype = p.dtype, .m = kSide, .n = kSide, .k = kSide};
  return p.flops() / large.flops() * seconds(large);
}

double MachineRates::bytes_per_second() { return std::exp2(kLargestCopyLog2) / level_seconds(kLargestCopyLog2); }

double MachineRates::level_seconds(int level) {
  double& seconds = levels_[level];  // 0: not measured
  if (seconds == 0) {
    const int64_t numel = (int64_t(1) << level) / 8;  // float32, each of which is read and written: 8 bytes
    const Tensor from = filled({numel}, DType::f32, device_), to = filled({numel}, DType::f32, device_);
    Backend& backend = backend_for(device_);
    seconds = seconds_of(backend, [&] { backend.copy(from.view(), to.view()); });
  }
  return seconds;
}

double MachineRates::copy_seconds(double bytes) {
  if (bytes <= 0) return 0;
  const double at = std::clamp(std::log2(bytes), double(kSmallestCopyLog2), double(kLargestCopyLog2));
  const int below = std::min(int(at) / 2 * 2, kLargestCopyLog2 - 2);  // levels are a factor of four apart
  const double low = level_seconds(below), high = level_seconds(below + 2);
  if (bytes > std::exp2(kLargestCopyLog2)) return high * bytes / std::exp2(kLargestCopyLog2);
  const double share = (std::exp2(at) - std::exp2(below)) / (std::exp2(below + 2) - std::exp2(below));
  return low + share * (high - low);
}

double MachineRates::floor_seconds(const LoggedCall& call) {
  double products = 0, bytes = call.bytes_read + call.bytes_written;
  for (const MatrixProduct& p : call.products) products += seconds(p);
  for (const LoggedCast& c : call.casts)
    if (!c.shadow) bytes -= double(c.elements) * double(size_of(c.from) + size_of(c.to));
  return std::max(products, copy_seconds(bytes));
}

}  // namespace halfstep
