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

constexpr double kLargeProduct = 2e9;         // operations, above which a part of the rows has to do
constexpr double kLeast = 2e-3, kMost = 0.1;  // seconds: of one try, and of all tries
constexpr int64_t kCopied = 128 << 20;        // bytes

// Seconds of one call of `work`, which queues it.
template <class Work>
double seconds_of(Backend& backend, const Work& work) {
  using Clock = std::chrono::steady_clock;
  const auto take = [&](int64_t calls) {
    const auto begin = Clock::now();
    for (int64_t i = 0; i < calls; ++i) work();
    backend.synchronize();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  take(1);  // the first call of a shape also prepares the later ones
  const double one = std::max(take(1), 1e-9);
  const int64_t calls = std::max<int64_t>(1, std::llround(kLeast / one));
  double best = one, spent = 0;
  for (int tries = 0; tries < 3 || (spent < kMost && tries < 10); ++tries) {
    const double taken = take(calls);
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
  double& known = products_[{dtype, m, n, k}];
  if (known == 0) {
    const double operations = 2 * double(m) * double(n) * double(k);
    const int64_t rows =
        operations <= kLargeProduct ? m : std::clamp<int64_t>(int64_t(kLargeProduct / operations * double(m)), 1, m);
    const Tensor a = filled({rows, k}, dtype, device_), b = filled({k, n}, dtype, device_), c = filled({rows, n}, dtype, device_);
    Backend& backend = backend_for(device_);
    known = seconds_of(backend, [&] { backend.gemm({.a = a.view(), .b = b.view(), .c = c.view()}); }) * double(m) / double(rows);
  }
  return known * double(batch);
}

double MachineRates::bytes_per_second() {
  if (bytes_ == 0) {
    const Tensor from = filled({kCopied / 4}, DType::f32, device_), to = filled({kCopied / 4}, DType::f32, device_);
    Backend& backend = backend_for(device_);
    bytes_ = 2 * double(kCopied) / seconds_of(backend, [&] { backend.copy(from.view(), to.view()); });
  }
  return bytes_;
}

}  // namespace halfstep
