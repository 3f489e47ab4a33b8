// SPDX-License-Identifier: Apache-2.0
// Handlers of instructions, lane by lane: common parts.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/emulators/ptx/code.h"

namespace halfstep::ptx {

// Computes for all lanes d = f(a), f(a, b), f(a, b, c). F is a lambda without captures.
template <class D, class A, class F>
constexpr Handler of1(F) {
  return [](Context& x, const Instruction& i, uint32_t lanes) {
    const uint64_t* a = x.in(i.a);
    uint64_t* d = x.out(i.d);
    each(lanes, [&](int l) { put<D>(d, l, F{}(i, get<A>(a, l))); });
  };
}
template <class D, class A, class B, class F>
constexpr Handler of2(F) {
  return [](Context& x, const Instruction& i, uint32_t lanes) {
    const uint64_t *a = x.in(i.a), *b = x.in(i.b);
    uint64_t* d = x.out(i.d);
    each(lanes, [&](int l) { put<D>(d, l, F{}(i, get<A>(a, l), get<B>(b, l))); });
  };
}
template <class D, class A, class B, class C, class F>
constexpr Handler of3(F) {
  return [](Context& x, const Instruction& i, uint32_t lanes) {
    const uint64_t *a = x.in(i.a), *b = x.in(i.b), *c = x.in(i.c);
    uint64_t* d = x.out(i.d);
    each(lanes, [&](int l) { put<D>(d, l, F{}(i, get<A>(a, l), get<B>(b, l), get<C>(c, l))); });
  };
}
using I = Instruction;

// Calls f(T()) with the type of that name.
template <class F>
Handler for_integer(const std::string& t, const F& f) {
  if (t == "s16") return f(int16_t{});
  if (t == "s32") return f(int32_t{});
  if (t == "s64") return f(int64_t{});
  if (t == "u16" || t == "b16") return f(uint16_t{});
  if (t == "u32" || t == "b32") return f(uint32_t{});
  if (t == "u64" || t == "b64") return f(uint64_t{});
  return nullptr;
}
template <class F>
Handler for_floating(const std::string& t, const F& f) {
  if (t == "f32") return f(float{});
  if (t == "f64") return f(double{});
  return nullptr;
}
template <class T>
using Wide = std::conditional_t<sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
                                std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>,
                                                   std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>>>;
template <class T>
T high(T a, T b) {
  return T((Wide<T>(a) * Wide<T>(b)) >> (8 * sizeof(T)));
}

template <class T>
inline T read(const I& i, T v) {
  return i.flush ? flushed(v) : v;
}
// Computes a floating result: rounded as the instruction says, flushed, saturated.
template <class T, class F, class... A>
inline T arithmetic(const I& i, const F& f, A... v) {
  T r;
  if (i.round == Round::nearest) {
    r = f(read(i, v)...);
  } else {
    const auto fenced = [](T x) {  // keeps the compiler from computing before the rounding mode is set
      volatile T kept = x;
      return kept;
    };
    const Rounding mode(i.round);
    volatile T kept = f(fenced(read(i, v))...);
    r = kept;
  }
  if (i.flush) r = flushed(r);
  if (i.saturate) r = r != r ? T(0) : std::clamp(r, T(0), T(1));
  return canonical(r);
}

inline float with_error(const I&, float x) {
  const int most = settings().approximate_ulps;
  if (!most || !std::isfinite(x) || x == 0) return x;
  const uint32_t hash = std::bit_cast<uint32_t>(x) * 2654435761u;
  int ulps = int((hash >> 8) % unsigned(2 * most + 1)) - most;
  for (; ulps > 0; --ulps) x = std::nextafter(x, std::numeric_limits<float>::infinity());
  for (; ulps < 0; ++ulps) x = std::nextafter(x, -std::numeric_limits<float>::infinity());
  return x;
}
// Computes a float instruction by a function in double: exact except for rounding and the requested error. Results that are floats
// have no error: libdevice relies on exponentials of integers.
template <class F>
inline float approximately(const I& i, float x, const F& f) {
  const double exact = f(double(read(i, x)));
  float r = float(exact);
  if (double(r) != exact) r = with_error(i, r);
  if (i.flush) r = flushed(r);
  return canonical(r);
}

// Returns the handler of an instruction of these kinds; null if unknown.
Handler choose_arithmetic(Instruction& i, const std::string& op, const std::string& type, const std::vector<std::string>& words);
Handler choose_function(const Instruction& i, const std::string& op, const std::string& type,
                        const std::vector<std::string>& words);
Handler choose_comparison(Instruction& i, const std::vector<std::string>& op);
Handler choose_test(const std::string& what, const std::string& type);
Handler choose_logic(const std::string& op, const std::string& type);
Handler choose_bits(Instruction& i, const std::vector<std::string>& op);

}  // namespace halfstep::ptx
