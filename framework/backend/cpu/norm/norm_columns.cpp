// SPDX-License-Identifier: Apache-2.0
// x, g and out are [R, C] matrices (rows, columns); mean, scale, shift, first and second are [C]:
//
//   map       out = (x - mean) scale + shift, and with a ReLU max(0, out), or with a residual max(0, out + residual)
//   gradient  dx = scale g - first - (x - mean) second in training, scale g in evaluation; with a ReLU after the map, g counts as 0
//             where the ReLU's output is 0
//   sums      sum_g = sum over rows of g; sum_gx = sum over rows of g (x - mean)
//
// A matrix of few columns is read as one of several of its rows side by side, so that inner loops are long.
#include "framework/backend/cpu/norm/norm_columns.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "framework/backend/cpu/kernels.h"
#include "framework/backend/cpu/lanes.h"
#include "framework/backend/cpu/norm/norm_rows.h"

namespace halfstep::cpu {
namespace {

// Computes n elements of a row of map_columns.
template <bool Relu, class C, class T>
HS_CLONES void map_row(const T* x, const C* mean, const C* scale, const C* shift, T* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = cast<T>(rectified<Relu>((cast<C>(x[i]) - mean[i]) * scale[i] + shift[i]));
}
// Computes n elements of a row of column_gradients.
template <bool Training, bool Relu, class C, class T>
HS_CLONES void gradient_row(const T* g, const T* x, const C* mean, const C* scale, const C* first, const C* second, const C* shift,
                            C zero, T* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const bool off = Relu && (cast<C>(x[i]) - mean[i]) * scale[i] + shift[i] <= zero;
    const C v = scale[i] * (off ? C(0) : cast<C>(g[i]));
    out[i] = cast<T>(Training ? v - first[i] - (cast<C>(x[i]) - mean[i]) * second[i] : v);
  }
}

// Adds g and g (x - mean) of Rows more rows, which are `pitch` apart, to the sums.
template <int Rows, bool Relu, int bytes, class C, class T>
[[gnu::always_inline]] inline void add_rows(const T* g, const T* x, int64_t pitch, const C* mean, const ColumnRelu<C>& relu,
                                            C* sum_g, C* sum_gx, int64_t n) {
  using V = Lanes<C, bytes>;
  constexpr int kWidth = kLanes / int(sizeof(C));
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    V sums_g, sums_gx, middle, g_values, x_values, scale, shift;
    load_lanes(sum_g + i, sums_g);
    load_lanes(sum_gx + i, sums_gx);
    load_lanes(mean + i, middle);
    if constexpr (Relu) {
      load_lanes(relu.scale + i, scale);
      load_lanes(relu.shift + i, shift);
    }
    for (int r = 0; r < Rows; ++r) {
      load_lanes(g + r * pitch + i, g_values);
      load_lanes(x + r * pitch + i, x_values);
      if constexpr (Relu) zero_where_at_most(g_values, (x_values - middle) * scale + shift, relu.zero);
      sums_g += g_values;
      sums_gx += g_values * (x_values - middle);
    }
    store_lanes(sums_g, sum_g + i);
    store_lanes(sums_gx, sum_gx + i);
  }
  for (; i < n; ++i) {
    for (int r = 0; r < Rows; ++r) {
      const bool off = Relu && (cast<C>(x[r * pitch + i]) - mean[i]) * relu.scale[i] + relu.shift[i] <= relu.zero;
      const C g_values = off ? C(0) : cast<C>(g[r * pitch + i]);
      sum_g[i] += g_values;
      sum_gx[i] += g_values * (cast<C>(x[r * pitch + i]) - mean[i]);
    }
  }
}
// Adds g and g (x - mean) of all rows to the sums, four rows at a time.
template <bool Relu, class C, class T>
void add_gradients(const T* g, const T* x, int64_t pitch, int64_t rows, const C* mean, const ColumnRelu<C>& relu, C* sum_g,
                   C* sum_gx, int64_t n) {
  with_lanes([=](auto bytes) HS_INLINE {
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) add_rows<4, Relu, bytes>(g + r * pitch, x + r * pitch, pitch, mean, relu, sum_g, sum_gx, n);
    for (; r < rows; ++r) add_rows<1, Relu, bytes>(g + r * pitch, x + r * pitch, pitch, mean, relu, sum_g, sum_gx, n);
  });
}

// A matrix seen as a wider one, with enough rows side by side for long loops. The last row may be incomplete.
struct SideBySide {
  int64_t together, width;  // rows of the matrix side by side; columns
  int64_t rows, complete;   // rows, and those of them that are complete

  SideBySide(const Matrix& m, int64_t most)
      : together(std::clamp<int64_t>(most / std::max<int64_t>(m.columns, 1), 1, std::max<int64_t>(m.rows, 1))),
        width(together * m.columns),
        rows((m.rows + together - 1) / together),
        complete(m.rows / together) {}

