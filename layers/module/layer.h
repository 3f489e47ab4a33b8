// SPDX-License-Identifier: Apache-2.0
// Parts of layers: arguments for one or all dimensions, the text that PyTorch prints, and layers that are only a function.
#pragma once

#include <concepts>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "framework/base/arguments.h"
#include "framework/base/options.h"
#include "framework/ops/ops.h"
#include "layers/module/module.h"

namespace halfstep {

// An integer argument of a constructor. Fractions, which would be truncated, and bools do not compile.
class Integer {
 public:
  template <std::integral T>
  requires(!std::same_as<T, bool>) Integer(T value) : value_(int64_t(value)) {}
  operator int64_t() const { return value_; }

 private:
  int64_t value_;
};

// Prints a layer as PyTorch does: Repr("Dropout").arg("p", 0.5).str() is "Dropout(p=0.5)".
class Repr {
 public:
  explicit Repr(const std::string& type) : text_(type + "(") {}
  template <class T>
  Repr& arg(const T& value) {
    return add("", python(value));
  }
  template <class T>
  Repr& arg(const char* key, const T& value) {
    return add(std::string(key) + "=", python(value));
  }
  template <class T>
  Repr& arg_if(bool given, const char* key, const T& value) {
    return given ? arg(key, value) : *this;
  }
  // Appends the options in the order of their list; with `names`, only these, in that order. The list says which are shown. dims >
  // 0: prints sizes as one number for each dimension.
  template <HasOptionList O>
  Repr& options(const O& options, int dims = 0, std::initializer_list<std::string_view> names = {}) {
    const O defaults;
    const auto add = [&](const Option<O>& o) { option(o, o.get(options), o.get(defaults), dims); };
    for (const Option<O>& o : O::list())
      if (names.size() == 0) add(o);
    for (const std::string_view name : names)
      for (const Option<O>& o : O::list())
        if (o.name == name) add(o);
    return *this;
  }
  std::string str() const { return text_ + ")"; }

  static std::string python(bool value) { return value ? "True" : "False"; }
  static std::string python(int value) { return std::to_string(value); }
  static std::string python(int64_t value) { return std::to_string(value); }
  static std::string python(double value);         // the shortest that reads back: 1.0, 1e-05
  static std::string python(const Dims& values);   // (2, 3), (2,)
  static std::string python(const Sizes& values);  // 2, (2, 3), None
  static std::string python(const std::vector<double>& values);
  static std::string python(const std::vector<std::string>& values);
  static std::string python(const OptionValue& value);
  static std::string python(const std::string& value) { return value; }
  template <class T>
  static std::string python(const std::optional<T>& value) {
    return value ? python(*value) : "None";
  }

 private:
  Repr& add(const std::string& key, const std::string& value);
  Repr& option(const OptionFacts& option, OptionValue value, OptionValue default_value, int dims);
  std::string text_;
  bool first_ = true;
};

// A layer without parameters that does the same in training and evaluation.
class FunctionLayer : public Module {
 public:
  using Function = std::function<Tensor(const Tensor&)>;
  FunctionLayer(std::string description, Function function)
      : description_(std::move(description)), function_(std::move(function)) {}
  Tensor forward(const Tensor& x) override { return function_(x); }
  bool is_recordable() const override { return true; }
  std::string describe() const override { return description_; }

 private:
  std::string description_;
  Function function_;
};

// Appends the dimensions: "Conv" and 2 give "Conv2d".
constexpr ClassName with_dims(ClassName family, int dims) {
  size_t end = 0;
  while (family.text[end]) ++end;
  family.text[end] = char('0' + dims);
  family.text[end + 1] = 'd';
  return family;
}
// A family's class for `dims` spatial dimensions: its name, and the count of its sizes.
template <ClassName family, int dims>
struct OfDims {
  static constexpr int kDims = dims;
  static constexpr ClassName kType = with_dims(family, dims);
  static constexpr const char* kName = kType.text;
};

// A layer that is a function and has no options: using ReLU = PlainLayer<"ReLU", relu>.
template <ClassName type, Tensor (*function)(const Tensor&)>
class PlainLayer : public FunctionLayer {
 public:
  static constexpr const char* kName = type.text;
  PlainLayer() : FunctionLayer(Repr(kName).str(), function) {}
};

// Accepts a type that can be given for the first option of O, by position: Dropout(0.3). A bool is not a number, and a fraction
// not an integer.
template <class T, class O>
concept FirstOption = (PlainNumber<T> && requires(double x) { O{x}; }) ||
                      (std::integral<T> && !std::same_as<T, bool> && requires(int64_t x) { O{x}; }) ||
                      (std::convertible_to<T, std::string> && requires(std::string x) { O{x}; });
// Returns options with this first one.
template <class O, FirstOption<O> T>
O with_first(const T& first) {
  if constexpr (PlainNumber<T> && requires(double x) { O{x}; })
    return O{double(first)};
  else if constexpr (std::integral<T>)
    return O{int64_t(first)};
  else
    return O{std::string(first)};
}

// Computes the function of an options struct.
template <class O>
Tensor call_options(const Tensor& x, const O& options) {
  return options(x);
}
// A layer that is a function of its input and options: constructor, checks and describe() come from the list of the options.
template <ClassName type, HasOptionList O, Tensor (*function)(const Tensor&, const O&) = call_options<O>>
class OptionLayer : public FunctionLayer {
 public:
  using Options = O;
  static constexpr const char* kName = type.text;
  explicit OptionLayer(const O& options = {})
      : FunctionLayer(Repr(kName).options(options).str(), [options](const Tensor& x) { return function(x, options); }) {
    check_options(kName, options);
  }
  template <FirstOption<O> T>
  explicit OptionLayer(const T& first) : OptionLayer(with_first<O>(first)) {}
};

// Throws ShapeError, naming the layer, unless x has between `least` and `most` dimensions.
void check_rank(std::string_view layer, const Tensor& x, int least, int most);

// Returns the spatial part of a requested output size, given as a full shape or as spatial sizes. Throws ShapeError for another
// count of sizes.
Dims spatial_part(std::string_view layer, std::string_view argument, const Dims& sizes, const Tensor& x, int dims);

}  // namespace halfstep
