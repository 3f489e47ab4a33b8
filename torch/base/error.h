// SPDX-License-Identifier: Apache-2.0
// Errors, checks, warnings and options of one line, with libtorch's names.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "framework/base/check.h"
#include "framework/base/guard.h"

namespace torch {

namespace hs = ::halfstep;

// ---- errors: halfstep's are libtorch's
using Error = hs::Error;
using IndexError = hs::IndexError;
using ValueError = hs::ValueError;
using TypeError = hs::DTypeError;

template <class... Parts>
std::string str(const Parts&... parts) {
  hs::TextWriter out;
  out << std::boolalpha;
  (out << ... << parts);
  return out.str();
}
template <class List>
std::string Join(const std::string& delimiter, const List& list) {
  hs::TextWriter out;
  bool first = true;
  for (const auto& v : list) {
    if (!first) out << delimiter;
    first = false;
    out << v;
  }
  return out.str();
}
namespace detail {
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  throw hs::ValueError(str(parts...));
}
}  // namespace detail

template <class T>
using optional = std::optional<T>;
using nullopt_t = std::nullopt_t;
inline constexpr std::nullopt_t nullopt = std::nullopt;
template <class... T>
using variant = std::variant<T...>;
using std::get;
using std::get_if;
using std::make_optional;
using std::visit;
using in_place_t = std::in_place_t;
template <class T, class... A>
std::unique_ptr<T> make_unique(A&&... a) {
  return std::make_unique<T>(std::forward<A>(a)...);
}
template <bool B, class T = void>
using enable_if_t = std::enable_if_t<B, T>;
template <class T>
using decay_t = std::decay_t<T>;
template <bool... B>
struct all_of : std::bool_constant<(B && ...)> {};
template <bool... B>
struct any_of : std::bool_constant<(B || ...)> {};
namespace guts {
template <class T>
std::string to_string(T v) {
  return std::to_string(v);
}
}  // namespace guts
using guts::to_string;

// ---- warnings
struct SourceLocation {
  const char* function;
  const char* file;
  uint32_t line;
};
class WarningHandler {
 public:
  virtual ~WarningHandler() = default;
  virtual void process(const SourceLocation& where, const std::string& message, const bool) {
    std::cerr << "Warning: " << message << " (" << where.function << ")\n";
  }
};
namespace Warning {
inline WarningHandler*& get_warning_handler() {
  static WarningHandler plain;
  static WarningHandler* now = &plain;
  return now;
}
inline void set_warning_handler(WarningHandler* h) { get_warning_handler() = h; }
inline bool& always() {
  static bool on = false;
  return on;
}
inline bool get_warnAlways() { return always(); }
inline void set_warnAlways(bool on) { always() = on; }
// TORCH_WARN_ONCE warns each time while it lives.
class WarnAlways : halfstep::LocalGuard {
 public:
  [[nodiscard]] explicit WarnAlways(bool on = true) : before_(get_warnAlways()) { set_warnAlways(on); }
  ~WarnAlways() { set_warnAlways(before_); }

 private:
  bool before_;
};
inline void warn(const SourceLocation& where, const std::string& message, bool verbatim = false) {
  get_warning_handler()->process(where, message, verbatim);
}
}  // namespace Warning

}  // namespace torch

#define TORCH_CHECK(condition, ...)                                         \
  do {                                                                      \
    if (!(condition)) ::torch::detail::fail("" __VA_OPT__(, ) __VA_ARGS__); \
  } while (0)
#define TORCH_INTERNAL_ASSERT(condition, ...) TORCH_CHECK(condition __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_CHECK_INDEX(condition, ...)                                                     \
  do {                                                                                        \
    if (!(condition)) throw ::torch::IndexError(::torch::str("" __VA_OPT__(, ) __VA_ARGS__)); \
  } while (0)
#define TORCH_CHECK_VALUE(condition, ...) TORCH_CHECK(condition __VA_OPT__(, ) __VA_ARGS__)
#define AT_ASSERT(condition) TORCH_CHECK(condition, #condition " ASSERT FAILED")
#define AT_ASSERTM(condition, ...) TORCH_CHECK(condition __VA_OPT__(, ) __VA_ARGS__)
#define AT_ERROR(...) ::torch::detail::fail(__VA_ARGS__)
#define TORCH_WARN(...) ::torch::Warning::warn({__func__, __FILE__, uint32_t(__LINE__)}, ::torch::str(__VA_ARGS__))
#define TORCH_WARN_ONCE(...)                                                            \
  do {                                                                                  \
    static bool warned_already = false;                                                 \
    if (!warned_already || ::torch::Warning::get_warnAlways()) TORCH_WARN(__VA_ARGS__); \
    warned_already = true;                                                              \
  } while (0)
#define C10_UNUSED [[maybe_unused]]
#define TORCH_API
#define C10_API
// A setting of an options class: a setter that can be chained, and getters.
#define TORCH_ARG(T, name)                  \
 public:                                    \
  auto& name(T value) {                     \
    name##_ = std::move(value);             \
    return *this;                           \
  }                                         \
  const T& name() const { return name##_; } \
  T& name() { return name##_; }             \
                                            \
 private:                                   \
  T name##_
