// SPDX-License-Identifier: Apache-2.0
#include "framework/base/twister.h"

#include <bit>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

#include "framework/base/text_stream.h"

namespace halfstep {

double Twister::normal() {
  if (waiting_) return *std::exchange(waiting_, {});
  const double u = uniform64(), v = uniform64();
  const double radius = std::sqrt(-2.0 * std::log1p(-v)), angle = 2.0 * std::numbers::pi * u;
  waiting_ = radius * std::sin(angle);
  return radius * std::cos(angle);
}

void Twister::discard(uint64_t words) {
  engine_.discard(words);
  count_ += words;
}

std::vector<int64_t> Twister::permutation(int64_t n) {
  std::vector<int64_t> out(static_cast<size_t>(n));
  std::iota(out.begin(), out.end(), int64_t(0));
  if (uint64_t(n) < 0xffffffffu / 20) {
    for (int64_t i = 0; i < n - 1; ++i) std::swap(out[size_t(i)], out[size_t(i) + random() % uint64_t(n - i)]);
    return out;
  }
  for (int64_t i = 0; i < n; ++i) std::swap(out[size_t(i)], out[random64() % uint64_t(i + 1)]);
  return out;
}

std::string Twister::text() const {
  TextWriter out;
  out << count_ << ' ' << waiting_.has_value() << ' ' << std::bit_cast<uint64_t>(waiting_.value_or(0)) << ' ' << engine_;
  return out.str();
}

std::optional<Twister> Twister::from_text(const std::string& text) {
  TextReader in(text);
  Twister out(0);
  bool waits = false;
  uint64_t bits = 0;
  in >> out.count_ >> waits >> bits >> out.engine_;
  if (!in) return {};
  if (waits) out.waiting_ = std::bit_cast<double>(bits);
  return out;
}

}  // namespace halfstep