  // Returns the values of the columns once for each of the rows side by side; empty for null.
  template <class C>
  std::vector<C> repeated(const C* values) const {
    if (!values) return {};
    std::vector<C> out(static_cast<size_t>(width));
    const int64_t columns = width / together;
    for (int64_t k = 0; k < together; ++k) std::copy_n(values, columns, out.data() + k * columns);
    return out;
  }
};

// Returns whether a loop can read and write the tensors without buffers: it widens bfloat16 and rounds in registers.
template <class C>
bool fits_registers(std::initializer_list<const TensorView*> views) {
  return std::is_same_v<C, float> && std::all_of(views.begin(), views.end(), [](auto* v) { return v->dtype == DType::bf16; });
}

// Calls f(place, column, n) for all blocks of the matrix: n elements of a row.
template <class F>
void each_block(const Matrix& m, const SideBySide& wide, const F& f) {
  const int64_t grain = std::max<int64_t>(1, kBlock / std::max<int64_t>(wide.width, 1));
  parallel_for(wide.rows, grain, m.numel() * 4, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t here = std::min(wide.width, m.numel() - r * wide.width);
      for (int64_t c = 0; c < here; c += kBlock) f(m.from + r * wide.width + c, c, std::min(kBlock, here - c));
    }
  });
}

}  // namespace

void column_moments(const Matrix& m, const TensorView& x, double* mean, double* var) {
  constexpr int64_t kSideBySide = 256;
  const SideBySide wide(m, kSideBySide);
  const int64_t rest = m.rows - wide.complete * wide.together;
  std::vector<double> means(size_t(wide.width + m.columns)), vars(means.size());
  const auto find_moments = [&](int64_t from, int64_t rows, int64_t columns, double* part_mean, double* part_var) {
    const auto row = [&](double* v) { return TensorView{v, DType::f64, {1, columns}, {columns, 1}}; };
    variance(TensorView{at(x, m.from + from), x.dtype, {rows, columns}, {columns, 1}}, 0, row(part_mean), row(part_var));
  };
  if (wide.together == 1) return find_moments(0, m.rows, m.columns, mean, var);
  find_moments(0, wide.complete, wide.width, means.data(), vars.data());
  if (rest > 0) find_moments(wide.complete * wide.width, rest, m.columns, means.data() + wide.width, vars.data() + wide.width);
  for (int64_t c = 0; c < m.columns; ++c) {
    Moments all;
    for (int64_t i = c; i < wide.width; i += m.columns)
      all.join({means[size_t(i)], vars[size_t(i)] * double(wide.complete), wide.complete});
    if (rest > 0) all.join({means[size_t(wide.width + c)], vars[size_t(wide.width + c)] * double(rest), rest});
    mean[c] = all.mean;
    var[c] = all.squares / double(m.rows);
  }
}

template <class C>
void column_gradient_sums(const Matrix& m, const TensorView& grad, const TensorView& x, const C* mean, double* sum_g,
                          double* sum_gx, const ColumnRelu<C>* relu) {
  const SideBySide wide(m, kBlock);
  const std::vector<C> means = wide.repeated(mean), scales = wide.repeated(relu ? relu->scale : nullptr),
                       shifts = wide.repeated(relu ? relu->shift : nullptr);
  const int64_t blocks = (wide.width + kBlock - 1) / kBlock, part = rows_at_once(wide.rows), parts = (wide.rows + part - 1) / part;
  std::vector<C> sums(size_t(2 * parts * wide.width));  // sums of each part
  parallel_tasks(parts * blocks, m.numel() * 4, [&](int64_t task) {
    alignas(64) C g_buffer[kBlock], x_buffer[kBlock];
    const int64_t p = task / blocks, c = task % blocks * kBlock, n = std::min(kBlock, wide.width - c);
    C *const part_g = sums.data() + 2 * p * wide.width + c, *const part_gx = part_g + wide.width;
    const auto add = [&](int64_t r, int64_t rows, int64_t width) {
      const int64_t place = m.from + r * wide.width + c;
      const ColumnRelu<C> here = relu ? ColumnRelu<C>{scales.data() + c, shifts.data() + c, relu->zero} : ColumnRelu<C>{{}, {}, {}};
      const auto sum = [&](const auto* g, const auto* from, int64_t pitch, int64_t count) {
        relu ? add_gradients<true>(g, from, pitch, count, means.data() + c, here, part_g, part_gx, width)
             : add_gradients<false>(g, from, pitch, count, means.data() + c, here, part_g, part_gx, width);
      };
      const auto add_as_stored = [&](auto stored) {
        using T = decltype(stored);
        sum(grad.as<const T>() + place, x.as<const T>() + place, wide.width, rows);
      };
      if constexpr (std::is_same_v<C, float>) {
        if (fits_registers<C>({&grad, &x})) return add_as_stored(bf16{});
      }
      if (grad.dtype == dtype_of<C> && x.dtype == dtype_of<C>) return add_as_stored(C{});
      for (int64_t i = place; rows > 0; --rows, i += wide.width)
        sum(read_row<C>(grad, i, 1, width, g_buffer), read_row<C>(x, i, 1, width, x_buffer), 0, 1);
    };
    const int64_t begin = p * part, end = std::min(wide.complete, begin + part);
    if (begin < end) add(begin, end - begin, n);
    const int64_t rest = std::min(n, m.numel() - wide.complete * wide.width - c);
    if (p == parts - 1 && rest > 0) add(wide.complete, 1, rest);
  });
  std::fill_n(sum_g, m.columns, 0.0);
  std::fill_n(sum_gx, m.columns, 0.0);
  std::vector<double> joined(size_t(2 * wide.width));
  join_rows(sums, parts, 2 * wide.width, [&](int64_t i, double v) { joined[size_t(i)] = v; });
  for (const double* from = joined.data(); from < joined.data() + wide.width; from += m.columns) {
    for (int64_t c = 0; c < m.columns; ++c) {
      sum_g[c] += from[c];
      sum_gx[c] += from[wide.width + c];
    }
  }
}

