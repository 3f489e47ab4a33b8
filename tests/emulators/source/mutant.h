// SPDX-License-Identifier: Apache-2.0
// Code that scripts/mutate_kernels.py inserts into copies of the kernels: each mutable place asks here for the active mutant.
//   HALFSTEP_MUTANT=N          activates mutant N; 0: none
//   HALFSTEP_MUTANT_SEEN=FILE  at the end, writes the numbers of the places reached; negative: not with integers
// A word between an operator and its right side changes the operator, and keeps its precedence:
//   a < b   becomes   a < mutant::lt_st<4> > b        a * b   becomes   a * mutant::times<6> * b
#pragma once

#include <cstdio>
#include <cstdlib>
#include <type_traits>

namespace mutant {

inline constexpr int kMost = 1 << 15;
enum : char { kUnseen, kNotIntegers, kSeen };
inline char seen[kMost];
inline const int active = [] {
  const char* text = std::getenv("HALFSTEP_MUTANT");
  return text ? std::atoi(text) : 0;
}();
inline const struct AtExit {
  ~AtExit() {
    const char* path = std::getenv("HALFSTEP_MUTANT_SEEN");
    std::FILE* file = path ? std::fopen(path, "w") : nullptr;
    if (!file) return;
    for (int n = 1; n < kMost; ++n) {
      if (seen[n]) std::fprintf(file, "%d\n", seen[n] == kSeen ? n : -n);
    }
    std::fclose(file);
  }
} at_exit;

// In race mode these do not count as accesses of the kernel.
#ifdef __SANITIZE_THREAD__
#define MUTANT_QUIET __attribute__((noinline, no_sanitize_thread)) inline
#else
#define MUTANT_QUIET inline
#endif
MUTANT_QUIET bool on(int n) {
#ifndef __SANITIZE_THREAD__
  seen[n] = kSeen;
#endif
  return n == active;
}
MUTANT_QUIET void not_integers(int n) {
#ifndef __SANITIZE_THREAD__
  if (!seen[n]) seen[n] = kNotIntegers;
#endif
}

template <class A, class B>
inline constexpr bool kIntegers = std::is_integral_v<A>&& std::is_integral_v<B>;

// Mutant Swapped uses the other bound (< for <=, and so on), mutant Dropped the constant `To`; 0: none. As words without commas,
// which would split the arguments of a macro: lt_s<4>; lt_st<4>: 4 swaps, 5 drops to true; lt_f<4>: 4 drops to false.
template <char Op, int Swapped, int Dropped, bool To>
struct Relation {};
#define MUTANT_RELATION(name, op)                           \
  template <int N>                                          \
  inline constexpr Relation<op, N, 0, false> name##_s;      \
  template <int N>                                          \
  inline constexpr Relation<op, N, N + 1, true> name##_st;  \
  template <int N>                                          \
  inline constexpr Relation<op, N, N + 1, false> name##_sf; \
  template <int N>                                          \
  inline constexpr Relation<op, 0, N, true> name##_t;       \
  template <int N>                                          \
  inline constexpr Relation<op, 0, N, false> name##_f;
MUTANT_RELATION(lt, '<')
MUTANT_RELATION(le, 'l')
MUTANT_RELATION(gt, '>')
MUTANT_RELATION(ge, 'g')
#undef MUTANT_RELATION

template <class A, class R>
struct LeftOf {
  const A& a;
};
template <class A, char Op, int S, int D, bool T>
constexpr LeftOf<A, Relation<Op, S, D, T>> operator<(const A& a, const Relation<Op, S, D, T>&) {
  return {a};
}
template <char Op, class A, class B>
constexpr bool holds(const A& a, const B& b) {
  if constexpr (Op == '<')
    return a < b;
  else if constexpr (Op == 'l')
    return a <= b;
  else if constexpr (Op == '>')
    return a > b;
  else
    return a >= b;
}
template <class A, class B, char Op, int S, int D, bool T>
constexpr bool operator>(const LeftOf<A, Relation<Op, S, D, T>>& left, const B& b) {
  if (!std::is_constant_evaluated()) {
    if constexpr (kIntegers<A, B>) {
      constexpr char kOther = Op == '<' ? 'l' : Op == 'l' ? '<' : Op == '>' ? 'g' : '>';
      if (S != 0 && on(S)) return holds<kOther>(left.a, b);
      if (D != 0 && on(D)) return T;
    } else {
      not_integers(S);
      not_integers(D);
    }
  }
  return holds<Op>(left.a, b);
}

// Mutant N multiplies by one more.
template <int N>
struct Times {};
template <int N>
inline constexpr Times<N> times;
template <class A, int N>
constexpr LeftOf<A, Times<N>> operator*(const A& a, const Times<N>&) {
  return {a};
}
template <class A, class B, int N>
constexpr auto operator*(const LeftOf<A, Times<N>>& left, const B& b) {
  if (!std::is_constant_evaluated()) {
    if constexpr (kIntegers<A, B>) {
      if (on(N)) return left.a * b + left.a;
    } else {
      not_integers(N);
    }
  }
  return left.a * b;
}

// Mutant N takes steps that are longer by one: step<N>(i) += by.
template <int N, class T>
struct Step {
  T& i;
  template <class By>
  constexpr void operator+=(const By& by) const {
    i += by;
    if (!std::is_constant_evaluated() && on(N)) ++i;
  }
};
template <int N, class T>
constexpr Step<N, T> step(T& i) {
  return {i};
}

// Atomic operations split into parts, between which others may come, and omitted ones.
namespace plain {
template <class T>
T atomicAdd(T* p, std::type_identity_t<T> v) {
  const T old = *p;
  *p = T(old + v);
  return old;
}
template <class T>
T atomicMax(T* p, std::type_identity_t<T> v) {
  const T old = *p;
  *p = old < v ? v : old;
  return old;
}
template <class T>
T atomicMin(T* p, std::type_identity_t<T> v) {
  const T old = *p;
  *p = v < old ? v : old;
  return old;
}
template <class T>
T atomicExch(T* p, std::type_identity_t<T> v) {
  const T old = *p;
  *p = v;
  return old;
}
template <class T>
T atomicOr(T* p, std::type_identity_t<T> v) {
  const T old = *p;
  *p = T(old | v);
  return old;
}
inline unsigned atomicInc(unsigned* p, unsigned limit) {
  const unsigned old = *p;
  *p = old >= limit ? 0u : old + 1;
  return old;
}
}  // namespace plain
template <class T, class V>
T none(T*, const V&) {
  return T();
}

}  // namespace mutant
