// SPDX-License-Identifier: Apache-2.0
// LAPACK stores matrices column by column, so a row-major matrix is its transpose there. Some functions need no copy: the inverse
// of a transposed matrix is the transposed inverse. The others transpose before and after.
#include "framework/ops/linalg/lapack.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "framework/base/log.h"
#include "framework/ops/ops.h"

// The last arguments are the lengths of the texts, which Fortran passes after all others.
#define HS_LAPACK(P, T)                                                                                                         \
  void P##gesdd_(const char*, const int*, const int*, T*, const int*, T*, T*, const int*, T*, const int*, T*, const int*, int*, \
                 int*, size_t);                                                                                                 \
  void P##syevd_(const char*, const char*, const int*, T*, const int*, T*, T*, const int*, int*, const int*, int*, size_t,      \
                 size_t);                                                                                                       \
  void P##geqrf_(const int*, const int*, T*, const int*, T*, T*, const int*, int*);                                             \
  void P##orgqr_(const int*, const int*, const int*, T*, const int*, const T*, T*, const int*, int*);                           \
  void P##potrf_(const char*, const int*, T*, const int*, int*, size_t);                                                        \
  void P##gesv_(const int*, const int*, T*, const int*, int*, T*, const int*, int*);                                            \
  void P##trtrs_(const char*, const char*, const char*, const int*, const int*, const T*, const int*, T*, const int*, int*,     \
                 size_t, size_t, size_t);                                                                                       \
  void P##getrf_(const int*, const int*, T*, const int*, int*, int*);                                                           \
  void P##getri_(const int*, T*, const int*, const int*, T*, const int*, int*);
extern "C" {
HS_LAPACK(s, float)
HS_LAPACK(d, double)
}

