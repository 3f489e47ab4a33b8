// SPDX-License-Identifier: Apache-2.0
// Turns tensors into products c [M, N] = act(a b + bias) (+ c), a [M, K], b [K, N], with an optional batch dimension, and chooses
// the code for a dtype.
#include "framework/backend/cpu/gemm/gemm.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "framework/backend/cpu/elementwise/loops.h"
#include "framework/backend/cpu/gemm/eigen.h"
#include "framework/backend/cpu/kernels.h"
#include "framework/backend/workspace.h"
#include "framework/base/process_end.h"
#include "framework/math/scalar.h"

namespace halfstep::cpu {
namespace {

// One operand of a product, [batch, rows, columns], with canonical strides for dimensions of size 1.
struct GemmOperand {
  int64_t batch = 1, rows, columns, batch_stride = 0, row_stride, column_stride;

  explicit GemmOperand(const TensorView& v) {
    const int r = v.shape.size();
    rows = v.shape[r - 2];
    columns = v.shape[r - 1];
    row_stride = v.strides[r - 2];
    column_stride = v.strides[r - 1];
    if (r == 3) {
      batch = v.shape[0];
      batch_stride = v.strides[0];
    }
    if (columns == 1 && rows > 1) column_stride = row_stride == 1 ? rows : 1;
    if (rows == 1) { row_stride = column_stride == 1 ? columns : 1; }
    if (batch == 1) batch_stride = rows * columns;
  }
  bool is_by_rows() const { return column_stride == 1; }
  // Returns whether each stride is at least the product of stride and size of the dimension inside it.
  bool is_nested() const {
    std::array<std::pair<int64_t, int64_t>, 3> dims{{{batch_stride, batch}, {row_stride, rows}, {column_stride, columns}}};
    std::sort(dims.begin(), dims.end());
    int64_t within = 1;
    for (const auto& [stride, size] : dims) {
      if (size == 1) continue;
      if (stride < within) return false;
      within = stride * size;
    }
    return true;
  }
};

// Makes one product of a batch that shares b: the rows of all matrices a are its rows.
void fold_batch(GemmOperand& a, GemmOperand& b) {
  if (a.batch == 1 || b.batch_stride != 0 || !a.is_by_rows() || a.batch_stride != a.rows * a.row_stride) return;
  a.rows *= a.batch;
  a.batch = b.batch = 1;
  a.batch_stride = a.rows * a.columns;
  b.batch_stride = b.rows * b.columns;
}

// Returns the product without its bias.
GemmProblem problem_of(const GemmArgs& g, const GemmOperand& a, const GemmOperand& b) {
  GemmProblem p{.batch = a.batch, .m = a.rows, .n = b.columns, .k = a.columns, .a = g.a.data, .b = g.b.data, .c = g.c.data};
  p.a_batch = a.batch_stride, p.a_row = a.row_stride, p.a_column = a.column_stride;
  p.b_batch = b.batch_stride, p.b_row = b.row_stride, p.b_column = b.column_stride;
  p.in = g.a.dtype;
  p.out = g.c.dtype;
  p.relu = g.activation == Activation::relu;
  p.accumulate = g.accumulate;
  return p;
}

// Multiplies one element at a time: for integers, whose speed does not matter.
void gemm_integers(const GemmArgs& g, const GemmOperand& a, const GemmOperand& b) {
  parallel_for(a.batch * a.rows, 1, a.batch * a.rows * a.columns * b.columns, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t batch = i / a.rows, row = i % a.rows;
      for (int64_t j = 0; j < b.columns; ++j) {
        int64_t sum = g.bias ? load_one<int64_t>(g.bias.dtype, at(g.bias, j * g.bias.strides[0])) : 0;
        for (int64_t k = 0; k < a.columns; ++k) {
          const char* from_a = at(g.a, batch * a.batch_stride + row * a.row_stride + k * a.column_stride);
          const char* from_b = at(g.b, batch * b.batch_stride + k * b.row_stride + j * b.column_stride);
          sum = m::add(sum, m::mul(load_one<int64_t>(g.a.dtype, from_a), load_one<int64_t>(g.b.dtype, from_b)));
        }
        if (g.activation == Activation::relu && sum < 0) sum = 0;
        char* to = at(g.c, i * b.columns + j);
        if (g.accumulate) sum = m::add(sum, load_one<int64_t>(g.c.dtype, to));
        store_one<int64_t>(g.c.dtype, sum, to);
      }
    }
  });
}

