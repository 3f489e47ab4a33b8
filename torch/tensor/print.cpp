// SPDX-License-Identifier: Apache-2.0
// Tensors as libtorch prints them: in lines of at most 80 characters, with one format for all numbers of a matrix.
#include <charconv>
#include <cmath>
#include <iomanip>

#include "framework/base/text_stream.h"
#include "torch/tensor/index.h"

namespace torch {
namespace {

constexpr int64_t kLine = 80;

struct Format {
  double scale = 1;  // of all numbers, printed above them
  int width = 0;
};

double digits(double v) { return v == 0 ? 1 : std::floor(std::log10(v)) + 1; }

// Sets the format of the stream for some numbers.
Format format_for(std::ostream& out, const double* v, int64_t count) {
  bool whole = true;
  double least = 0, most = 0;
  bool any = false;
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(v[i])) continue;
    const double size = std::abs(v[i]);
    whole = whole && v[i] == std::ceil(v[i]);
    least = any ? std::min(least, size) : size;
    most = any ? std::max(most, size) : size;
    any = true;
  }
  const double low = any ? digits(least) : 1, high = any ? digits(most) : 1;
  const bool scientific = whole ? high > 9 : high - low > 4;
  if (scientific) {
    out << std::scientific << std::setprecision(4);
    return {1, !whole && (std::abs(high) > 99 || std::abs(low) > 99) ? 12 : 11};
  }
  if (whole) {
    out << std::defaultfloat;
    return {1, int(high) + 1};
  }
  out << std::fixed << std::setprecision(4);
  if (high > 5 || high < 0) return {std::pow(10, high - 1), 7};
  return {1, high == 0 ? 7 : int(high) + 6};
}

// Returns the shortest digits that give the number again, as a decimal fraction from 1e-4 to 1e16.
std::string shortest(double v) {
  char text[64];
  const auto written = [&text](std::to_chars_result r) { return std::string(text, r.ptr); };
  const double size = std::abs(v);
  const bool fraction = !std::isfinite(v) || v == 0 || (size >= 1e-4 && size < 1e16);
  return written(std::to_chars(text, text + sizeof text, v, fraction ? std::chars_format::fixed : std::chars_format::scientific));
}
void print_scale(std::ostream& out, double scale) { out << shortest(scale) << " *\n"; }

// `margin`: before each row but the first of a matrix that fits into the lines.
void print_matrix(std::ostream& out, const double* v, int64_t rows, int64_t columns, const std::string& margin) {
  const Format format = format_for(out, v, rows * columns);
  const int64_t per_line = std::max<int64_t>(1, (kLine - int64_t(margin.size())) / (format.width + 1));
  for (int64_t first = 0; first < columns; first += per_line) {
    const int64_t last = std::min(first + per_line, columns) - 1;
    if (per_line < columns) {
      if (first != 0) out << '\n';
      out << "Columns " << first + 1 << " to " << last + 1 << margin;
    }
    if (format.scale != 1) {
      print_scale(out, format.scale);
      out << margin;
    }
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = first; c <= last; ++c)
        out << std::setw(format.width) << v[r * columns + c] / format.scale << (c == last ? '\n' : ' ');
      if (r + 1 < rows) out << margin << (format.scale != 1 ? " " : "");
    }
  }
}

void print_values(std::ostream& out, const std::vector<double>& v, IntArrayRef sizes) {
  const size_t rank = sizes.size();
  if (rank == 0) {
    out << shortest(v[0]) << '\n';
    return;
  }
  if (v.empty()) return;
  if (rank == 1) {
    const Format format = format_for(out, v.data(), int64_t(v.size()));
    if (format.scale != 1) print_scale(out, format.scale);
    for (double number : v) out << std::setw(format.width) << number / format.scale << '\n';
    return;
  }
  const int64_t rows = sizes[rank - 2], columns = sizes[rank - 1], each = rows * columns;
  for (int64_t n = 0; n < int64_t(v.size()) / each; ++n) {
    int64_t base = 0;
    if (rank > 2) {  // the first index moves fastest
      int64_t rest = n, stride = each;
      std::vector<int64_t> at(rank - 2), strides(rank - 2);
      for (size_t d = rank - 2; d-- > 0; stride *= sizes[d]) strides[d] = stride;
      for (size_t d = 0; d < rank - 2; rest /= sizes[d++]) {
        at[d] = rest % sizes[d];
        base += at[d] * strides[d];
      }
      out << (n ? "\n(" : "(");
      for (int64_t i : at) out << i + 1 << ",";
      out << ".,.) = \n";
    }
    print_matrix(out, v.data() + base, rows, columns, rank > 2 ? " " : "");
  }
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Tensor& t) {
  if (!t.defined()) return out << "[ Tensor (undefined) ]";
  hs::TextWriter text;
  print_values(text, t.h().detach().to_vector<double>(), t.sizes());
  text << std::defaultfloat << "[ " << t.toString() << "{" << Join(",", t.sizes()) << "} ]";
  return out << text.str();
}

}  // namespace torch