namespace halfstep::lapack {
namespace {

// LAPACK's functions, whose names lack the first letter here.
template <class T>
struct Routines;
#define HS_ROUTINES(P, T)                    \
  template <>                                \
  struct Routines<T> {                       \
    static constexpr auto gesdd = P##gesdd_; \
    static constexpr auto syevd = P##syevd_; \
    static constexpr auto geqrf = P##geqrf_; \
    static constexpr auto orgqr = P##orgqr_; \
    static constexpr auto potrf = P##potrf_; \
    static constexpr auto gesv = P##gesv_;   \
    static constexpr auto trtrs = P##trtrs_; \
    static constexpr auto getrf = P##getrf_; \
    static constexpr auto getri = P##getri_; \
  };
HS_ROUTINES(s, float)
HS_ROUTINES(d, double)

// Calls f with a float or a double, by the dtype.
template <class F>
void with_type(const Tensor& x, F f) {
  if (x.dtype() == DType::f64)
    f(double());
  else
    f(float());
}

// Returns x on the host, row by row, for LAPACK.
Tensor on_host(const Tensor& x) {
  if (x.device().is_cuda()) logging::warn_once("matrix factorisations (torch.linalg) of GPU tensors are computed on the host");
  return x.detach().to(Device::cpu).contiguous();
}
// Return a copy, column by column or row by row, which LAPACK may overwrite.
Tensor copy_of_columns(const Tensor& x) { return on_host(x.detach().transpose(-1, -2)).clone(MemoryFormat::contiguous); }
Tensor copy_of_rows(const Tensor& x) { return on_host(x).clone(MemoryFormat::contiguous); }
// Returns a matrix that is stored column by column row by row, on the device of `like`.
Tensor to_rows(const Tensor& columns, const Tensor& like) {
  const Tensor rows = columns.transpose(-1, -2), out = Tensor::empty(rows.shape(), {.dtype = rows.dtype(), .device = Device::cpu});
  out.copy_(rows);
  return out.to(like.device());
}

// Returns x's shape with other sizes for its matrices.
Shape with_matrix(const Tensor& x, const std::vector<int64_t>& sizes) {
  Shape shape = x.shape();
  shape.erase(x.dim() - 1);
  shape.erase(x.dim() - 2);
  for (const int64_t n : sizes) shape.push_back(n);
  return shape;
}
int64_t batch_of(const Tensor& x) { return numel(with_matrix(x, {})); }
// Return an uninitialised tensor of x's dtype, on the host or on x's device.
Tensor host_like(const Tensor& x, const Shape& shape) { return Tensor::empty(shape, {.dtype = x.dtype(), .device = Device::cpu}); }
Tensor like(const Tensor& x, const Shape& shape) { return Tensor::empty(shape, {.dtype = x.dtype(), .device = x.device()}); }

// Returns n as LAPACK's integer.
int size_of_matrix(int64_t n) {
  check<ShapeError>(n <= INT_MAX, "linalg", "LAPACK takes matrices of at most ", INT_MAX, " rows, got ", n);
  return int(n);
}

// Calls f(workspace, its size) twice: with size -1, which stores the required size in the workspace's first element, and with that
// size.
template <class T, class F>
void with_workspace(F f) {
  T wanted = 0;
  f(&wanted, -1);
  std::vector<T> work(size_t(wanted * T(1.001)) + 1);  // a float may have rounded the size down
  f(work.data(), int(work.size()));
}

// The part of a matrix that is read.
enum class Triangle : uint8_t { all, lower, upper };

// Returns where matrix i of x has a value that is not finite. LAPACK must not get such a matrix: it may not return, or may use a
// row outside the matrix as a pivot.
std::optional<std::pair<int64_t, int64_t>> not_finite(const Tensor& x, int64_t i, Triangle part = Triangle::all) {
  std::optional<std::pair<int64_t, int64_t>> found;
  with_type(x, [&]<class T>(T) {
    const int64_t m = x.size(-2), n = x.size(-1);
    const T* at = x.const_data_ptr<T>() + i * m * n;
    for (int64_t row = 0; row < m && !found; ++row, at += n) {
      const int64_t first = part == Triangle::upper ? std::min(row, n) : 0,
                    end = part == Triangle::lower ? std::min(row + 1, n) : n;
      for (int64_t column = first; column < end && !found; ++column)
        if (!std::isfinite(at[column])) found = {row, column};
    }
  });
  return found;
}
// Throws ValueError for the first value of a batch that is not finite.
void check_finite(std::string_view op, const Tensor& x, Triangle part = Triangle::all) {
  for (int64_t i = 0; i < batch_of(x); ++i) {
    const auto at = not_finite(x, i, part);
    check<ValueError>(!at, op, "needs values that are finite, but matrix ", i, " of the batch has none at [", at ? at->first : 0,
                      ", ", at ? at->second : 0, "]",
                      Help{"look for what made it, for example with isfinite(x), or replace such values by nan_to_num"});
  }
}
// Fills matrix i of x, whose matrices have `size` elements, with NaN.
void fill_nan(const Tensor& x, int64_t i, int64_t size) {
  with_type(x, [&]<class T>(T) { std::fill_n(x.data_ptr<T>() + i * size, size, std::numeric_limits<T>::quiet_NaN()); });
}

// geqrf's results on the host: R and, below it, the reflectors' vectors.
struct Reflectors {
  explicit Reflectors(const Tensor& x)
      : columns(copy_of_columns(x)), tau(host_like(x, with_matrix(x, {std::min(x.size(-2), x.size(-1))}))) {
    const int m = size_of_matrix(x.size(-2)), n = size_of_matrix(x.size(-1));
    if (tau.numel() == 0) return;
    with_type(x, [&]<class T>(T) {
      for (int64_t i = 0; i < batch_of(x); ++i) {
        T *const matrix = columns.data_ptr<T>() + i * m * n, *const factors = tau.data_ptr<T>() + i * std::min(m, n);
        if (not_finite(columns, i)) {
          fill_nan(columns, i, int64_t(m) * n);
          fill_nan(tau, i, std::min(m, n));
          continue;
        }
        int info = 0;
        with_workspace<T>([&](T* work, int size) { Routines<T>::geqrf(&m, &n, matrix, &m, factors, work, &size, &info); });
      }
    });
  }
  Tensor columns, tau;  // [..., N, M], [..., min(M, N)]
};

}  // namespace

Tensors svd(std::string_view op, const Tensor& x, bool full) {
  const int m = size_of_matrix(x.size(-2)), n = size_of_matrix(x.size(-1)), k = std::min(m, n);
  const Shape u_shape = with_matrix(x, {m, full ? m : k}), s_shape = with_matrix(x, {k}),
              vh_shape = with_matrix(x, {full ? n : k, n});
  if (x.device().is_meta()) return {like(x, u_shape), like(x, s_shape), like(x, vh_shape)};
  const Tensor a = copy_of_rows(x), u = host_like(x, u_shape), s = host_like(x, s_shape), vh = host_like(x, vh_shape);
  if (k == 0) {  // nothing to decompose: the full factors are identities
    for (const Tensor& t : {u, vh}) {
      if (t.size(-1) == t.size(-2)) t.copy_(eye(t.size(-1), {.dtype = x.dtype()}).expand(t.shape()));
    }
    return {u.to(x.device()), s.to(x.device()), vh.to(x.device())};
  }
  check_finite(op, a);
  with_type(x, [&]<class T>(T) {
    const int u_columns = full ? m : k, vh_rows = full ? n : k;
    const char job = full ? 'A' : 'S';
    std::vector<int> integers(size_t(8) * k);  // workspace of gesdd
    const auto call = [&](int64_t i, T* work, int size) {
      // The transposed matrix n x m, whose left factor's columns are Vh's rows.
      int info = 0;
      Routines<T>::gesdd(&job, &n, &m, a.data_ptr<T>() + i * m * n, &n, s.data_ptr<T>() + i * k, vh.data_ptr<T>() + i * n * vh_rows,
                         &n, u.data_ptr<T>() + i * m * u_columns, &u_columns, work, &size, integers.data(), &info, 1);
      check<ValueError>(info == 0, op, "the singular values of matrix ", i, " of the batch were not found",
                        Help{"look for NaN and infinities in the input"});
    };
    with_workspace<T>([&](T* work, int size) {
      for (int64_t i = 0; i < (size < 0 ? std::min<int64_t>(1, batch_of(x)) : batch_of(x)); ++i) call(i, work, size);
    });
  });
  return {u.to(x.device()), s.to(x.device()), vh.to(x.device())};
}

Tensors eigh(std::string_view op, const Tensor& x, bool lower) {
  const int n = size_of_matrix(x.size(-1));
  if (x.device().is_meta()) return {like(x, with_matrix(x, {n})), like(x, x.shape())};
  const Tensor a = copy_of_rows(x), w = host_like(x, with_matrix(x, {n}));
  if (n == 0) return {w.to(x.device()), a.to(x.device())};
  check_finite(op, a, lower ? Triangle::lower : Triangle::upper);
  with_type(x, [&]<class T>(T) {
    const char job = 'V', part = lower ? 'U' : 'L';  // of the transposed matrix
    std::vector<int> integers(size_t(3) + 5 * size_t(n));  // workspace of syevd
    const int integer_count = int(integers.size());
    with_workspace<T>([&](T* work, int size) {
      for (int64_t i = 0; i < (size < 0 ? std::min<int64_t>(1, batch_of(x)) : batch_of(x)); ++i) {
        int info = 0;
        Routines<T>::syevd(&job, &part, &n, a.data_ptr<T>() + i * n * n, &n, w.data_ptr<T>() + i * n, work, &size, integers.data(),
                           &integer_count, &info, 1, 1);
        check<ValueError>(info == 0, op, "the eigenvalues of matrix ", i, " of the batch were not found",
                          Help{"look for NaN and infinities in the input"});
      }
    });
  });
  return {w.to(x.device()), to_rows(a, x)};
}

Tensors geqrf(const Tensor& x) {
  const int m = size_of_matrix(x.size(-2)), n = size_of_matrix(x.size(-1)), k = std::min(m, n);
  if (x.device().is_meta()) return {like(x, x.shape()), like(x, with_matrix(x, {k}))};
  const Reflectors made(x);
  return {to_rows(made.columns, x), made.tau.to(x.device())};
}

Tensors qr(const Tensor& x, bool complete) {
  const int m = size_of_matrix(x.size(-2)), n = size_of_matrix(x.size(-1)), reflectors = std::min(m, n),
            k = complete ? m : reflectors;
  if (x.device().is_meta()) return {like(x, with_matrix(x, {m, k})), like(x, with_matrix(x, {k, n}))};
  const Reflectors made(x);
  const Tensor q = host_like(x, with_matrix(x, {k, m})), r = host_like(x, with_matrix(x, {k, n}));  // q by columns
  r.fill_(0);
  with_type(x, [&]<class T>(T) {
    for (int64_t i = 0; i < batch_of(x); ++i) {
      const T *const from = made.columns.data_ptr<T>() + i * m * n, *const tau = made.tau.data_ptr<T>() + i * reflectors;
      T *const to = q.data_ptr<T>() + i * m * k, *const upper = r.data_ptr<T>() + i * k * n;
      for (int row = 0; row < std::min(k, n); ++row)
        for (int column = row; column < n; ++column) upper[int64_t(row) * n + column] = from[int64_t(column) * m + row];
      if (not_finite(made.columns, i)) {
        fill_nan(q, i, int64_t(m) * k);
        continue;
      }
      std::fill_n(to, int64_t(m) * k, T(0));
      std::copy_n(from, int64_t(m) * std::min(k, n), to);
      int info = 0;
      if (k > 0 && m > 0)
        with_workspace<T>([&](T* work, int size) { Routines<T>::orgqr(&m, &k, &reflectors, to, &m, tau, work, &size, &info); });
    }
  });
  return {to_rows(q, x), r.to(x.device())};
}

Tensor cholesky(std::string_view op, const Tensor& x, bool upper) {
  const int n = size_of_matrix(x.size(-1));
  if (x.device().is_meta() || x.numel() == 0) return like(x, x.shape());
  const Tensor a = copy_of_rows(x);
  check_finite(op, a, upper ? Triangle::upper : Triangle::lower);
  with_type(x, [&]<class T>(T) {
    const char part = upper ? 'L' : 'U';  // of the transposed matrix
    for (int64_t i = 0; i < batch_of(x); ++i) {
      int info = 0;
      Routines<T>::potrf(&part, &n, a.data_ptr<T>() + i * n * n, &n, &info, 1);
      check<ValueError>(info == 0, op, "matrix ", i, " of the batch is not positive definite: its leading part of ", info,
                        " row(s) is not");
    }
  });
  return (upper ? triu(a) : tril(a)).to(x.device());
}

Tensor solve(std::string_view op, const Tensor& a, const Tensor& b) {
  const int n = size_of_matrix(a.size(-1)), count = size_of_matrix(b.size(-1));
  if (b.device().is_meta() || b.numel() == 0) return like(b, b.shape());
  const Tensor factors = copy_of_columns(a), x = copy_of_columns(b);
  with_type(a, [&]<class T>(T) {
    std::vector<int> pivots(size_t(n), 0);
    for (int64_t i = 0; i < batch_of(a); ++i) {
      int info = 0;
      if (not_finite(factors, i)) {
        fill_nan(x, i, int64_t(n) * count);
        continue;
      }
      Routines<T>::gesv(&n, &count, factors.data_ptr<T>() + i * n * n, &n, pivots.data(), x.data_ptr<T>() + i * n * count, &n,
                        &info);
      check<ValueError>(info == 0, op, "matrix ", i, " of the batch is singular");
    }
  });
  return to_rows(x, b);
}

Tensor solve_triangular(const Tensor& a, const Tensor& b, bool upper, bool unit) {
  const int n = size_of_matrix(a.size(-1)), count = size_of_matrix(b.size(-1));
  if (b.device().is_meta() || b.numel() == 0) return like(b, b.shape());
  const Tensor factors = on_host(a), x = copy_of_columns(b);  // factors are seen transposed
  with_type(a, [&]<class T>(T) {
    const char part = upper ? 'L' : 'U', transposed = 'T', diagonal = unit ? 'U' : 'N';
    for (int64_t i = 0; i < batch_of(a); ++i) {
      int info = 0;
      T* const out = x.data_ptr<T>() + i * n * count;
      Routines<T>::trtrs(&part, &transposed, &diagonal, &n, &count, factors.data_ptr<T>() + i * n * n, &n, out, &n, &info, 1, 1, 1);
      if (info > 0) std::fill_n(out, int64_t(n) * count, std::numeric_limits<T>::infinity());
    }
  });
  return to_rows(x, b);
}

Tensor inverse(std::string_view op, const Tensor& x) {
  const int n = size_of_matrix(x.size(-1));
  if (x.device().is_meta() || x.numel() == 0) return like(x, x.shape());
  const Tensor a = copy_of_rows(x);
  with_type(x, [&]<class T>(T) {
    std::vector<int> pivots(size_t(n), 0);
    with_workspace<T>([&](T* work, int size) {
      for (int64_t i = 0; i < (size < 0 ? 1 : batch_of(x)); ++i) {
        int info = 0;
        T* const matrix = a.data_ptr<T>() + i * n * n;
        if (size >= 0 && not_finite(a, i)) {
          fill_nan(a, i, int64_t(n) * n);
          continue;
        }
        if (size >= 0) Routines<T>::getrf(&n, &n, matrix, &n, pivots.data(), &info);
        if (info == 0) Routines<T>::getri(&n, matrix, &n, pivots.data(), work, &size, &info);
        check<ValueError>(info == 0, op, "matrix ", i, " of the batch is singular");
      }
    });
  });
  return a.to(x.device());
}

Tensors determinant(const Tensor& x) {
  const int n = size_of_matrix(x.size(-1));
  const Shape shape = with_matrix(x, {});
  if (x.device().is_meta()) return {like(x, shape), like(x, shape), like(x, shape)};
  const Tensor a = copy_of_rows(x), det = host_like(x, shape), sign = host_like(x, shape), log_abs = host_like(x, shape);
  with_type(x, [&]<class T>(T) {
    std::vector<int> pivots(size_t(n), 0);
    for (int64_t i = 0; i < batch_of(x); ++i) {
      int info = 0;
      T* const matrix = a.data_ptr<T>() + i * n * n;
      if (not_finite(a, i)) {
        for (const Tensor& t : {det, sign, log_abs}) fill_nan(t, i, 1);
        continue;
      }
      if (n > 0) Routines<T>::getrf(&n, &n, matrix, &n, pivots.data(), &info);
      T product = 1, direction = 1, sum = 0;
      for (int k = 0; k < n; ++k) {
        const T pivot = matrix[int64_t(k) * n + k], turned = pivots[size_t(k)] == k + 1 ? T(1) : T(-1);
        product *= turned * pivot;
        direction *= pivot == 0 ? T(0) : turned * std::copysign(T(1), pivot);
        sum += std::log(std::abs(pivot));
      }
      det.data_ptr<T>()[i] = product;
      sign.data_ptr<T>()[i] = direction;
      log_abs.data_ptr<T>()[i] = sum;
    }
  });
  return {det.to(x.device()), sign.to(x.device()), log_abs.to(x.device())};
}

}  // namespace halfstep::lapack
