// SPDX-License-Identifier: Apache-2.0
// Indices, accessors and operators of tensors.
#pragma once

#include "torch/tensor/tensor.h"

namespace torch {

namespace indexing {
class TensorIndex {
 public:
  TensorIndex(std::nullopt_t) : kind_(Kind::none) {}
  TensorIndex(EllipsisIndexType) : kind_(Kind::ellipsis) {}
  TensorIndex(const char* text) : kind_(Kind::ellipsis) {
    if (std::string(text) != "...") detail::fail("Expected \"...\" to represent an ellipsis index, but got \"", text, "\"");
  }
  template <std::integral T>
  TensorIndex(T i) : kind_(std::is_same_v<T, bool> ? Kind::boolean : Kind::integer), number_(int64_t(i)) {}
  TensorIndex(Slice s) : kind_(Kind::slice), slice_(s) {}
  TensorIndex(Tensor t) : kind_(Kind::tensor), tensor_(std::move(t)) {}
  bool is_none() const { return kind_ == Kind::none; }
  bool is_ellipsis() const { return kind_ == Kind::ellipsis; }
  bool is_integer() const { return kind_ == Kind::integer; }
  bool is_boolean() const { return kind_ == Kind::boolean; }
  bool is_slice() const { return kind_ == Kind::slice; }
  bool is_tensor() const { return kind_ == Kind::tensor; }
  int64_t integer() const { return number_; }
  bool boolean() const { return number_ != 0; }
  const Slice& slice() const { return slice_; }
  const Tensor& tensor() const { return tensor_; }
  hs::TensorIndex h() const;

 private:
  enum class Kind { none, ellipsis, integer, boolean, slice, tensor } kind_;
  int64_t number_ = 0;
  Slice slice_;
  Tensor tensor_;
};
std::ostream& operator<<(std::ostream& out, const TensorIndex& i);
std::ostream& operator<<(std::ostream& out, const std::vector<TensorIndex>& v);
}  // namespace indexing

namespace detail {
inline hs::Tensors H(TensorList list) {
  hs::Tensors out;
  for (const Tensor& t : list) out.push_back(t.h());
  return out;
}
inline std::vector<Tensor> V(const hs::Tensors& list) { return {list.begin(), list.end()}; }

template <class T, size_t n>
class Accessor {
 public:
  Accessor(T* data, const int64_t* sizes, const int64_t* strides) : data_(data), sizes_(sizes), strides_(strides) {}
  decltype(auto) operator[](int64_t i) const {
    if constexpr (n == 1)
      return (data_[i * strides_[0]]);
    else
      return Accessor<T, n - 1>(data_ + i * strides_[0], sizes_ + 1, strides_ + 1);
  }
  int64_t size(int64_t d) const { return sizes_[d]; }
  int64_t stride(int64_t d) const { return strides_[d]; }
  IntArrayRef sizes() const { return {sizes_, n}; }
  T* data() const { return data_; }

 private:
  T* data_;
  const int64_t *sizes_, *strides_;
};
}  // namespace detail
template <class T, size_t n>
using TensorAccessor = detail::Accessor<T, n>;

template <class T, size_t n>
detail::Accessor<T, n> Tensor::accessor() const {
  if (size_t(dim()) != n) detail::fail("TensorAccessor expected ", n, " dims but tensor has ", dim());
  return {data_ptr<T>(), sizes().data(), strides().data()};
}
inline Tensor Tensor::index(std::initializer_list<TensorIndex> i) const { return index(ArrayRef<TensorIndex>(i)); }
inline Tensor& Tensor::index_put_(std::initializer_list<TensorIndex> i, const Tensor& v) const {
  return index_put_(ArrayRef<TensorIndex>(i), v);
}
inline Tensor& Tensor::index_put_(std::initializer_list<TensorIndex> i, const Scalar& v) const {
  return index_put_(ArrayRef<TensorIndex>(i), v);
}

// ---- operators
#define HS_TORCH_OP(op, name)                                                       \
  inline Tensor operator op(const Tensor& a, const Tensor& b) { return a.name(b); } \
  inline Tensor operator op(const Tensor& a, Scalar b) { return a.name(b); }
HS_TORCH_OP(+, add)
HS_TORCH_OP(-, sub) HS_TORCH_OP(*, mul) HS_TORCH_OP(/, div) HS_TORCH_OP(%, remainder) HS_TORCH_OP(==, eq) HS_TORCH_OP(!=, ne)
    HS_TORCH_OP(<, lt) HS_TORCH_OP(<=, le) HS_TORCH_OP(>, gt) HS_TORCH_OP(>=, ge)
#undef HS_TORCH_OP
        inline Tensor
        operator+(Scalar a, const Tensor& b) {
  return b.add(a);
}
inline Tensor operator*(Scalar a, const Tensor& b) { return b.mul(a); }
inline Tensor operator-(Scalar a, const Tensor& b) { return b.neg().add(a); }
inline Tensor operator/(Scalar a, const Tensor& b) { return b.reciprocal().mul(a); }
inline Tensor operator&(const Tensor& a, const Tensor& b) { return a.bitwise_and(b); }
inline Tensor operator|(const Tensor& a, const Tensor& b) { return a.bitwise_or(b); }
inline Tensor operator^(const Tensor& a, const Tensor& b) { return a.bitwise_xor(b); }

std::ostream& operator<<(std::ostream& out, const Tensor& t);

}  // namespace torch