// Returns c^T = b^T a^T, which uses the same memory if c is one row or one column.
GemmProblem transposed(GemmProblem p) {
  std::swap(p.m, p.n);
  std::swap(p.a, p.b);
  std::swap(p.a_batch, p.b_batch);
  const int64_t a_row = p.a_row, a_column = p.a_column;
  p.a_row = p.b_column, p.a_column = p.b_row;
  p.b_row = a_column, p.b_column = a_row;
  return p;
}
// Returns whether the transposed form of a matrix-vector product is faster. Measured with oneDNN.
bool is_faster_transposed(const GemmProblem& p) {
  if (p.in != DType::f32 && is_native(p.in)) return (p.m == 1 && p.b_row == 1 && p.b_column != 1) || (p.n == 1 && p.a_column != 1);
  return p.n == 1 && p.m > 1;
}

void gemm_doubles(const GemmArgs& g, GemmProblem p) {
  if (!g.bias) return run_gemm_eigen<double>(p, nullptr);
  std::vector<double> bias(size_t(p.n));
  if (!WorkspacePlan::open()) load<double>(g.bias.dtype, g.bias.data, g.bias.strides[0], bias.data(), p.n);
  run_gemm_eigen<double>(p, bias.data());
}

// Computes a product with k = 0: the sum over nothing is zero.
void gemm_without_terms(const GemmArgs& g) {
  if (!g.accumulate) fill(g.c, 0);
  if (!g.bias) return;
  TensorView bias = g.bias;
  bias.shape = g.c.shape;
  bias.strides = broadcast_strides(g.bias.shape, g.bias.strides, g.c.shape);
  TensorView sum = g.c;
  if (g.accumulate)
    binary(Binary::add, g.c, bias, sum);
  else if (g.activation == Activation::relu)
    unary(Unary::relu, bias, sum);
  else
    copy(bias, sum);
}

}  // namespace

AuxLayout packed_layout(int64_t k, int64_t n, DType dtype) {
  const BeforeEnd library;
  const size_t bytes = !library.allowed() || dtype == DType::f64 || k == 0 || n == 0 ? 0 : packed_bytes(k, n, dtype);
  return bytes == 0 ? AuxLayout{} : AuxLayout{{int64_t(bytes)}, DType::u8};
}

void pack(const TensorView& b, const TensorView& packed) {
  const GemmOperand x(b);
  const BeforeEnd library;
  if (WorkspacePlan::open() || !library.allowed()) return;  // no product will read the packed matrix then
  pack_matrix({.n = x.columns, .k = x.rows, .b = b.data, .b_row = x.row_stride, .b_column = x.column_stride, .in = b.dtype},
              packed.data);
}

// Measured. A piece has all columns, because the library's code for a packed matrix writes rows that lie close together. Packing
// in each call pays with many rows: the time falls to 0.7 at 16 rows, and rises to 0.97 at 512.
bool gains_by_packing(int64_t rows, int64_t k, int64_t n, DType dtype) {
  constexpr int64_t kLeast = 32, kMostRows = 512;
  if (rows < kPackedRows || rows > kMostRows || k < kLeast || n < kLeast) return false;
  const BeforeEnd library;
  if (!library.allowed()) return false;
  const bool has_code = dtype == DType::f32 || (is_half(dtype) && is_native(dtype));
  const int64_t work = product_work(1, rows, n, k, dtype != DType::f32);
  const int threads = threads_to_cut_for(work), pieces = threads_independent() ? std::min(threads, 2) : threads;
  return has_code && packed_bytes(k, n, dtype) > 0 && rows >= kPackedRows * pieces;
}

// Measured. With fewer rows per thread than kLeast, all threads should share each product. One thread always gains, except for a
// single row of float32, for which it reads the same bytes either way.
int64_t parallel_chunks(int64_t rows, int64_t multiplications, DType dtype) {
  constexpr int64_t kLeast = 8;
  const int threads = threads_to_cut_for(rows * (multiplications / 16));
  if (threads == 1) return dtype != DType::f32 || rows > 1 ? 1 : 0;
  const int64_t few = std::min<int64_t>(rows / kLeast, 2);
  const int64_t most = threads_independent() ? std::max(few, pieces_by_shape(rows, 2 * kLeast)) : rows / kLeast;
  const int64_t parts = std::min<int64_t>(threads, most);
  return parts > 1 ? parts : 0;
}

