// SPDX-License-Identifier: Apache-2.0
// Sums, products, quotients and functions of numbers.
#include "tests/emulators/ptx/lanes.h"

namespace halfstep::ptx {
namespace {

template <class H>
Handler half_operation(const std::string& op) {
#define HALF2(NAME, EXPRESSION)                        \
  if (op == NAME)                                      \
    return of2<H, H, H>([](const I& i, H ha, H hb) {   \
      (void)i;                                         \
      const double a = to_float(ha), b = to_float(hb); \
      if constexpr (std::is_same_v<H, f16>)            \
        return to_f16(EXPRESSION);                     \
      else                                             \
        return to_bf16(EXPRESSION);                    \
    });
  HALF2("add", a + b)
  HALF2("sub", a - b)
  HALF2("mul", a * b)
  HALF2("min", least(a, b, i.nan_wins))
  HALF2("max", greatest(a, b, i.nan_wins))
#undef HALF2
  if (op == "fma")
    return of3<H, H, H, H>([](const I&, H ha, H hb, H hc) {
      const double r = double(to_float(ha)) * double(to_float(hb)) + double(to_float(hc));
      if constexpr (std::is_same_v<H, f16>)
        return to_f16(r);
      else
        return to_bf16(r);
    });
  if (op == "neg") return of1<uint16_t, uint16_t>([](const I&, uint16_t a) { return uint16_t(a ^ 0x8000); });
  if (op == "abs") return of1<uint16_t, uint16_t>([](const I&, uint16_t a) { return uint16_t(a & 0x7fff); });
  return nullptr;
}

}  // namespace

Handler choose_arithmetic(I& i, const std::string& op, const std::string& t, const std::vector<std::string>& words) {
  const auto has = [&](const char* w) { return std::find(words.begin(), words.end(), w) != words.end(); };
  if (t == "f16") return half_operation<f16>(op);
  if (t == "bf16") return half_operation<bf16>(op);
  const bool floating = t == "f32" || t == "f64";
  if (op == "add" || op == "sub") {
    if (floating) {
      if (op == "add")
        return for_floating(t, [](auto z) {
          using T = decltype(z);
          return of2<T, T, T>([](const I& i, T a, T b) {
            return arithmetic<T>(
                i, [](T u, T v) { return u + v; }, a, b);
          });
        });
      return for_floating(t, [](auto z) {
        using T = decltype(z);
        return of2<T, T, T>([](const I& i, T a, T b) {
          return arithmetic<T>(
              i, [](T u, T v) { return u - v; }, a, b);
        });
      });
    }
    if (has("cc")) return nullptr;
    if (has("sat") && t == "s32") {
      i.saturate = false;
      if (op == "add")
        return of2<int32_t, int32_t, int32_t>(
            [](const I&, int32_t a, int32_t b) { return int32_t(std::clamp<int64_t>(int64_t(a) + b, INT32_MIN, INT32_MAX)); });
      return of2<int32_t, int32_t, int32_t>(
          [](const I&, int32_t a, int32_t b) { return int32_t(std::clamp<int64_t>(int64_t(a) - b, INT32_MIN, INT32_MAX)); });
    }
    if (op == "add")
      return for_integer(t, [](auto z) {
        using T = std::make_unsigned_t<decltype(z)>;
        return of2<T, T, T>([](const I&, T a, T b) { return T(a + b); });
      });
    return for_integer(t, [](auto z) {
      using T = std::make_unsigned_t<decltype(z)>;
      return of2<T, T, T>([](const I&, T a, T b) { return T(a - b); });
    });
  }
  if (op == "mul") {
    if (floating)
      return for_floating(t, [](auto z) {
        using T = decltype(z);
        return of2<T, T, T>([](const I& i, T a, T b) {
          return arithmetic<T>(
              i, [](T u, T v) { return u * v; }, a, b);
        });
      });
    if (has("wide"))
      return for_integer(t, [](auto z) -> Handler {
        using T = decltype(z);
        if constexpr (sizeof(T) == 8)
          return nullptr;
        else
          return of2<Wide<T>, T, T>([](const I&, T a, T b) { return Wide<T>(Wide<T>(a) * Wide<T>(b)); });
      });
    if (has("hi"))
      return for_integer(t, [](auto z) {
        using T = decltype(z);
        return of2<T, T, T>([](const I&, T a, T b) { return high<T>(a, b); });
      });
    return for_integer(t, [](auto z) {
      using T = std::make_unsigned_t<decltype(z)>;
      return of2<T, T, T>([](const I&, T a, T b) { return T(uint64_t(a) * b); });
    });
  }
  if (op == "mul24" || op == "mad24") return nullptr;
  if (op == "mad" || op == "fma") {
    if (floating)
      return for_floating(t, [](auto z) {
        using T = decltype(z);
        return of3<T, T, T, T>([](const I& i, T a, T b, T c) {
          return arithmetic<T>(
              i, [](T u, T v, T w) { return std::fma(u, v, w); }, a, b, c);
        });
      });
    if (has("cc")) return nullptr;
    if (has("wide"))
      return for_integer(t, [](auto z) -> Handler {
        using T = decltype(z);
        if constexpr (sizeof(T) == 8)
          return nullptr;
        else
          return of3<Wide<T>, T, T, Wide<T>>([](const I&, T a, T b, Wide<T> c) {
            return Wide<T>(std::make_unsigned_t<Wide<T>>(Wide<T>(a) * Wide<T>(b)) + std::make_unsigned_t<Wide<T>>(c));
          });
      });
    if (has("hi"))
      return for_integer(t, [](auto z) {
        using T = decltype(z);
        using U = std::make_unsigned_t<T>;
        return of3<T, T, T, T>([](const I&, T a, T b, T c) { return T(U(high<T>(a, b)) + U(c)); });
      });
    return for_integer(t, [](auto z) {
      using T = std::make_unsigned_t<decltype(z)>;
      return of3<T, T, T, T>([](const I&, T a, T b, T c) { return T(uint64_t(a) * b + c); });
    });
  }
  if (op == "div") {
    if (t == "f64" || (t == "f32" && (has("rn") || has("rz") || has("rm") || has("rp"))))
      return for_floating(t, [](auto z) {
        using T = decltype(z);
        return of2<T, T, T>([](const I& i, T a, T b) {
          return arithmetic<T>(
              i, [](T u, T v) { return u / v; }, a, b);
        });
      });
    if (t == "f32")  // .full, .approx: two units in the last place
      return of2<float, float, float>([](const I& i, float a, float b) {
        float r = with_error(i, float(double(read(i, a)) / double(read(i, b))));
        const float size = std::fabs(b);
        if (i.mode == 1 && size > 0x1p126f && std::isfinite(size))
          r = std::isinf(a) ? std::numeric_limits<float>::quiet_NaN() : std::copysign(0.0f, r);
        return canonical(i.flush ? flushed(r) : r);
      });
    return for_integer(t, [](auto z) {
      using T = decltype(z);
      return of2<T, T, T>([](const I&, T a, T b) {
        if (b == 0) return T(-1);
        if (std::is_signed_v<T> && b == T(-1)) return T(std::make_unsigned_t<T>(0) - std::make_unsigned_t<T>(a));
        return T(a / b);
      });
    });
  }
  if (op == "rem")
    return for_integer(t, [](auto z) {
      using T = decltype(z);
      return of2<T, T, T>([](const I&, T a, T b) {
        if (b == 0) return a;
        if (std::is_signed_v<T> && b == T(-1)) return T(0);
        return T(a % b);
      });
    });
  if (op == "min" || op == "max") {
    const bool less = op == "min";
    if (floating) {
      if (less)
        return for_floating(t, [](auto z) {
          using T = decltype(z);
          return of2<T, T, T>([](const I& i, T a, T b) { return least<T>(read(i, a), read(i, b), i.nan_wins); });
        });
      return for_floating(t, [](auto z) {
        using T = decltype(z);
        return of2<T, T, T>([](const I& i, T a, T b) { return greatest<T>(read(i, a), read(i, b), i.nan_wins); });
      });
    }
    if (less)
      return for_integer(t, [](auto z) {
        using T = decltype(z);
        return of2<T, T, T>([](const I&, T a, T b) { return std::min(a, b); });
      });
    return for_integer(t, [](auto z) {
      using T = decltype(z);
      return of2<T, T, T>([](const I&, T a, T b) { return std::max(a, b); });
    });
  }
  if (op == "abs" || op == "neg") {
    const bool absolute = op == "abs";
    if (floating) {
      if (absolute)
        return for_floating(t, [](auto z) {
          using T = decltype(z);
          return of1<T, T>([](const I& i, T a) { return std::fabs(read(i, a)); });
        });
      return for_floating(t, [](auto z) {
        using T = decltype(z);
        return of1<T, T>([](const I& i, T a) { return -read(i, a); });
      });
    }
    if (absolute)
      return for_integer(t, [](auto z) {
        using T = decltype(z);
        using U = std::make_unsigned_t<T>;
        return of1<T, T>([](const I&, T a) { return std::is_signed_v<T> && a < T(0) ? T(U(0) - U(a)) : a; });
      });
    return for_integer(t, [](auto z) {
      using T = std::make_unsigned_t<decltype(z)>;
      return of1<T, T>([](const I&, T a) { return T(T(0) - a); });
    });
  }
  return nullptr;
}

Handler choose_function(const I&, const std::string& op, const std::string& t, const std::vector<std::string>& words) {
  const auto has = [&](const char* w) { return std::find(words.begin(), words.end(), w) != words.end(); };
  const bool approximate = has("approx");
  if (t == "f32" && approximate) {
    if (op == "ex2")
      return of1<float, float>([](const I& i, float a) { return approximately(i, a, [](double x) { return std::exp2(x); }); });
    if (op == "lg2")
      return of1<float, float>([](const I& i, float a) { return approximately(i, a, [](double x) { return std::log2(x); }); });
    if (op == "sin")
      return of1<float, float>([](const I& i, float a) { return approximately(i, a, [](double x) { return std::sin(x); }); });
    if (op == "cos")
      return of1<float, float>([](const I& i, float a) { return approximately(i, a, [](double x) { return std::cos(x); }); });
    if (op == "tanh")
      return of1<float, float>([](const I& i, float a) { return approximately(i, a, [](double x) { return std::tanh(x); }); });
    if (op == "rcp")
      return of1<float, float>([](const I& i, float a) { return approximately(i, a, [](double x) { return 1 / x; }); });
    if (op == "sqrt")
      return of1<float, float>([](const I& i, float a) { return approximately(i, a, [](double x) { return std::sqrt(x); }); });
    if (op == "rsqrt")
      return of1<float, float>([](const I& i, float a) { return approximately(i, a, [](double x) { return 1 / std::sqrt(x); }); });
    return nullptr;
  }
  if (t == "f64" && approximate) {
    if (op == "rcp")  // .ftz: subnormal numbers are zeros
      return of1<double, double>([](const I&, double a) {
        a = gross(a);
        if (std::fpclassify(a) == FP_SUBNORMAL) a = std::copysign(0.0, a);
        const double r = gross(1 / a);
        return std::fpclassify(r) == FP_SUBNORMAL ? std::copysign(0.0, r) : r;
      });
    if (op == "rsqrt" && has("ftz"))
      return of1<double, double>([](const I&, double a) {
        a = gross(a);
        if (std::fpclassify(a) == FP_SUBNORMAL) a = std::copysign(0.0, a);
        return gross(1 / std::sqrt(a));
      });
    if (op == "rsqrt") return of1<double, double>([](const I&, double a) { return 1 / std::sqrt(a); });
    return nullptr;
  }
  if (op == "rcp")
    return for_floating(t, [](auto z) {
      using T = decltype(z);
      return of1<T, T>([](const I& i, T a) {
        return arithmetic<T>(
            i, [](T u) { return T(1) / u; }, a);
      });
    });
  if (op == "sqrt")
    return for_floating(t, [](auto z) {
      using T = decltype(z);
      return of1<T, T>([](const I& i, T a) {
        return arithmetic<T>(
            i, [](T u) { return std::sqrt(u); }, a);
      });
    });
  return nullptr;
}

}  // namespace halfstep::ptx
