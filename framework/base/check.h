// SPDX-License-Identifier: Apache-2.0
// Typed errors and the checks that raise them.
//
// Every message has the form "[where] rule, got value"; a second line "help: ..." says how to mend it, if that is known:
//   check<ShapeError>(w.size(1) == k, "linear", "weight must be [out, ", k, "], got ", w.shape());
// An error that leaves a layer's forward names the layer: "layer: encoder.0, Linear(in_features=784, ...)".
// Message parts are written only when the check fails. The library never aborts or exits.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "framework/base/text_stream.h"

namespace halfstep {

// Base class of everything that halfstep throws.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  const char* what() const noexcept override { return text_.empty() ? std::runtime_error::what() : text_.c_str(); }
  std::string msg() const { return what(); }  // these two have names of libtorch's c10::Error
  const char* what_without_backtrace() const noexcept { return what(); }
  // Records a layer that the error leaves. Layers call it innermost first; the message names the innermost.
  void leave_layer(const std::string& path, const std::string& description) {
    if (text_.empty()) text_ = std::runtime_error::what() + ("\nlayer: " + path + ", " + description);
  }
  // Appends a line about where the error came from.
  void add_line(const std::string& line) { text_ = what() + ("\n" + line); }

 private:
  std::string text_;
};

struct ShapeError : Error { using Error::Error; };     // sizes or ranks that do not fit
struct DTypeError : Error { using Error::Error; };     // dtypes that do not fit
struct DeviceError : Error { using Error::Error; };    // device absent, or tensors on different devices
struct ValueError : Error { using Error::Error; };     // an argument outside its domain
struct IndexError : Error { using Error::Error; };     // an index outside its dimension
struct AutogradError : Error { using Error::Error; };  // misuse of the graph
struct AmpError : Error { using Error::Error; };       // misuse of autocast or the scaler
struct MetaError : DeviceError { using DeviceError::DeviceError; };       // a value was needed on Device::meta, which has none
struct RecordingError : DeviceError { using DeviceError::DeviceError; };  // work that cannot be recorded for replay
struct MemoryError : Error { using Error::Error; };    // an allocation failed
struct ConfigError : Error { using Error::Error; };    // an invalid JSON config or command line
struct DataError : Error { using Error::Error; };      // a data file missing or malformed
struct IoError : Error { using Error::Error; };        // reading or writing a file failed

// A message part on its own line: "help: <text>". Holds a view of the text, because most checks pass and need no copy.
struct Help { std::string_view text; };
inline std::ostream& operator<<(std::ostream& out, const Help& h) { return out << "\nhelp: " << h.text; }

// Returns all parts as one string, written as a stream writes them.
template <class... Parts>
std::string joined(const Parts&... parts) {
  TextWriter out;
  (out << ... << parts);
  return out.str();
}

// Throws E with the message "[where] parts".
template <class E, class... Parts>
[[noreturn]] void fail(std::string_view where, const Parts&... parts) {
  throw E(joined('[', where, "] ", parts...));
}

// Throws as fail() does, unless ok. The parentheses here, and around other functions of this name, keep the compiler from expanding
// a macro check(x), such as that of macOS.
template <class E, class... Parts>
void(check)(bool ok, std::string_view where, const Parts&... parts) {
  if (!ok) [[unlikely]]
    fail<E>(where, parts...);
}

}  // namespace halfstep
