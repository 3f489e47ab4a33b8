// SPDX-License-Identifier: Apache-2.0
// What the tests of the room share.
#pragma once

#include <exception>

#include "framework/base/number_text.h"
#include "framework/base/text_stream.h"
#include "torch/torch.h"

// Returns the message of the error that f throws.
template <class F>
std::string message_of(const F& f) {
  try {
    f();
  } catch (const std::exception& e) { return e.what(); }
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
// Returns sizes, dtype and values, of four digits; values below 1e-6 are 0.
inline std::string shown(const torch::Tensor& t) {
  halfstep::TextWriter out;
  out << t.sizes() << " " << t.dtype() << ":";
  const torch::Tensor line = t.detach().to(torch::kDouble).contiguous().view({-1});
  for (int64_t k = 0; k < line.numel(); ++k) {
    const double number = line[k].item<double>();
    out << " " << halfstep::general_text(std::abs(number) < 1e-6 ? 0.0 : number, 4);
  }
  return out.str();
}
inline std::string shown(const std::tuple<torch::Tensor, torch::Tensor>& t) {
  return shown(std::get<0>(t)) + " | " + shown(std::get<1>(t));
}
inline std::string shown(const std::tuple<torch::Tensor, torch::Tensor, torch::Tensor>& t) {
  return shown(std::tuple(std::get<0>(t), std::get<1>(t)));
}
inline std::string shown(const std::vector<torch::Tensor>& list) {
  std::string out;
  for (const torch::Tensor& t : list) out += (out.empty() ? "" : " | ") + shown(t);
  return out;
}
template <class F>
std::string outcome(const F& f) {
  try {
    return shown(f());
  } catch (const torch::Error&) { return "throws"; }
}
#define ROW(expression, expected) CHECK(outcome([&] { return expression; }) == expected)