template <class C>
void map_columns(const Matrix& m, const TensorView& x, const C* mean, const C* scale, const C* shift, const TensorView& out,
                 bool relu, const TensorView& residual) {
  const SideBySide wide(m, kBlock);
  const std::vector<C> means = wide.repeated(mean), scales = wide.repeated(scale), shifts = wide.repeated(shift);
  each_block(m, wide, [&](int64_t place, int64_t c, int64_t n) {
    const auto run = [&](const auto* from, auto* to) {
      relu && !residual ? map_row<true>(from, means.data() + c, scales.data() + c, shifts.data() + c, to, n)
                        : map_row<false>(from, means.data() + c, scales.data() + c, shifts.data() + c, to, n);
      residual ? end_row_add_relu<C>(out, residual, place, to, n) : end_row(out, place, to, n);
    };
    if constexpr (std::is_same_v<C, float>) {
      if (fits_registers<C>({&x, &out})) return run(x.as<const bf16>() + place, out.as<bf16>() + place);
    }
    alignas(64) C buffer[kBlock], out_buffer[kBlock];
    run(read_row<C>(x, place, 1, n, buffer), begin_row(out, place, out_buffer));
  });
}

template <class C>
void column_gradients(const Matrix& m, const TensorView& grad, const TensorView& x, const C* mean, const C* scale, const C* first,
                      const C* second, const TensorView& out, const ColumnRelu<C>* relu) {
  const SideBySide wide(m, kBlock);
  const std::vector<C> means = wide.repeated(mean), scales = wide.repeated(scale), firsts = wide.repeated(first),
                       seconds = wide.repeated(second), shifts = wide.repeated(relu ? relu->shift : nullptr);
  const C zero = relu ? relu->zero : C(0);
  each_block(m, wide, [&](int64_t place, int64_t c, int64_t n) {
    const auto part = [&](const std::vector<C>& values) { return values.empty() ? nullptr : values.data() + c; };
    const auto run = [&](const auto* g, const auto* from, auto* to) {
      const auto row = [&](auto training, auto with_relu) {
        gradient_row<training.value, with_relu.value>(g, from, means.data() + c, scales.data() + c, part(firsts), part(seconds),
                                                      part(shifts), zero, to, n);
      };
      const std::true_type yes;
      const std::false_type no;
      if (first)
        relu ? row(yes, yes) : row(yes, no);
      else
        relu ? row(no, yes) : row(no, no);
    };
    if constexpr (std::is_same_v<C, float>) {
      if (fits_registers<C>({&grad, &x, &out}))
        return run(grad.as<const bf16>() + place, x.as<const bf16>() + place, out.as<bf16>() + place);
    }
    alignas(64) C g_buffer[kBlock], x_buffer[kBlock], out_buffer[kBlock];
    C* to = begin_row(out, place, out_buffer);
    run(read_row<C>(grad, place, 1, n, g_buffer), read_row<C>(x, place, 1, n, x_buffer), to);
    end_row(out, place, to, n);
  });
}

#define HS_COLUMNS(C)                                                                                                            \
  template void column_gradient_sums<C>(const Matrix&, const TensorView&, const TensorView&, const C*, double*, double*,         \
                                        const ColumnRelu<C>*);                                                                   \
  template void map_columns<C>(const Matrix&, const TensorView&, const C*, const C*, const C*, const TensorView&, bool,          \
                               const TensorView&);                                                                               \
  template void column_gradients<C>(const Matrix&, const TensorView&, const TensorView&, const C*, const C*, const C*, const C*, \
                                    const TensorView&, const ColumnRelu<C>*);
HS_COLUMNS(float)
HS_COLUMNS(double)
#undef HS_COLUMNS

}  // namespace halfstep::cpu
