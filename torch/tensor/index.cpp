// SPDX-License-Identifier: Apache-2.0
// Indexing: libtorch's indices become halfstep's.
#include "torch/tensor/index.h"

namespace torch {
namespace {

// Returns a mask of bytes as one of bools, and warns; other indices as they are.
hs::Tensor without_bytes(const hs::Tensor& index) {
  if (!index.defined() || index.dtype() != hs::DType::u8) return index;
  TORCH_WARN("indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.");
  return index.to(hs::DType::boolean);
}

std::vector<hs::TensorIndex> own_indices(ArrayRef<TensorIndex> indices) {
  std::vector<hs::TensorIndex> out;
  for (const TensorIndex& index : indices) out.push_back(index.h());
  return out;
}

}  // namespace

namespace indexing {

hs::TensorIndex TensorIndex::h() const {
  switch (kind_) {
    case Kind::none: return std::nullopt;
    case Kind::ellipsis: return hs::indexing::Ellipsis;
    case Kind::integer: return number_;
    case Kind::boolean: return number_ != 0;
    case Kind::slice: return hs::indexing::Slice(slice_.start(), slice_.stop(), slice_.step());
    case Kind::tensor: break;
  }
  const hs::Tensor index = without_bytes(tensor_.h());
  if (!index.defined()) return index;
  // A 0-dim tensor of integers is a number, which makes a view.
  const bool is_number =
      index.dim() == 0 && index.dtype() != hs::DType::boolean && !index.is_floating_point() && index.device().is_cpu();
  return is_number ? hs::TensorIndex(index.item<int64_t>()) : hs::TensorIndex(index);
}

std::ostream& operator<<(std::ostream& out, const TensorIndex& index) {
  if (index.is_none()) return out << "None";
  if (index.is_ellipsis()) return out << "...";
  if (index.is_integer()) return out << index.integer();
  if (index.is_boolean()) return out << (index.boolean() ? "true" : "false");
  if (index.is_slice()) return out << index.slice();
  return out << index.tensor();
}
std::ostream& operator<<(std::ostream& out, const std::vector<TensorIndex>& indices) {
  out << "(";
  for (size_t i = 0; i < indices.size(); ++i) out << (i ? ", " : "") << indices[i];
  return out << ")";
}

}  // namespace indexing

Tensor Tensor::index(ArrayRef<TensorIndex> indices) const {
  TORCH_CHECK_INDEX(!indices.empty(), "Passing an empty index list to Tensor::index() is not valid syntax");
  const hs::Tensor out = h_.index(own_indices(indices));
  return out.same(h_) ? h_.view(h_.shape()) : out;  // an index gives a tensor of its own
}
Tensor& Tensor::index_put_(ArrayRef<TensorIndex> indices, const Tensor& values) const {
  TORCH_CHECK_INDEX(!indices.empty(), "Passing an empty index list to Tensor::index_put_() is not valid syntax");
  h_.index_put_(own_indices(indices), values.h_);
  return self();
}
Tensor& Tensor::index_put_(ArrayRef<TensorIndex> indices, const Scalar& value) const {
  TORCH_CHECK_INDEX(!indices.empty(), "Passing an empty index list to Tensor::index_put_() is not valid syntax");
  h_.index_put_(own_indices(indices), value.n());
  return self();
}
Tensor& Tensor::index_put_(const std::vector<Tensor>& indices, const Tensor& values, bool accumulate) const {
  hs::Tensors own;
  for (const Tensor& index : indices) own.push_back(without_bytes(index.h()));
  h_.index_put_(own, values.h_, accumulate);
  return self();
}

}  // namespace torch
