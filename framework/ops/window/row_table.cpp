// SPDX-License-Identifier: Apache-2.0
// Builds the tables of sparse_rows.h, row by row: row o has the elements of the input that element o of the output reads. Formulas
// are PyTorch's (aten/src/ATen/native/UpSample.h), in double.
#include <algorithm>
#include <cmath>

#include "framework/ops/window/sparse_rows.h"

namespace halfstep {
namespace {

// Returns the elements of the input per element of the output.
double step_of(const RowSpec& spec) {
  if (spec.align_corners) return spec.out > 1 ? double(spec.in - 1) / double(spec.out - 1) : 0;
  return spec.scale > 0 ? 1 / spec.scale : double(spec.in) / double(spec.out);
}

// The kernel of cubic convolution at distance x >= 0, with its parameter a.
constexpr double kCubic = -0.75, kCubicAntialias = -0.5;
double cubic_near(double x, double a) { return ((a + 2) * x - (a + 3)) * x * x + 1; }       // |x| <= 1
double cubic_far(double x, double a) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; }  // 1 < |x| < 2
double cubic(double x, double a) { return x < 1 ? cubic_near(x, a) : x < 2 ? cubic_far(x, a) : 0; }

// Returns the element that contains a position, in > 0; also for NaN and positions beyond int64, which absurd scales make.
int64_t element_at(double position, int64_t in) { return position > 0 ? int64_t(std::min(position, double(in - 1))) : 0; }

// Appends entries and rows to a table.
class RowBuilder {
 public:
  explicit RowBuilder(RowTable& table) : table_(table) {}
  void add_entry(int64_t index, double weight) {
    if (weight == 0) return;
    table_.index.push_back(index);
    table_.weight.push_back(weight);
  }
  void end_row() { table_.start.push_back(int64_t(table_.index.size())); }

