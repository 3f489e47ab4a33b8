// SPDX-License-Identifier: Apache-2.0
// What the tests of the room share.
#pragma once

#include <exception>

#include "framework/base/text_stream.h"
#include "torch/torch.h"

// Returns the message of the error that f throws.
template <class F>
std::string message_of(const F& f) {
  try {
    f();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "nothing was thrown";
}
inline bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }
// Returns what a stream prints of a value.
template <class T>
std::string printed(const T& value) {
  halfstep::TextWriter out;
  out << value;
  return out.str();
}
