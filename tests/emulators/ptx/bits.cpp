// SPDX-License-Identifier: Apache-2.0
// Comparisons, predicates and bits.
#include <bit>

#include "tests/emulators/ptx/lanes.h"

namespace halfstep::ptx {
namespace {

// Predicates as results.
template <class T, class F>
constexpr Handler comparison(F) {
  return [](Context& x, const Instruction& i, uint32_t lanes) {
    const uint64_t *a = x.in(i.a), *b = x.in(i.b);
    uint32_t found = 0;
    each(lanes, [&](int l) { found |= uint32_t(F{}(i, get<T>(a, l), get<T>(b, l))) << l; });
    uint32_t other = ~found;
    if (i.mode) {
      const uint32_t with = x.predicate(i.p, i.p_negated);
      found = i.mode == 1 ? found & with : i.mode == 2 ? found | with : found ^ with;
      other = i.mode == 1 ? other & with : i.mode == 2 ? other | with : other ^ with;
    }
    x.set_predicate(i.q, lanes, found);
    x.set_predicate(i.r, lanes, other);
  };
}
template <class T>
T ready(const I& i, T v) {
  if constexpr (std::is_floating_point_v<T>)
    return read(i, v);
  else
    return (void)i, v;
}
template <class T>
Handler compared(const std::string& how) {
  const auto choose = [&](auto value_of) -> Handler {
    using V = decltype(value_of);
    struct Local {
      static auto value(const I& i, T v) { return V{}(i, v); }
    };
#define COMPARE(NAME, EXPRESSION)                                \
  if (how == NAME)                                               \
    return comparison<T>([](const I& i, T u, T v) {              \
      const auto a = Local::value(i, u), b = Local::value(i, v); \
      (void)a, (void)b;                                          \
      return EXPRESSION;                                         \
    });
    COMPARE("eq", a == b)
    COMPARE("ne", a == a && b == b && a != b)
    COMPARE("lt", a < b)
    COMPARE("le", a <= b)
    COMPARE("gt", a > b)
    COMPARE("ge", a >= b)
    COMPARE("lo", a < b)
    COMPARE("ls", a <= b)
    COMPARE("hi", a > b)
    COMPARE("hs", a >= b)
    COMPARE("equ", !(a == a && b == b) || a == b)
    COMPARE("neu", !(a == b))
    COMPARE("ltu", !(a >= b))
    COMPARE("leu", !(a > b))
    COMPARE("gtu", !(a <= b))
    COMPARE("geu", !(a < b))
    COMPARE("num", a == a && b == b)
    COMPARE("nan", !(a == a && b == b))
#undef COMPARE
    return nullptr;
  };
  if constexpr (std::is_same_v<T, f16> || std::is_same_v<T, bf16>)
    return choose([](const I&, T v) { return to_float(v); });
  else
    return choose([](const I& i, T v) { return ready(i, v); });
}

template <class T>
constexpr Handler test(const std::string& what) {
  if (what == "finite") return comparison<T>([](const I&, T a, T) { return bool(std::isfinite(a)); });
  if (what == "infinite") return comparison<T>([](const I&, T a, T) { return bool(std::isinf(a)); });
  if (what == "number") return comparison<T>([](const I&, T a, T) { return a == a; });
  if (what == "notanumber") return comparison<T>([](const I&, T a, T) { return a != a; });
  if (what == "normal") return comparison<T>([](const I&, T a, T) { return std::fpclassify(a) == FP_NORMAL; });
  if (what == "subnormal") return comparison<T>([](const I&, T a, T) { return std::fpclassify(a) == FP_SUBNORMAL; });
  return nullptr;
}

}  // namespace

Handler choose_test(const std::string& what, const std::string& type) {
  return type == "f32" ? test<float>(what) : test<double>(what);
}

Handler choose_comparison(I& i, const std::vector<std::string>& op) {
  // setp.lt.and.f32
  for (size_t k = 2; k + 1 < op.size(); ++k) i.mode = op[k] == "and" ? 1 : op[k] == "or" ? 2 : op[k] == "xor" ? 3 : i.mode;
  const std::string &how = op[1], &t = op.back();
  if (t == "f32") return compared<float>(how);
  if (t == "f64") return compared<double>(how);
  if (t == "f16") return compared<f16>(how);
  if (t == "bf16") return compared<bf16>(how);
  return for_integer(t, [&](auto z) { return compared<decltype(z)>(how); });
}

Handler choose_logic(const std::string& op, const std::string& t) {
  if (t == "pred") {
#define LOGIC(NAME, EXPRESSION)                                                               \
  if (op == NAME)                                                                             \
    return [](Context& x, const Instruction& i, uint32_t lanes) {                             \
      const uint32_t a = x.predicate(i.p, i.p_negated), b = i.r >= 0 ? x.predicates[i.r] : 0; \
      (void)b;                                                                                \
      x.set_predicate(i.q, lanes, EXPRESSION);                                                \
    };
    LOGIC("and", a & (i.mode ? ~b : b))
    LOGIC("or", a | (i.mode ? ~b : b))
    LOGIC("xor", a ^ (i.mode ? ~b : b))
    LOGIC("not", ~a)
    LOGIC("mov", a)
#undef LOGIC
    return nullptr;
  }
  if (op == "and") return of2<uint64_t, uint64_t, uint64_t>([](const I&, uint64_t a, uint64_t b) { return a & b; });
  if (op == "or") return of2<uint64_t, uint64_t, uint64_t>([](const I& i, uint64_t a, uint64_t b) { return (a | b) & i.mask; });
  if (op == "xor") return of2<uint64_t, uint64_t, uint64_t>([](const I& i, uint64_t a, uint64_t b) { return (a ^ b) & i.mask; });
  if (op == "not") return of1<uint64_t, uint64_t>([](const I& i, uint64_t a) { return ~a & i.mask; });
  if (op == "cnot")
    return for_integer(t, [](auto z) {
      using T = decltype(z);
      return of1<T, T>([](const I&, T a) { return T(a == 0); });
    });
  if (op == "shl")
    return for_integer(t, [](auto z) {
      using T = std::make_unsigned_t<decltype(z)>;
      return of2<T, T, uint32_t>([](const I&, T a, uint32_t n) { return n >= 8 * sizeof(T) ? T(0) : T(a << n); });
    });
  if (op == "shr")
    return for_integer(t, [](auto z) {
      using T = decltype(z);
      return of2<T, T, uint32_t>([](const I&, T a, uint32_t n) { return n >= 8 * sizeof(T) ? T(a < T(0) ? -1 : 0) : T(a >> n); });
    });
  return nullptr;
}

namespace {

template <class T>
T extracted(T a, uint32_t at, uint32_t bits) {
  at &= 0xff, bits &= 0xff;
  constexpr uint32_t size = 8 * sizeof(T);
  using U = std::make_unsigned_t<T>;
  U r = at >= size ? U(0) : U(U(a) >> at);
  if (bits < size) r &= U((U(1) << bits) - 1);
  if (std::is_signed_v<T> && bits) {
    const uint32_t sign_at = std::min(at + bits - 1, size - 1);
    const bool sign = U(a) >> sign_at & 1;
    const uint32_t kept = at >= size ? 0 : std::min(bits, size - at);
    if (sign && kept < size) r |= U(~U(0)) << kept;
  }
  return bits ? T(r) : T(0);
}

}  // namespace

Handler choose_bits(I& i, const std::vector<std::string>& op) {
  const std::string &name = op[0], &t = op.back();
  if (name == "lop3") {
    return of3<uint32_t, uint32_t, uint32_t, uint32_t>([](const I& i, uint32_t a, uint32_t b, uint32_t c) {
      const uint32_t lut = uint32_t(i.offset);
      uint32_t r = 0;
      if (lut & 0x01) r |= ~a & ~b & ~c;
      if (lut & 0x02) r |= ~a & ~b & c;
      if (lut & 0x04) r |= ~a & b & ~c;
      if (lut & 0x08) r |= ~a & b & c;
      if (lut & 0x10) r |= a & ~b & ~c;
      if (lut & 0x20) r |= a & ~b & c;
      if (lut & 0x40) r |= a & b & ~c;
      if (lut & 0x80) r |= a & b & c;
      return r;
    });
  }
  if (name == "shf") {
    const bool wraps = op[2] == "wrap";
    i.mode = wraps;
    if (op[1] == "l")
      return of3<uint32_t, uint32_t, uint32_t, uint32_t>([](const I& i, uint32_t a, uint32_t b, uint32_t c) {
        const uint32_t n = i.mode ? c & 31 : std::min(c, 32u);
        return uint32_t(((uint64_t(b) << 32 | a) << n) >> 32);
      });
    return of3<uint32_t, uint32_t, uint32_t, uint32_t>([](const I& i, uint32_t a, uint32_t b, uint32_t c) {
      const uint32_t n = i.mode ? c & 31 : std::min(c, 32u);
      return uint32_t((uint64_t(b) << 32 | a) >> n);
    });
  }
  if (name == "bfe")
    return for_integer(t, [](auto z) {
      using T = decltype(z);
      return of3<T, T, uint32_t, uint32_t>([](const I&, T a, uint32_t at, uint32_t bits) { return extracted<T>(a, at, bits); });
    });
  if (name == "bfi") {
    return for_integer(t, [](auto z) -> Handler {
      using T = std::make_unsigned_t<decltype(z)>;
      return [](Context& x, const Instruction& i, uint32_t lanes) {
        const uint64_t *a = x.in(i.a), *b = x.in(i.b), *c = x.in(i.c), *e = x.in(i.list);
        uint64_t* d = x.out(i.d);
        each(lanes, [&](int l) {
          constexpr uint32_t size = 8 * sizeof(T);
          const uint32_t at = get<uint32_t>(c, l) & 0xff, bits = get<uint32_t>(e, l) & 0xff;
          const T into = get<T>(b, l), from = get<T>(a, l);
          if (at >= size || bits == 0) return put<T>(d, l, into);
          const T field = T((bits >= size ? T(~T(0)) : T((T(1) << bits) - 1)) << at);
          put<T>(d, l, T((into & ~field) | (T(from << at) & field)));
        });
      };
    });
  }
  if (name == "popc")
    return t == "b64" ? of1<uint32_t, uint64_t>([](const I&, uint64_t a) { return uint32_t(std::popcount(a)); })
                      : of1<uint32_t, uint32_t>([](const I&, uint32_t a) { return uint32_t(std::popcount(a)); });
  if (name == "clz")
    return t == "b64" ? of1<uint32_t, uint64_t>([](const I&, uint64_t a) { return uint32_t(std::countl_zero(a)); })
                      : of1<uint32_t, uint32_t>([](const I&, uint32_t a) { return uint32_t(std::countl_zero(a)); });
  if (name == "brev") {
    if (t == "b64") return nullptr;
    return of1<uint32_t, uint32_t>([](const I&, uint32_t a) {
      uint32_t r = 0;
      for (int k = 0; k < 32; ++k) r |= (a >> k & 1) << (31 - k);
      return r;
    });
  }
  if (name == "bfind" && (t == "u32" || t == "s32" || t == "u64") && op.size() <= 3) {
    i.mode = op.size() == 3 && op[1] == "shiftamt";
    if (t == "s32")
      return of1<uint32_t, int32_t>([](const I& i, int32_t a) {
        const uint32_t u = a < 0 ? ~uint32_t(a) : uint32_t(a);
        return u ? (i.mode ? uint32_t(std::countl_zero(u)) : 31u - uint32_t(std::countl_zero(u))) : ~0u;
      });
    if (t == "u64")
      return of1<uint32_t, uint64_t>([](const I& i, uint64_t u) {
        return u ? (i.mode ? uint32_t(std::countl_zero(u)) : 63u - uint32_t(std::countl_zero(u))) : ~0u;
      });
    return of1<uint32_t, uint32_t>([](const I& i, uint32_t u) {
      return u ? (i.mode ? uint32_t(std::countl_zero(u)) : 31u - uint32_t(std::countl_zero(u))) : ~0u;
    });
  }
  if (name == "prmt" && op.size() == 2)
    return of3<uint32_t, uint32_t, uint32_t, uint32_t>([](const I&, uint32_t a, uint32_t b, uint32_t c) {
      const uint64_t bytes = uint64_t(b) << 32 | a;
      uint32_t r = 0;
      for (int k = 0; k < 4; ++k) {
        const uint32_t choice = c >> (4 * k) & 15;
        uint32_t byte = uint32_t(bytes >> (8 * (choice & 7))) & 0xff;
        if (choice & 8) byte = byte & 0x80 ? 0xff : 0;
        r |= byte << (8 * k);
      }
      return r;
    });
  if (name == "copysign")
    return for_floating(t, [](auto z) {
      using T = decltype(z);
      return of2<T, T, T>([](const I&, T a, T b) { return std::copysign(b, a); });
    });
  return nullptr;
}

}  // namespace halfstep::ptx