 private:
  RowTable& table_;
};

// Returns the position, rounded where PyTorch rounds it, because the nearest element may depend on the last bit.
template <class Real>
double nearest_position(const RowSpec& spec, int64_t o) {
  const Real step = spec.scale > 0 ? Real(1 / spec.scale) : Real(spec.in) / Real(spec.out);
  if (spec.kind == RowKind::nearest) return double(std::floor(float(Real(o) * step)));
  const Real at = std::max(Real(double(step) * (double(o) + 0.5) - 0.5), Real(0));
  return double(std::floor(float(double(at) + 0.5)));
}
void add_nearest_row(const RowSpec& spec, int64_t o, RowBuilder& builder) {
  builder.add_entry(element_at(spec.wide ? nearest_position<double>(spec, o) : nearest_position<float>(spec, o), spec.in), 1);
}

void add_linear_row(const RowSpec& spec, double step, int64_t o, RowBuilder& builder) {
  if (spec.in == spec.out) return builder.add_entry(o, 1);
  const double at = spec.align_corners ? step * double(o) : std::max(0.0, step * (double(o) + 0.5) - 0.5);
  const int64_t first = element_at(at, spec.in), second = std::min(first + 1, spec.in - 1);
  const double fraction = std::clamp(at - double(first), 0.0, 1.0);
  if (first == second) return builder.add_entry(first, 1);
  builder.add_entry(first, 1 - fraction);
  builder.add_entry(second, fraction);
}

void add_cubic_row(const RowSpec& spec, double step, int64_t o, RowBuilder& builder) {
  const double at = spec.align_corners ? step * double(o) : step * (double(o) + 0.5) - 0.5;
  const int64_t base = element_at(std::floor(at) + 1, spec.in + 1) - 1;
  const double fraction = std::clamp(at - double(base), 0.0, 1.0);
  double weight[4];
  int64_t index[4];
  for (int k = 0; k < 4; ++k) {
    weight[k] = cubic(std::abs(fraction + 1 - k), kCubic);
    index[k] = std::clamp<int64_t>(base + k - 1, 0, spec.in - 1);
  }
  for (int k = 0; k < 4; ++k) {  // at the border several coincide
    double sum = weight[k];
    while (k < 3 && index[k + 1] == index[k]) sum += weight[++k];
    builder.add_entry(index[k], sum);
  }
}

// Adds a row of a filter as wide as the step, so that no element of the input is skipped.
void add_antialias_row(const RowSpec& spec, double step, int64_t o, RowBuilder& builder) {
  if (spec.in == spec.out) return builder.add_entry(o, 1);
  const bool linear = spec.kind == RowKind::linear_antialias;
  const double widening = std::max(step, 1.0), reach = (linear ? 1 : 2) * widening, center = step * (double(o) + 0.5);
  const int64_t first = element_at(center - reach + 0.5, spec.in + 1), last = element_at(center + reach + 0.5, spec.in + 1);
  const auto filter = [&](int64_t i) {
    const double x = std::abs((double(i) - center + 0.5) / widening);
    return linear ? std::max(0.0, 1 - x) : cubic(x, kCubicAntialias);
  };
  double total = 0;
  for (int64_t i = first; i < last; ++i) total += filter(i);
  for (int64_t i = first; i < last; ++i) builder.add_entry(i, total != 0 ? filter(i) / total : filter(i));
}

// Wraps an index. Negative sizes cut first, and the rest wraps; other modes still read what is cut off.
int64_t circular_index(const RowSpec& spec, int64_t o) {
  const int64_t after = spec.out - spec.in - spec.before, cut = std::max<int64_t>(-spec.before, 0);
  const int64_t kept = spec.in - cut - std::max<int64_t>(-after, 0), i = (o - std::max<int64_t>(spec.before, 0)) % kept;
  return cut + (i < 0 ? i + kept : i);
}

void add_padding_row(const RowSpec& spec, int64_t o, RowBuilder& builder) {
  int64_t i = o - spec.before;
  if (spec.kind == RowKind::replicate)
    i = std::clamp<int64_t>(i, 0, spec.in - 1);
  else if (spec.kind == RowKind::circular)
    i = circular_index(spec, o);
  else
    i = i < 0 ? -i : i >= spec.in ? 2 * (spec.in - 1) - i : i;
  builder.add_entry(i, 1);
}

RowTable transpose(const RowTable& table, int64_t rows, int64_t columns) {
  RowTable transposed;
  transposed.start.assign(size_t(columns + 1), 0);
  for (int64_t i : table.index) ++transposed.start[size_t(i + 1)];
  for (int64_t c = 0; c < columns; ++c) transposed.start[size_t(c + 1)] += transposed.start[size_t(c)];
  transposed.index.resize(table.index.size());
  transposed.weight.resize(table.index.size());
  std::vector<int64_t> next(transposed.start.begin(), transposed.start.end() - 1);
  for (int64_t o = 0; o < rows; ++o) {
    for (int64_t k = table.start[size_t(o)]; k < table.start[size_t(o + 1)]; ++k) {
      const auto at = size_t(next[size_t(table.index[size_t(k)])]++);
      transposed.index[at] = o;
      transposed.weight[at] = table.weight[size_t(k)];
    }
  }
  return transposed;
}

}  // namespace

RowTable row_table(const RowSpec& spec) {
  RowTable table;
  RowBuilder builder(table);
  const double step = step_of(spec);
  for (int64_t o = 0; o < spec.out; ++o) {
    switch (spec.kind) {
      case RowKind::nearest:
      case RowKind::nearest_exact: add_nearest_row(spec, o, builder); break;
      case RowKind::linear: add_linear_row(spec, step, o, builder); break;
      case RowKind::cubic: add_cubic_row(spec, step, o, builder); break;
      case RowKind::linear_antialias:
      case RowKind::cubic_antialias: add_antialias_row(spec, step, o, builder); break;
      default: add_padding_row(spec, o, builder);
    }
    builder.end_row();
  }
  return spec.transposed ? transpose(table, spec.out, spec.in) : table;
}

}  // namespace halfstep
