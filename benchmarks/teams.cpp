// SPDX-License-Identifier: Apache-2.0
// Measures the constants of framework/backend/cpu/team.h: the cost of a cheap element and of a product's operations, of calling
// the other threads, and the work from which several threads are faster than one.
//   teams [THREADS]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "framework/backend/backend.h"
#include "framework/backend/cpu/parallel.h"

using namespace halfstep;

namespace {

using Clock = std::chrono::steady_clock;

// The median time of one of `inner` calls, in microseconds; `before` is called ahead of each timing.
double microseconds(int inner, const std::function<void()>& f, const std::function<void()>& before = {}) {
  std::vector<double> times;
  for (int round = 0; round < 200; ++round) {
    if (before) before();
    const auto start = Clock::now();
    for (int i = 0; i < inner; ++i) f();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count() / inner);
  }
  std::nth_element(times.begin(), times.begin() + 100, times.end());
  return times[100];
}

double product_us(DType t, int64_t n) {
  std::vector<float> memory[3];  // zeros, of any dtype
  for (auto& m : memory) m.resize(size_t(n * n));
  const auto view = [&](int i, bool transposed) {
    return TensorView{memory[i].data(), t, {n, n}, transposed ? Strides{1, n} : Strides{n, 1}};
  };
  return microseconds(5, [&] { backend_for(Device::cpu).gemm({.a = view(0, false), .b = view(1, true), .c = view(2, false)}); });
}

double elements_us(int64_t n) {
  static std::vector<float> a(1 << 20, 1.0f), b(1 << 20, 2.0f), c(1 << 20);
  const TensorView x{a.data(), DType::f32, {n}, {1}}, y{b.data(), DType::f32, {n}, {1}}, out{c.data(), DType::f32, {n}, {1}};
  return microseconds(20, [&] { backend_for(Device::cpu).binary(Binary::add, x, y, out); });
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : num_threads();
  const auto nothing = [](void*, int64_t) {};
  set_num_threads(1);
  const double element = elements_us(16384) / 16384 * 1e3;
  std::printf("cheap element           %.3f ns\n", element);
  for (DType t : {DType::f32, DType::bf16}) {
    const double us = product_us(t, 256), work = double(cpu::product_work(1, 256, 256, 256, t == DType::bf16));
    std::printf("product of 256^3, %-4s  %.1f us, %.3f ns for each of %.0f elements of work\n", t == DType::f32 ? "f32" : "bf16",
                us, us / work * 1e3, work);
  }
  set_num_threads(threads);
  cpu::run_team(threads, threads, nothing, nullptr);
  std::printf("%d threads called, spinning  %.2f us\n", threads,
              microseconds(20, [&] { cpu::run_team(threads, threads, nothing, nullptr); }));
  std::printf("%d threads called, asleep    %.2f us\n", threads,
              microseconds(
                  1, [&] { cpu::run_team(threads, threads, nothing, nullptr); },
                  [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }));
  std::printf("a share of %lld elements  %.2f us\n\nelements   1 thread us   %d threads us   chosen\n",
              static_cast<long long>(cpu::kShare), double(cpu::kShare) * element / 1e3, threads);
  for (int64_t n = 8192; n <= 1 << 20; n *= 2) {
    set_num_threads(1);
    const double one = elements_us(n);
    set_num_threads(threads);
    // As many parts as threads, whatever the work: the reference for the choice.
    static std::vector<float> a(1 << 20, 1.0f), b(1 << 20, 2.0f), c(1 << 20);
    const double shared = microseconds(20, [&] {
      cpu::parallel_for(n, 1024, int64_t(1) << 40, [&](int64_t begin, int64_t end) {
        const TensorView x{a.data() + begin, DType::f32, {end - begin}, {1}}, y{b.data() + begin, DType::f32, {end - begin}, {1}},
            out{c.data() + begin, DType::f32, {end - begin}, {1}};
        backend_for(Device::cpu).binary(Binary::add, x, y, out);
      });
    });
    std::printf("%8lld   %11.2f   %12.2f   %d\n", static_cast<long long>(n), one, shared, cpu::threads_for(n, threads));
  }
}
