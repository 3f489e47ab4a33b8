// SPDX-License-Identifier: Apache-2.0
// Conversions, memory, atomics, sums with carries and moves; and the choice of what an instruction does.
#include <bit>
#include <cstring>

#include "tests/emulators/ptx/lanes.h"

namespace halfstep::ptx {
namespace {

template <class S>
auto number(const I& i, S v) {
  if constexpr (std::is_same_v<S, f16> || std::is_same_v<S, bf16>)
    return to_float(v);
  else if constexpr (std::is_same_v<S, float>)
    return read(i, v);
  else
    return v;
}
template <class D, class S>
D converted(const I& i, S given) {
  const auto v = number(i, given);
  using V = std::remove_const_t<decltype(v)>;
  if constexpr (std::is_same_v<D, f16>) {
    return to_f16(double(v), i.round);  // of 64-bit integers too: those that are no doubles are beyond f16
  } else if constexpr (std::is_same_v<D, bf16>) {
    return to_bf16(double(v), i.round);
  } else if constexpr (std::is_floating_point_v<D>) {
    D r;
    if constexpr (std::is_floating_point_v<V>) {
      if (i.mode) {  // to a whole number
        r = D(to_whole(v, i.round));
      } else {
        const Rounding mode(i.round);
        volatile V kept = v;
        volatile D result = D(kept);
        r = result;
      }
    } else {
      const Rounding mode(i.round);
      volatile V kept = v;
      volatile D result = D(kept);
      r = result;
    }
    if (i.flush) r = flushed(r);
    if (i.saturate) r = r != r ? D(0) : std::clamp(r, D(0), D(1));
    return canonical(r);
  } else if constexpr (std::is_floating_point_v<V>) {
    return to_integer<D>(v, i.round);
  } else {
    if (i.saturate) {
      const __int128 least = std::numeric_limits<D>::min(), most = std::numeric_limits<D>::max(), wide = v;
      return D(wide < least ? least : wide > most ? most : wide);
    }
    return D(v);
  }
}
template <class D, class S>
constexpr Handler conversion() {
  return [](Context& x, const Instruction& i, uint32_t lanes) {
    const uint64_t* a = x.in(i.a);
    uint64_t* d = x.out(i.d);
    each(lanes, [&](int l) {
      const D r = converted<D, S>(i, get<S>(a, l));
      if constexpr (std::is_integral_v<D> && std::is_signed_v<D>)
        d[l] = uint64_t(int64_t(r)) & i.mask;  // the register may be wider
      else
        put<D>(d, l, r);
    });
  };
}
template <class F>
Handler for_any(const std::string& t, const F& f) {
  if (t == "s8") return f(int8_t{});
  if (t == "u8" || t == "b8") return f(uint8_t{});
  if (t == "f16") return f(f16{});
  if (t == "bf16") return f(bf16{});
  if (t == "f32") return f(float{});
  if (t == "f64") return f(double{});
  return for_integer(t, f);
}
Handler choose_conversion(I& i, const std::vector<std::string>& op) {
  const std::string &to = op[op.size() - 2], &from = op.back();
  if (to == "f16x2" || to == "bf16x2") {
    if (from != "f32") return nullptr;
    i.mode = to == "f16x2";
    return of2<uint32_t, float, float>([](const I& i, float a, float b) {
      const uint32_t high = i.mode ? to_f16(a, i.round).bits : to_bf16(a, i.round).bits;
      const uint32_t low = i.mode ? to_f16(b, i.round).bits : to_bf16(b, i.round).bits;
      return high << 16 | low;
    });
  }
  for (const std::string& w : op) i.mode |= w == "rni" || w == "rzi" || w == "rmi" || w == "rpi";
  return for_any(to, [&](auto d) { return for_any(from, [&](auto s) { return conversion<decltype(d), decltype(s)>(); }); });
}

// Memory.
template <class T>
constexpr Handler load() {
  return [](Context& x, const Instruction& i, uint32_t lanes) {
    const int* list = x.launch.code->lists.data() + i.list;
    each(lanes, [&](int l) {
      const unsigned char* p = at(x, i, l, address_of(x, i, l), sizeof(T) * i.count);
      for (int k = 0; k < i.count; ++k) {
        if (list[k] == -1) continue;
        T v;
        std::memcpy(&v, p + size_t(k) * sizeof v, sizeof v);
        if constexpr (std::is_signed_v<T>)
          x.out(list[k])[l] = uint64_t(int64_t(v)) & i.mask;
        else
          x.out(list[k])[l] = v;
      }
    });
  };
}
template <class T>
constexpr Handler store() {
  return [](Context& x, const Instruction& i, uint32_t lanes) {
    const int* list = x.launch.code->lists.data() + i.list;
    each(lanes, [&](int l) {
      unsigned char* p = at(x, i, l, address_of(x, i, l), sizeof(T) * i.count);
      for (int k = 0; k < i.count; ++k) std::memcpy(p + size_t(k) * sizeof(T), x.in(list[k]) + l, sizeof(T));
    });
  };
}
template <class T, class F>
constexpr Handler atomic(F) {
  return [](Context& x, const Instruction& i, uint32_t lanes) {
    const uint64_t *b = x.in(i.b), *c = i.c != -1 ? x.in(i.c) : b;
    each(lanes, [&](int l) {
      unsigned char* p = at(x, i, l, address_of(x, i, l), sizeof(T));
      T old;
      std::memcpy(&old, p, sizeof old);
      const T now = F{}(i, old, get<T>(b, l), get<T>(c, l));
      std::memcpy(p, &now, sizeof now);
      if (i.d >= 0) put<T>(x.out(i.d), l, old);
    });
  };
}
Handler choose_atomic(const std::vector<std::string>& op) {
  const std::string& t = op.back();
  const auto has = [&](const char* w) { return std::find(op.begin(), op.end(), w) != op.end(); };
  if (has("add")) {
    if (t == "f32")
      return atomic<float>([](const I& i, float a, float b, float) {
        if (i.space == Space::shared) return canonical(a + b);
        return canonical(flushed(flushed(a) + flushed(b)));
      });
    if (t == "f64") return atomic<double>([](const I&, double a, double b, double) { return a + b; });
    return for_integer(t, [](auto z) {
      using T = std::make_unsigned_t<decltype(z)>;
      return atomic<T>([](const I&, T a, T b, T) { return T(a + b); });
    });
  }
  const auto integers = [&](auto f) {
    return for_integer(t, [&](auto z) {
      using T = decltype(z);
      (void)f;
      return atomic<T>([](const I&, T a, T b, T c) { return decltype(f){}(a, b, c); });
    });
  };
  if (has("exch")) return integers([](auto, auto b, auto) { return b; });
  if (has("cas")) return integers([](auto a, auto b, auto c) { return a == b ? c : a; });
  if (has("min")) return integers([](auto a, auto b, auto) { return std::min(a, b); });
  if (has("max")) return integers([](auto a, auto b, auto) { return std::max(a, b); });
  if (has("and")) return integers([](auto a, auto b, auto) { return decltype(a)(a & b); });
  if (has("or")) return integers([](auto a, auto b, auto) { return decltype(a)(a | b); });
  if (has("xor")) return integers([](auto a, auto b, auto) { return decltype(a)(a ^ b); });
  if (has("inc") && t == "u32")
    return atomic<uint32_t>([](const I&, uint32_t a, uint32_t b, uint32_t) { return a >= b ? 0u : a + 1; });
  if (has("dec") && t == "u32")
    return atomic<uint32_t>([](const I&, uint32_t a, uint32_t b, uint32_t) { return a == 0 || a > b ? b : a - 1; });
  return nullptr;
}

// Carries, one for each lane.
template <bool Subtracts>
constexpr Handler with_carry() {
  return [](Context& x, const Instruction& i, uint32_t lanes) {
    const uint64_t *a = x.in(i.a), *b = x.in(i.b);
    uint64_t* d = x.out(i.d);
    each(lanes, [&](int l) {
      const bool in = (i.mode & 1) && (x.warp.carry >> l & 1);
      const unsigned __int128 u = i.count == 8 ? get<uint64_t>(a, l) : get<uint32_t>(a, l);
      const unsigned __int128 v = i.count == 8 ? get<uint64_t>(b, l) : get<uint32_t>(b, l);
      const unsigned __int128 r = Subtracts ? u - v - in : u + v + in;
      d[l] = i.count == 8 ? uint64_t(r) : uint32_t(r);
      if (i.mode & 2) {
        const bool out = Subtracts ? u < v + in : r >> (8 * i.count) & 1;
        x.warp.carry = (x.warp.carry & ~(1u << l)) | uint32_t(out) << l;
      }
    });
  };
}

// mad.lo.cc and its kin: `mode` 1 takes a carry, 2 gives one, 4 adds the product's upper half.
template <class T>
constexpr Handler product_with_carry() {
  return [](Context& x, const Instruction& i, uint32_t lanes) {
    const uint64_t *a = x.in(i.a), *b = x.in(i.b), *c = x.in(i.c);
    uint64_t* d = x.out(i.d);
    each(lanes, [&](int l) {
      const Wide<T> product = Wide<T>(get<T>(a, l)) * get<T>(b, l);
      const T part = i.mode & 4 ? T(product >> (8 * sizeof(T))) : T(product);
      const Wide<T> r = Wide<T>(part) + get<T>(c, l) + ((i.mode & 1) && (x.warp.carry >> l & 1));
      put<T>(d, l, T(r));
      if (i.mode & 2) x.warp.carry = (x.warp.carry & ~(1u << l)) | uint32_t(r >> (8 * sizeof(T)) & 1) << l;
    });
  };
}

void select(Context& x, const Instruction& i, uint32_t lanes) {
  const uint64_t *a = x.in(i.a), *b = x.in(i.b);
  uint64_t* d = x.out(i.d);
  const uint32_t p = x.predicate(i.p, i.p_negated);
  each(lanes, [&](int l) { d[l] = p >> l & 1 ? a[l] : b[l]; });
}
void move(Context& x, const Instruction& i, uint32_t lanes) {
  const uint64_t* a = x.in(i.a);
  uint64_t* d = x.out(i.d);
  each(lanes, [&](int l) { d[l] = a[l]; });
}
// mov.b64 {a, b}, c and back: `mode` bytes each.
void split(Context& x, const Instruction& i, uint32_t lanes) {
  const int* list = x.launch.code->lists.data() + i.list;
  const uint64_t mask = i.mode == 8 ? ~0ull : (1ull << (8 * i.mode)) - 1;
  each(lanes, [&](int l) {
    const uint64_t whole = x.in(i.a)[l];
    for (int k = 0; k < i.count; ++k) {
      if (list[k] != -1) x.out(list[k])[l] = whole >> (8 * i.mode * k) & mask;
    }
  });
}
void join(Context& x, const Instruction& i, uint32_t lanes) {
  const int* list = x.launch.code->lists.data() + i.list;
  const uint64_t mask = i.mode == 8 ? ~0ull : (1ull << (8 * i.mode)) - 1;
  each(lanes, [&](int l) {
    uint64_t whole = 0;
    for (int k = 0; k < i.count; ++k) whole |= (x.in(list[k])[l] & mask) << (8 * i.mode * k);
    x.out(i.d)[l] = whole;
  });
}
// The address of what lies in memory, as a generic one or in its own space.
void address(Context& x, const Instruction& i, uint32_t lanes) {
  uint64_t* d = x.out(i.d);
  each(lanes, [&](int l) { d[l] = address_of(x, i, l) & i.mask; });
}
void to_generic(Context& x, const Instruction& i, uint32_t lanes) {
  const uint64_t* a = x.in(i.a);
  uint64_t* d = x.out(i.d);
  const uint64_t shared = reinterpret_cast<uint64_t>(x.block.shared) - kSharedBegin;
  each(lanes, [&](int l) { d[l] = i.space == Space::shared ? shared + uint32_t(a[l]) : a[l]; });
}
void from_generic(Context& x, const Instruction& i, uint32_t lanes) {
  const uint64_t* a = x.in(i.a);
  uint64_t* d = x.out(i.d);
  const uint64_t shared = reinterpret_cast<uint64_t>(x.block.shared) - kSharedBegin;
  each(lanes, [&](int l) { d[l] = (i.space == Space::shared ? a[l] - shared : a[l]) & i.mask; });
}
void nothing(Context&, const Instruction&, uint32_t) {}

}  // namespace

bool choose(Instruction& i, const std::vector<std::string>& op) {
  const std::string &name = op[0], &t = op.back();
  std::vector<std::string> words(op.begin() + 1, op.end());
  const auto has = [&](const char* w) { return std::find(words.begin(), words.end(), w) != words.end(); };
  i.flush = has("ftz");
  i.saturate = has("sat");
  i.nan_wins = has("NaN");
  i.round = has("rz") || has("rzi")   ? Round::zero
            : has("rm") || has("rmi") ? Round::down
            : has("rp") || has("rpi") ? Round::up
                                      : Round::nearest;
  if (name == "setp") return (i.run = choose_comparison(i, op));
  if (name == "testp") return (i.run = choose_test(op[1], t));
  if (name == "selp") return (i.run = t == "f16x2" ? nullptr : select);
  if (name == "cvt") return (i.run = choose_conversion(i, op));
  if (name == "addc" || (name == "add" && has("cc"))) {
    i.mode = uint8_t((name == "addc" ? 1 : 0) | (has("cc") ? 2 : 0));
    i.count = t == "u64" || t == "s64" || t == "b64" ? 8 : 4;
    return (i.run = with_carry<false>());
  }
  if (name == "subc" || (name == "sub" && has("cc"))) {
    i.mode = uint8_t((name == "subc" ? 1 : 0) | (has("cc") ? 2 : 0));
    i.count = t == "u64" || t == "s64" || t == "b64" ? 8 : 4;
    return (i.run = with_carry<true>());
  }
  if (name == "madc" || (name == "mad" && has("cc"))) {
    if (t.starts_with("s")) return false;
    i.mode = uint8_t((name == "madc" ? 1 : 0) | (has("cc") ? 2 : 0) | (has("hi") ? 4 : 0));
    return (i.run = t == "u64" ? product_with_carry<uint64_t>() : product_with_carry<uint32_t>());
  }
  if (name == "ld" || name == "ldu")
    return (i.run = for_any(t, [](auto z) -> Handler {
              using T = decltype(z);
              if constexpr (std::is_integral_v<T>)
                return load<T>();
              else
                return sizeof(T) == 2 ? load<uint16_t>() : sizeof(T) == 4 ? load<uint32_t>() : load<uint64_t>();
            }));
  if (name == "st")
    return (i.run = for_any(t, [](auto z) -> Handler {
              using T = decltype(z);
              return sizeof(T) == 1   ? store<uint8_t>()
                     : sizeof(T) == 2 ? store<uint16_t>()
                     : sizeof(T) == 4 ? store<uint32_t>()
                                      : store<uint64_t>();
            }));
  if (name == "atom" || name == "red") return i.count == 1 && (i.run = choose_atomic(op));
  if (name == "mov") {
    if (t == "pred") return (i.run = choose_logic("mov", "pred"));
    return (i.run = i.base != Base::reg ? address : i.target == 1 ? split : i.target == 2 ? join : move);
  }
  if (name == "cvta") return (i.run = has("to") ? from_generic : to_generic);
  if (name == "membar" || name == "fence" || name == "prefetch" || name == "prefetchu" || name == "pmevent")
    return (i.run = nothing);
  if (name == "and" || name == "or" || name == "xor" || name == "not" || name == "cnot" || name == "shl" || name == "shr")
    return (i.run = choose_logic(name, t));
  if (Handler h = choose_arithmetic(i, name, t, words)) return (i.run = h);
  if (Handler h = choose_function(i, name, t, words)) return (i.run = h);
  return (i.run = choose_bits(i, op));
}

}  // namespace halfstep::ptx
