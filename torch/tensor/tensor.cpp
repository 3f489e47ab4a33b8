// SPDX-License-Identifier: Apache-2.0
// The parts of libtorch's tensor that are more than a call of one op: conversions, memory, and factories with libtorch's default
// dtypes.
#include "torch/tensor/network.h"

namespace torch {
namespace {

bool is_channels_last(std::optional<MemoryFormat> format) {
  return format == MemoryFormat::ChannelsLast || format == MemoryFormat::ChannelsLast3d;
}

}  // namespace

Tensor Tensor::to(const TensorOptions& options, bool, bool copy, std::optional<MemoryFormat> format) const {
  TORCH_CHECK(!options.requires_grad(), "to(options) expects unset requires_grad flag, but got options.requires_grad set as true");
  TORCH_CHECK(!options.pinned_memory(), "to(options) expects unset pinned_memory flag, but got options.pinned_memory set as true");
  Tensor out = *this;
  if (options.has_device()) out = out.h_.to(options.device().h());
  if (options.has_dtype()) out = out.h_.to(detail::to_hs(options.dtype().toScalarType()));
  const std::optional<MemoryFormat> wanted = format ? format : options.memory_format_opt();
  if (wanted && *wanted != MemoryFormat::Preserve) out = out.contiguous(*wanted);
  return copy && out.is_same(*this) ? out.clone() : out;
}

Tensor Tensor::clone(std::optional<MemoryFormat> format) const {
  if (is_channels_last(format)) return h_.clone(hs::MemoryFormat::channels_last);
  if (format == MemoryFormat::Contiguous) return h_.clone(hs::MemoryFormat::contiguous);
  return h_.clone();
}

Tensor Tensor::contiguous(MemoryFormat format) const {
  TORCH_CHECK(format != MemoryFormat::Preserve, "preserve memory format is unsupported by the contiguous operator");
  return is_channels_last(format) ? h_.contiguous(hs::MemoryFormat::channels_last) : h_.contiguous();
}

// Keeps the leading elements. Takes new memory to grow, and for a view that is not contiguous.
Tensor& Tensor::resize_(IntArrayRef sizes) const {
  TORCH_CHECK(!requires_grad(), "cannot resize variables that require grad");
  hs::TensorImpl& own = *h_.impl();
  const int64_t elements = hs::numel(detail::D(sizes));
  if (elements > h_.numel() || !h_.is_contiguous()) {
    const hs::Tensor next = hs::Tensor::empty(detail::D(sizes), {.dtype = h_.dtype(), .device = h_.device()});
    const int64_t kept = std::min(elements, h_.numel());
    if (kept > 0) next.reshape({-1}).slice(0, 0, kept).copy_(h_.detach().contiguous().reshape({-1}).slice(0, 0, kept));
    own.storage = next.storage();
    own.offset = 0;
  }
  own.shape = detail::D(sizes);
  own.strides = hs::contiguous_strides(own.shape);
  return self();
}

void detail::zero_grad(const Tensor& parameter, bool set_to_none) {
  const Tensor g = parameter.grad();
  if (!g.defined()) return;
  if (set_to_none) {
    parameter.mutable_grad().reset();
    return;
  }
  const Tensor plain = g.detach();
  plain.zero_();
  parameter.mutable_grad() = plain;
}

Tensor scalar_tensor(Scalar value, const TensorOptions& options) {
  return full({}, value, options.has_dtype() ? options : options.dtype(get_default_dtype()));
}

Tensor full(IntArrayRef sizes, Scalar value, const TensorOptions& options) {
  hs::NumberOptions own = detail::number_options(options);
  if (!own.dtype && value.isFloatingPoint()) own.dtype = detail::to_hs(detail::default_dtype());
  return hs::full(detail::D(sizes), value.n(), own);
}

Tensor randint(int64_t low, int64_t high, IntArrayRef sizes, const TensorOptions& options) {
  const hs::Tensor drawn = hs::randint(low, high, detail::D(sizes), {.device = options.device().h()});
  const Tensor out = drawn.to(options.has_dtype() ? detail::to_hs(options.dtype().toScalarType()) : hs::DType::i64);
  return options.requires_grad() ? out.requires_grad_() : out;
}

Tensor randperm(int64_t count, const TensorOptions& options) {
  const Tensor drawn = Tensor(hs::randperm(count)).to(TensorOptions().device(options.device_opt()));
  return options.has_dtype() ? drawn.to(options.dtype().toScalarType()) : drawn;
}

Tensor arange(Scalar from, Scalar to, Scalar step, const TensorOptions& options) {
  hs::NumberOptions own = detail::number_options(options);
  const bool whole = from.isIntegral(false) && to.isIntegral(false) && step.isIntegral(false);
  if (!own.dtype) own.dtype = whole ? hs::DType::i64 : detail::to_hs(detail::default_dtype());
  return hs::arange(from.n(), to.n(), step.n(), own);
}

namespace utils {

Tensor flatten_dense_tensors(TensorList tensors) {
  std::vector<Tensor> flat;
  for (const Tensor& t : tensors) flat.push_back(t.contiguous().view(-1));
  return torch::cat(flat);
}

// Cuts a flat tensor into views with the shapes of others. An empty one gets memory of its own, so that it can be resized.
std::vector<Tensor> unflatten_dense_tensors(const Tensor& flat, TensorList shapes) {
  std::vector<Tensor> out;
  int64_t first = 0;
  for (const Tensor& t : shapes) {
    const int64_t elements = t.numel();
    out.push_back(elements == 0 ? torch::empty(t.sizes(), flat.options()) : flat.narrow(0, first, elements).view(t.sizes()));
    first += elements;
  }
  return out;
}

}  // namespace utils

Tensor normal(const Tensor& mean, const Tensor& stddev) {
  const hs::NoGrad off;
  return normal(0, 1, (mean + stddev).sizes(), mean.options()).mul_(stddev).add_(mean);
}
Tensor normal(const Tensor& mean, double stddev) {
  const hs::NoGrad off;
  return normal(0, stddev, mean.sizes(), mean.options()).add_(mean);
}
Tensor normal(double mean, const Tensor& stddev) {
  const hs::NoGrad off;
  return normal(0, 1, stddev.sizes(), stddev.options()).mul_(stddev).add_(mean);
}

Tensor cartesian_prod(TensorList xs) {
  for (const Tensor& x : xs) TORCH_CHECK(x.dim() == 1, "Expect a 1D vector, but got shape ", x.sizes());
  if (xs.size() == 1) return xs[0];
  std::vector<Tensor> columns;
  for (const Tensor& x : meshgrid(xs)) columns.push_back(x.flatten());
  return stack(columns, 1);
}
Tensor combinations(const Tensor& x, int64_t r, bool with_replacement) {
  TORCH_CHECK(x.dim() == 1, "Expect a 1D vector, but got shape ", x.sizes());
  TORCH_CHECK(r >= 0, "Expect a non-negative number, but got ", r);
  if (r == 0) return empty({0}, x.options());
  std::vector<std::vector<int64_t>> rows{{}};
  for (int64_t k = 0; k < r; ++k) {
    std::vector<std::vector<int64_t>> longer;
    for (const auto& row : rows) {
      for (int64_t i = row.empty() ? 0 : row.back() + (with_replacement ? 0 : 1); i < x.numel(); ++i) {
        longer.push_back(row);
        longer.back().push_back(i);
      }
    }
    rows = std::move(longer);
  }
  std::vector<int64_t> all;
  for (const auto& row : rows) all.insert(all.end(), row.begin(), row.end());
  const Tensor order = hs::from_vector(all, {int64_t(all.size())}, x.h().device());
  return x.index_select(0, order).view({int64_t(rows.size()), r});
}

}  // namespace torch
