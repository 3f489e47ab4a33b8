// SPDX-License-Identifier: Apache-2.0
#include "framework/backend/cpu/gemm/eigen.h"

#define EIGEN_DONT_PARALLELIZE  // Eigen's split depends on the number of threads; rows are split below
#include <Eigen/Core>
#include <algorithm>

#include "framework/backend/cpu/parallel.h"

namespace halfstep::cpu {
namespace {

template <class T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T>
using RowMajorMap = Eigen::Map<const Matrix<T>, 0, Eigen::OuterStride<>>;
template <class T>
using ColumnMajorMap = Eigen::Map<const Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::ColMajor>, 0, Eigen::OuterStride<>>;

constexpr int64_t kTaskRows = 64;  // rows of a product that one task computes

// Calls f with a map of rows x columns at x, row- or column-major by the strides.
template <class T, class F>
void with_map(const T* x, int64_t rows, int64_t columns, int64_t row, int64_t column, const F& f) {
  if (column == 1)
    f(RowMajorMap<T>(x, rows, columns, Eigen::OuterStride<>(row)));
  else
    f(ColumnMajorMap<T>(x, rows, columns, Eigen::OuterStride<>(column)));
}

}  // namespace

template <class T>
void run_gemm_eigen(const GemmProblem& p, const T* bias) {
  const int64_t strips = (p.m + kTaskRows - 1) / kTaskRows;
  parallel_tasks(p.batch * strips, product_work(p.batch, p.m, p.n, p.k, false), [&](int64_t task) {
    const int64_t batch = task / strips, first_row = task % strips * kTaskRows, rows = std::min(kTaskRows, p.m - first_row);
    const T* a = static_cast<const T*>(p.a) + batch * p.a_batch + first_row * p.a_row;
    const T* b = static_cast<const T*>(p.b) + batch * p.b_batch;
    T* c = static_cast<T*>(p.c) + (batch * p.m + first_row) * p.n;
    Eigen::Map<Matrix<T>> out(c, rows, p.n);
    with_map(a, rows, p.k, p.a_row, p.a_column, [&](const auto& left) {
      with_map(b, p.k, p.n, p.b_row, p.b_column, [&](const auto& right) {
        if (p.accumulate)
          out.noalias() += left * right;
        else
          out.noalias() = left * right;
      });
    });
    for (int64_t i = 0; i < rows * p.n && (bias || p.relu); ++i) {
      const T sum = c[i] + (bias ? bias[i % p.n] : T(0));
      c[i] = p.relu && sum <= 0 ? T(0) : sum;
    }
  });
}

template void run_gemm_eigen<float>(const GemmProblem&, const float*);
template void run_gemm_eigen<double>(const GemmProblem&, const double*);

// Number of rows up to which packing blocks does not pay.
constexpr int64_t kFewRows = 4;
void run_gemm_alone(const GemmProblem& p) {
  p.m < kFewRows || p.n < kFewRows ? run_gemm_eigen<float>(p, p.bias) : run_gemm_blocks(p);
}

#ifndef HALFSTEP_WITH_DNNL
void run_gemm(const GemmProblem& p) { run_gemm_alone(p); }
bool is_native(DType t) { return t == DType::f32; }
bool has_bf16_code() { return false; }
bool library_has_avx512() { return false; }
std::string product_support(DType t) {
  return t == DType::bf16 && own_bf16_code() ? "native (BFMMLA)" : "widened to float32";
}
std::string product_library() { return "without oneDNN, which would be faster (libdnnl-dev, then a new build)"; }
size_t packed_bytes(int64_t, int64_t, DType) { return 0; }  // so no caller packs
void pack_matrix(const GemmProblem&, void*) {}
void run_gemm_packed(const GemmProblem&, bool) {}
#endif

}  // namespace halfstep::cpu
