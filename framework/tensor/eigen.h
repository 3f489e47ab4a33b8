// SPDX-License-Identifier: Apache-2.0
// Converts between tensors and Eigen's matrices. Not part of halfstep.h, because it includes Eigen.
#pragma once

#include <Eigen/Core>

#include "framework/tensor/tensor.h"

namespace halfstep {

template <class T>
using RowMatrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T>
using MatrixView = Eigen::Map<RowMatrix<T>, Eigen::Unaligned, Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>>;

// Returns the memory of a CPU matrix [N, M], or of a vector [N] as N x 1, without a copy and with any strides; T must be its
// dtype. x must outlive the result. Autograd does not notice writes; autocast does (Tensor::data_ptr). Throws ShapeError,
// DTypeError and DeviceError.
template <class T>
MatrixView<T> as_eigen(const Tensor& x) {
  check<ShapeError>(x.dim() == 1 || x.dim() == 2, "as_eigen", "needs a vector or a matrix, got ", x.shape());
  check<DeviceError>(x.device().is_cpu(), "as_eigen", "needs a tensor of the CPU, got one of ", x.device());
  const bool matrix = x.dim() == 2;
  return MatrixView<T>(x.data_ptr<T>(), x.size(0), matrix ? x.size(1) : 1,
                       Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>(x.strides()[0], matrix ? x.strides()[1] : 1));
}

// Copies a matrix or an expression that Eigen can evaluate to one: [rows, cols], or [size] for a vector type.
template <class Derived>
Tensor from_eigen(const Eigen::MatrixBase<Derived>& m) {
  using T = typename Derived::Scalar;
  const bool vector = Derived::IsVectorAtCompileTime;
  const Tensor out =
      Tensor::empty(vector ? Shape{m.size()} : Shape{m.rows(), m.cols()}, {.dtype = dtype_of<T>, .device = Device::cpu});
  if (m.size() > 0) Eigen::Map<RowMatrix<T>>(static_cast<T*>(out.view().data), m.rows(), m.cols()) = m;
  return out;
}

}  // namespace halfstep
