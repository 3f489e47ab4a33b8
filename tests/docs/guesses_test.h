// SPDX-License-Identifier: Apache-2.0
// Definitions for the lines of tests/docs/guesses.txt, and the comparison of their results with PyTorch's: tests/docs/guesses.py
// makes a struct of each line.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <exception>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "halfstep.h"
#include "tests/docs/temp_dir.h"
#include "tests/support/source_dir.h"

using namespace halfstep;
using namespace halfstep::indexing;
namespace torch = halfstep;

namespace {

inline Tensor wave(const Shape& shape, double shift = 0) {
  return (arange(double(numel(shape))).to(DType::f64) + shift).sin().to(DType::f32).reshape(shape);
}

// Corresponds to variables() of guesses.py.
struct Variables {
  Tensor x = wave({4, 5}), y = arange(20.0).to(DType::f64).cos().to(DType::f32).reshape({4, 5}), v = wave({5}), v3 = wave({3});
  Tensor a = wave({2, 3, 4}), m = eye(3) * 3 + 0.5, k = tensor({0, 3, 1}), t = tensor({0, 2, 1, 4});
  Tensor index = zeros({4, 5}).to(DType::i64);
  Tensor images = wave({2, 3, 8, 8}), kernel = wave({2, 3, 3, 3}), bias = wave({2}), seq = wave({2, 6, 5}), mask = x > 0;
  Tensor w = (y * 0.5).detach().set_requires_grad(), loss;
  Tensors parts{x, y};
  std::vector<float> numbers{1, 2, 3};
  Device device = Device::cpu;
  Sequential net{Linear(5, 8), ReLU(), Linear(8, 3)};
  SGD opt{net.parameters(), {.lr = 0.1}};

  Variables() {
    manual_seed(1);
    double i = 0;
    const NoGrad off;
    for (const Tensor& p : net.parameters()) {
      p.copy_(((arange(double(p.numel())).to(DType::f64) * 0.7 + i).cos() * 0.3).reshape(p.shape()));
      i += 1;
    }
  }
};

using nlohmann::json;

// Converts a result as guesses.py does: a tensor to [shape, dtype, some of the numbers]; numbers and texts unchanged.
json value_of(const Tensor& t) {
  const std::vector<double> all = t.detach().to_vector<double>();
  const size_t step = (all.size() + 15) / 16;
  json some = json::array();
  for (size_t i = 0; i < all.size(); i += step) {
    if (std::isfinite(all[i]))
      some.push_back(all[i]);
    else
      some.push_back(all[i] > 0 ? "inf" : all[i] < 0 ? "-inf" : "nan");
  }
  std::stringstream dtype;
  dtype << t.dtype();
  return {std::vector<int64_t>(t.shape().begin(), t.shape().end()), dtype.str(), some};
}
json value_of(const Dims& d) { return {std::vector<double>(d.begin(), d.end())}; }
template <class T>
  requires std::is_arithmetic_v<T>
json value_of(const std::vector<T>& v) {
  return {std::vector<double>(v.begin(), v.end())};
}
inline json value_of(const Tensors& all) {
  json out = json::array();
  for (const Tensor& t : all) out.push_back(value_of(t));
  return out;
}
inline json value_of(const std::pair<Tensor, Tensor>& both) { return {value_of(both.first), value_of(both.second)}; }
inline json value_of(const std::optional<double>& value) { return value ? json(*value) : json(); }
template <class T>
json value_of(const T& value) {
  if constexpr (std::is_arithmetic_v<T> || std::is_convertible_v<T, std::string>)
    return value;
  else
    return nullptr;
}

// Makes `(expression), Nothing()` valid for all expressions, also of type void.
struct Nothing {};
template <class T>
json operator,(const T& value, Nothing) {
  if constexpr (std::is_base_of_v<Tensor, T>)
    return value_of(static_cast<const Tensor&>(value));
  else
    return value_of(value);
}

bool same(const json& a, const json& b) {
  if (a.is_boolean() || !a.is_number()) {
    if (!a.is_array()) return a == b;
    if (!b.is_array() || a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i) {
      if (!same(a[i], b[i])) return false;
    }
    return true;
  }
  return b.is_number() && std::abs(a.get<double>() - b.get<double>()) <= 1e-6 + 1e-5 * std::abs(b.get<double>());
}

template <class Guess>
void check_guess(int line, const std::string& text) {
  static const json results = json::parse(std::ifstream(halfstep_source_dir() + "/tests/docs/guesses.json"));
  static const InTempDir there;
  CAPTURE(line);
  CAPTURE(text);
  json found;
  try {
    Guess guess;
    if constexpr (std::is_same_v<decltype(guess.run()), json>)
      found = guess.run();
    else
      guess.run();
  } catch (const std::exception& e) {
    FAIL_CHECK(e.what());
    return;
  }
  REQUIRE_MESSAGE(results.contains(text), "record it with tests/docs/guesses.py --torch");
  json expected = results[text];
  if (expected.is_null()) return;
  if (expected.is_array() && expected.size() == 3 && expected[2].empty() && found.is_array() && found.size() == 3)
    expected[2] = found[2];  // random numbers are not compared
  INFO("got ", found.dump(), ", PyTorch has ", expected.dump());
  CHECK(same(found, expected));
}

}  // namespace
