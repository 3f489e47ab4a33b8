// SPDX-License-Identifier: Apache-2.0
// The text that PyTorch prints for a layer, and checks of the inputs that layers share.
#include "layers/module/layer.h"

#include <array>
#include <charconv>
#include <cmath>

namespace halfstep {

std::string Repr::python(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
  std::array<char, 32> text;  // 17 digits, and a sign, point, exponent or leading zeros
  const double magnitude = std::abs(value);
  const bool scientific = magnitude != 0 && (magnitude < 1e-4 || magnitude >= 1e16);  // as Python's repr
  const auto format = scientific ? std::chars_format::scientific : std::chars_format::fixed;
  std::string out(text.data(), std::to_chars(text.data(), text.data() + text.size(), value, format).ptr);
  return scientific || out.find('.') != std::string::npos ? out : out + ".0";
}

namespace {

template <class List>
std::string tuple(const List& values) {
  std::string out = "(";
  for (size_t i = 0; i < size_t(values.size()); ++i) out += (i ? ", " : "") + Repr::python(*(values.begin() + int64_t(i)));
  return out + (values.size() == 1 ? ",)" : ")");
}

}  // namespace

std::string Repr::python(const Dims& values) { return tuple(values); }
std::string Repr::python(const Sizes& values) {
  return values.empty() ? "None" : values.is_number() ? python(values.values()[0]) : tuple(values.values());
}
std::string Repr::python(const std::vector<double>& values) { return values.size() == 1 ? python(values[0]) : tuple(values); }

std::string Repr::python(const std::vector<std::string>& values) { return tuple(values); }

std::string Repr::python(const OptionValue& value) {
  return std::visit(
      [](const auto& v) -> std::string {
        if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::monostate>)
          return "None";
        else
          return python(v);
      },
      value);
}

Repr& Repr::option(const OptionFacts& o, OptionValue value, OptionValue default_value, int dims) {
  for (OptionValue* v : {&value, &default_value}) {
    Sizes* const sizes = std::get_if<Sizes>(v);
    if (dims > 0 && sizes && sizes->is_number()) *sizes = Dims::filled(dims, sizes->values()[0]);
  }
  if (o.shown == OptionShown::never || (o.shown == OptionShown::if_changed && value == default_value)) return *this;
  const std::string mark = o.quoted ? "'" : "";
  return add(o.shown == OptionShown::bare ? "" : o.name + "=", mark + python(value) + mark);
}

Repr& Repr::add(const std::string& key, const std::string& value) {
  text_ += (first_ ? "" : ", ") + key + value;
  first_ = false;
  return *this;
}

void check_rank(std::string_view layer, const Tensor& x, int least, int most) {
  if (least == most)
    check<ShapeError>(x.dim() == least, layer, "needs an input of ", least, " dimensions, got ", x.shape());
  else
    check<ShapeError>(x.dim() >= least && x.dim() <= most, layer, "needs an input of ", least, " to ", most, " dimensions, got ",
                      x.shape());
}

Dims spatial_part(std::string_view layer, std::string_view argument, const Dims& sizes, const Tensor& x, int dims) {
  check<ShapeError>(sizes.size() == dims || sizes.size() == x.dim(), layer, argument, " must have ", dims, " or ", x.dim(),
                    " sizes, got ", sizes);
  return Dims(sizes.span().subspan(size_t(sizes.size() - dims)));
}

}  // namespace halfstep
