// SPDX-License-Identifier: Apache-2.0
// Replaces lapack.cpp if LAPACK was not found when halfstep was built.
#include "framework/base/check.h"
#include "framework/ops/linalg/lapack.h"

namespace halfstep::lapack {
namespace {

[[noreturn]] void missing(std::string_view op) {
  fail<DeviceError>(op, "this halfstep was built without LAPACK", Help{"install liblapack-dev, and build again"});
}

}  // namespace

Tensors svd(std::string_view op, const Tensor&, bool) { missing(op); }
Tensors eigh(std::string_view op, const Tensor&, bool) { missing(op); }
Tensors geqrf(const Tensor&) { missing("geqrf"); }
Tensors qr(const Tensor&, bool) { missing("linalg_qr"); }
Tensor cholesky(std::string_view op, const Tensor&, bool) { missing(op); }
Tensor solve(std::string_view op, const Tensor&, const Tensor&) { missing(op); }
Tensor solve_triangular(const Tensor&, const Tensor&, bool, bool) { missing("linalg_solve_triangular"); }
Tensor inverse(std::string_view op, const Tensor&) { missing(op); }
Tensors determinant(const Tensor&) { missing("det"); }

}  // namespace halfstep::lapack