namespace {

void gemm_by_packed(const GemmArgs& g) {
  const GemmOperand a(g.a);
  const bool widens = !is_native(g.a.dtype);
  const Workspace wide(Device::cpu, widens ? sizeof(float) * size_t(a.rows * a.columns) : 0);
  GemmProblem p{.m = a.rows, .n = g.c.shape[1], .k = a.columns, .a = g.a.data, .b = g.packed.data, .c = g.c.data};
  p.bias = g.bias.as<const float>();
  p.a_row = a.row_stride, p.a_column = a.column_stride;
  p.in = g.a.dtype;
  p.accumulate = g.accumulate;
  if (widens) {
    p.a = wide.data();
    p.a_row = a.columns, p.a_column = 1;
    p.in = DType::f32;
    for (int64_t i = 0; i < a.rows && !WorkspacePlan::open(); ++i)
      load<float>(g.a.dtype, at(g.a, i * a.row_stride), a.column_stride, reinterpret_cast<float*>(wide.data()) + i * a.columns,
                  a.columns);
  }
  run_gemm_packed(p, /*shared=*/false);
}

bool is_amd() {
#if defined(__x86_64__) && defined(__GNUC__)
  return __builtin_cpu_is("amd");
#else
  return false;
#endif
}

// Measured on an AMD CPU, with oneDNN limited to AVX2 and without. Our own loops copy blocks of both operands before they
// multiply. The library's code reads some operands in place. If their rows or columns are a multiple of 4 kB apart (columns of a
// with AVX2: 2 kB), they share few sets of the first-level cache, and it takes up to twice as long as our loops. With AVX-512 that
// holds for few rows only; not measured on Intel's CPUs, whose cache has more sets.
bool gains_by_copying(const GemmProblem& p) {
  constexpr int64_t kCrowded = 4096 / sizeof(float), kLeast = 32, kLeastRows = 16, kFewRows = 32;
  if (p.in != DType::f32 || p.batch > 1 || p.m < kLeastRows || p.n < kLeast || p.k < kLeast) return false;
  const bool a_by_rows = p.a_column == 1, b_by_rows = p.b_column == 1;
  if (library_has_avx512()) return is_amd() && a_by_rows && !b_by_rows && p.b_column % kCrowded == 0 && p.m <= kFewRows;
  return (b_by_rows && p.b_row % kCrowded == 0) || (!a_by_rows && p.a_column % (kCrowded / 2) == 0);
}

// Computes a batch as one product after the other.
void run_gemm_each(const GemmProblem& p) {
  GemmProblem product = p;
  product.batch = 1;
  for (int64_t i = 0; i < p.batch; ++i) {
    product.a = static_cast<const char*>(p.a) + i * p.a_batch * int64_t(size_of(p.in));
    product.b = static_cast<const char*>(p.b) + i * p.b_batch * int64_t(size_of(p.in));
    product.c = static_cast<char*>(p.c) + i * p.m * p.n * int64_t(size_of(p.out));
    run_gemm(product);
  }
}

}  // namespace

void gemm(const GemmArgs& g) {
  if (WorkspacePlan::open()) {
    GemmArgs bare = g;
    if (g.derivative || g.activation == Activation::gelu) bare.activation = Activation::none;
    return gemm_with_bias(bare);
  }
  if (g.derivative)
    gemm_then_derivative(g);
  else if (g.activation == Activation::gelu)
    gemm_then_gelu(g);
  else
    gemm_with_bias(g);
  write_gemm_sums(g);
}

void gemm_with_bias(const GemmArgs& g) {
  if (g.c.numel() == 0) return;
  const BeforeEnd library;
  const bool packed = g.packed && library.allowed();  // b is there as well
  if (packed && !g.shared) return gemm_by_packed(g);
  GemmOperand a(g.a), b(g.b);
  if (a.columns == 0) return gemm_without_terms(g);
  if (compute_of(g.a.dtype) == Compute::integer) return gemm_integers(g, a, b);

  if (!packed && gemm_thin(g)) return;

  fold_batch(a, b);
  GemmProblem p = problem_of(g, a, b);

  const bool bias_copied = g.bias && g.a.dtype != DType::f64 && (g.bias.dtype != DType::f32 || g.bias.strides[0] != 1);
  const Workspace bias_work(Device::cpu, bias_copied ? sizeof(float) * size_t(p.n) : 0);

  if (g.a.dtype == DType::f64) return gemm_doubles(g, p);
  if (g.bias) {
    p.bias = g.bias.as<const float>();
    if (bias_copied) {
      float* bias = reinterpret_cast<float*>(bias_work.data());
      if (!WorkspacePlan::open()) load<float>(g.bias.dtype, g.bias.data, g.bias.strides[0], bias, p.n);
      p.bias = bias;
    }
  }
  if (packed) {
    p.b = g.packed.data;
    return run_gemm_packed(p, /*shared=*/true);
  }
  if (p.batch == 1 && !g.bias && is_faster_transposed(p)) p = transposed(p);
  if (!is_native(p.in) || gains_by_copying(p)) return run_gemm_blocks(p);
  // oneDNN has no fast code for a shared operand that is not folded above, and none for strides that do not nest.
  p.batch > 1 && !(a.is_nested() && b.is_nested()) ? run_gemm_each(p) : run_gemm(p);
}

}  // namespace halfstep::cpu
