// SPDX-License-Identifier: Apache-2.0
// Lanes in vectors of each width that a CPU may have: the same numbers in the same lanes.
#include "framework/backend/cpu/lanes.h"

#include <doctest/doctest.h>

#include <vector>

using namespace halfstep;
using namespace halfstep::cpu;

namespace {

template <class T, int bytes>
std::vector<T> numbers_in(const Lanes<T, bytes>& v) {
  std::vector<T> out(kLanes / sizeof(T));
  store_lanes(v, out.data());
  return out;
}

template <class T, int bytes>
void check_numbers() {
  constexpr int n = kLanes / int(sizeof(T));
  std::vector<T> x(n), y(n), sum(n), scaled(n), kept(n), dropped(n);
  for (int k = 0; k < n; ++k) {
    x[size_t(k)] = T(k) - T(3);
    y[size_t(k)] = T(2 * k + 1);
    sum[size_t(k)] = x[size_t(k)] + y[size_t(k)] * x[size_t(k)];
    scaled[size_t(k)] = (x[size_t(k)] - T(2)) * T(3) + T(1);
    kept[size_t(k)] = k < n - 3 ? T(0) : x[size_t(k)];
    dropped[size_t(k)] = x[size_t(k)] <= T(1) ? T(0) : y[size_t(k)];
  }
  Lanes<T, bytes> a, b;
  load_lanes(x.data(), a);
  load_lanes(y.data(), b);
  CHECK(numbers_in(a) == x);
  CHECK(numbers_in(a + b * a) == sum);
  CHECK(numbers_in((a - T(2)) * T(3) + T(1)) == scaled);
  zero_where_at_most(b, a, T(1));
  CHECK(numbers_in(b) == dropped);
  Lanes<T, bytes> last;
  load_last(x.data(), n, 3, last);
  CHECK(numbers_in(last) == kept);
  // Fewer numbers than lanes: those that there are stand last.
  load_last(x.data() + n - 3, 3, 3, last);
  CHECK(numbers_in(last) == kept);
}

template <int bytes>
void check_widening() {
  bf16 halves[16];
  float floats[16];
  for (int k = 0; k < 16; ++k) halves[k] = bf16(floats[k] = float(k) * 0.25f - 1);
  Lanes<float, bytes> wide;
  load_lanes(halves, wide);
  CHECK(numbers_in(wide) == std::vector<float>(floats, floats + 16));
  Lanes<double, bytes> wider;
  load_lanes(floats, wider);
  CHECK(numbers_in(wider) == std::vector<double>(floats, floats + 8));
}

}  // namespace

TEST_CASE("lanes hold the same numbers in vectors of any width") {
  check_numbers<float, 16>();
  check_numbers<float, 32>();
  check_numbers<float, 64>();
  check_numbers<double, 16>();
  check_numbers<double, 32>();
  check_numbers<double, 64>();
  check_widening<16>();
  check_widening<32>();
  check_widening<64>();
  CHECK(with_lanes([](auto bytes) HS_INLINE { return int(bytes) == 16 || int(bytes) == 32 || int(bytes) == 64; }));
}
