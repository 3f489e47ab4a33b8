// SPDX-License-Identifier: Apache-2.0
// Builds the tables of sparse_rows.h. Formulas are PyTorch's (aten/src/ATen/native/UpSample.h), in double.
#include <algorithm>
#include <cmath>

#include "framework/ops/window/sparse_rows.h"

namespace halfstep {
namespace {

// Returns the elements of the input per element of the output.
double step_of(const RowSpec& s) {
  if (s.align_corners) return s.out > 1 ? double(s.in - 1) / double(s.out - 1) : 0;
  return s.scale > 0 ? 1 / s.scale : double(s.in) / double(s.out);
}

double cubic_near(double x, double a) { return ((a + 2) * x - (a + 3)) * x * x + 1; }       // |x| <= 1
double cubic_far(double x, double a) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; }  // 1 < |x| < 2
double cubic(double x, double a) { return x < 1 ? cubic_near(x, a) : x < 2 ? cubic_far(x, a) : 0; }

// Returns the element that contains a position, in > 0; also for NaN and positions beyond int64, which absurd scales make.
int64_t element_at(double position, int64_t in) { return position > 0 ? int64_t(std::min(position, double(in - 1))) : 0; }

class Builder {
 public:
  explicit Builder(RowTable& table) : table_(table) {}
  void entry(int64_t index, double weight) {
    if (weight == 0) return;
    table_.index.push_back(index);
    table_.weight.push_back(weight);
  }
  void end_row() { table_.start.push_back(int64_t(table_.index.size())); }

 private:
  RowTable& table_;
};

// Rounds positions where PyTorch does, because the nearest element may depend on the last bit.
template <class C>
double nearest_position(const RowSpec& s, int64_t o) {
  const C step = s.scale > 0 ? C(1 / s.scale) : C(s.in) / C(s.out);
  if (s.kind == RowKind::nearest) return double(std::floor(float(C(o) * step)));
  const C at = std::max(C(double(step) * (double(o) + 0.5) - 0.5), C(0));
  return double(std::floor(float(double(at) + 0.5)));
}
void nearest_row(const RowSpec& s, int64_t o, Builder& b) {
  b.entry(element_at(s.wide ? nearest_position<double>(s, o) : nearest_position<float>(s, o), s.in), 1);
}

void linear_row(const RowSpec& s, double step, int64_t o, Builder& b) {
  if (s.in == s.out) return b.entry(o, 1);
  const double at = s.align_corners ? step * double(o) : std::max(0.0, step * (double(o) + 0.5) - 0.5);
  const int64_t first = element_at(at, s.in), second = std::min(first + 1, s.in - 1);
  const double part = std::clamp(at - double(first), 0.0, 1.0);
  if (first == second) return b.entry(first, 1);
  b.entry(first, 1 - part);
  b.entry(second, part);
}

void cubic_row(const RowSpec& s, double step, int64_t o, Builder& b) {
  const double at = s.align_corners ? step * double(o) : step * (double(o) + 0.5) - 0.5;
  const int64_t base = element_at(std::floor(at) + 1, s.in + 1) - 1;
  const double part = std::clamp(at - double(base), 0.0, 1.0);
  double weight[4];
  int64_t index[4];
  for (int k = 0; k < 4; ++k) {
    weight[k] = cubic(std::abs(part + 1 - k), -0.75);
    index[k] = std::clamp<int64_t>(base + k - 1, 0, s.in - 1);
  }
  for (int k = 0; k < 4; ++k) {  // at the border several coincide
    double sum = weight[k];
    while (k < 3 && index[k + 1] == index[k]) sum += weight[++k];
    b.entry(index[k], sum);
  }
}

// Uses a filter as wide as the step, so that no element of the input is skipped.
void antialias_row(const RowSpec& s, double step, int64_t o, Builder& b) {
  if (s.in == s.out) return b.entry(o, 1);
  const bool linear = s.kind == RowKind::linear_antialias;
  const double wide = std::max(step, 1.0), reach = (linear ? 1 : 2) * wide, center = step * (double(o) + 0.5);
  const int64_t first = element_at(center - reach + 0.5, s.in + 1), last = element_at(center + reach + 0.5, s.in + 1);
  const auto filter = [&](int64_t i) {
    const double x = std::abs((double(i) - center + 0.5) / wide);
    return linear ? std::max(0.0, 1 - x) : cubic(x, -0.5);
  };
  double total = 0;
  for (int64_t i = first; i < last; ++i) total += filter(i);
  for (int64_t i = first; i < last; ++i) b.entry(i, total != 0 ? filter(i) / total : filter(i));
}

// Wraps an index. Negative sizes cut first, and the rest wraps; other modes still read what is cut off.
int64_t circular_index(const RowSpec& s, int64_t o) {
  const int64_t after = s.out - s.in - s.before, cut = std::max<int64_t>(-s.before, 0);
  const int64_t kept = s.in - cut - std::max<int64_t>(-after, 0), i = (o - std::max<int64_t>(s.before, 0)) % kept;
  return cut + (i < 0 ? i + kept : i);
}

void padding_row(const RowSpec& s, int64_t o, Builder& b) {
  int64_t i = o - s.before;
  if (s.kind == RowKind::replicate)
    i = std::clamp<int64_t>(i, 0, s.in - 1);
  else if (s.kind == RowKind::circular)
    i = circular_index(s, o);
  else
    i = i < 0 ? -i : i >= s.in ? 2 * (s.in - 1) - i : i;
  b.entry(i, 1);
}

RowTable transpose(const RowTable& t, int64_t rows, int64_t columns) {
  RowTable r;
  r.start.assign(size_t(columns + 1), 0);
  for (int64_t i : t.index) ++r.start[size_t(i + 1)];
  for (int64_t c = 0; c < columns; ++c) r.start[size_t(c + 1)] += r.start[size_t(c)];
  r.index.resize(t.index.size());
  r.weight.resize(t.index.size());
  std::vector<int64_t> next(r.start.begin(), r.start.end() - 1);
  for (int64_t o = 0; o < rows; ++o) {
    for (int64_t k = t.start[size_t(o)]; k < t.start[size_t(o + 1)]; ++k) {
      const auto at = size_t(next[size_t(t.index[size_t(k)])]++);
      r.index[at] = o;
      r.weight[at] = t.weight[size_t(k)];
    }
  }
  return r;
}

}  // namespace

RowTable row_table(const RowSpec& s) {
  RowTable table;
  Builder b(table);
  const double step = step_of(s);
  for (int64_t o = 0; o < s.out; ++o) {
    switch (s.kind) {
      case RowKind::nearest:
      case RowKind::nearest_exact: nearest_row(s, o, b); break;
      case RowKind::linear: linear_row(s, step, o, b); break;
      case RowKind::cubic: cubic_row(s, step, o, b); break;
      case RowKind::linear_antialias:
      case RowKind::cubic_antialias: antialias_row(s, step, o, b); break;
      default: padding_row(s, o, b);
    }
    b.end_row();
  }
  return s.transposed ? transpose(table, s.out, s.in) : table;
}

}  // namespace halfstep
