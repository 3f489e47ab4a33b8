// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/linalg/library_attention.h"

#include <algorithm>

#include "framework/backend/backend.h"
#include "framework/backend/dnn.h"
#include "framework/base/check.h"

namespace halfstep {
namespace {

AttentionLibrary* library_of(const Tensor& q) {
  return is_half(q.dtype()) ? dynamic_cast<AttentionLibrary*>(&backend_for(q.device())) : nullptr;
}

// Makes a tensor with these dense strides.
Tensor tensor_with(const Shape& shape, const Strides& strides, DType dtype, Device device) {
  return Tensor::empty({numel(shape)}, {.dtype = dtype, .device = device}).alias(shape, strides);
}

AttentionArgs args_of(const LibraryAttention& attention) {
  return {.q = attention.q.view(),
          .k = attention.k.view(),
          .v = attention.v.view(),
          .scale = attention.scale,
          .causal = attention.causal,
          .dropout_p = attention.dropout_p};
}

}  // namespace

LibraryOutput library_attention(const LibraryAttention& attention, Generator::State state, bool differentiable) {
  AttentionLibrary* const library = library_of(attention.q);
  if (!library || attention.v.shape() != attention.k.shape()) return {};
  const Tensor out = tensor_with(attention.q.shape(), layout_of(args_of(attention)).out, attention.q.dtype(), attention.q.device());
  const Tensor stats =
      Tensor::empty({attention.q.size(0), attention.q.size(1), attention.q.size(2)}, {.device = attention.q.device()});
  if (!library->attention(args_of(attention), state, out.view(), stats.view(), differentiable)) return {};
  return {out, stats};
}

Tensors library_attention_backward(const LibraryAttention& attention, Generator::State state, const Tensor& out,
                                   const Tensor& stats, const Tensor& grad, const std::array<DType, 3>& wanted) {
  const AttentionLayout layout = layout_of(args_of(attention));
  const std::array<const Tensor*, 3> operands{&attention.q, &attention.k, &attention.v};
  const std::array<const Strides*, 3> strides{&layout.dq, &layout.dk, &layout.dv};
  const bool wide = std::count(wanted.begin(), wanted.end(), DType::f32) > 0, joined = layout.packed && !wide;
  Tensor packed_memory;
  if (joined)
    packed_memory = Tensor::empty({attention.q.numel() + 2 * attention.k.numel()},
                                  {.dtype = attention.q.dtype(), .device = attention.q.device()});
  Tensors gradients;
  for (size_t i = 0, at = 0; i < 3; ++i) {
    const Shape& shape = operands[i]->shape();
    const DType dtype = wanted[i] == DType::f32 ? wanted[i] : operands[i]->dtype();
    gradients.push_back(
        joined ? packed_memory.alias(shape, *strides[i], int64_t(at))
               : tensor_with(shape, layout.packed ? contiguous_strides(shape) : *strides[i], dtype, attention.q.device()));
    at += size_t(shape[1] * shape[3]);
  }
  const AttentionGradients views{.out = out.view(),
                                 .stats = stats.view(),
                                 .grad = grad.view(),
                                 .dq = gradients[0].view(),
                                 .dk = gradients[1].view(),
                                 .dv = gradients[2].view()};
  if (library_of(attention.q)->attention_backward(args_of(attention), state, views)) return gradients;
  check<DeviceError>(attention.dropout_p == 0, "scaled_dot_product_attention",
                     "the device's library has dropped probabilities and now declines the gradient",
                     Help{"HALFSTEP_CUDA_DNN=plain in the environment leaves the library out"});
  return {};
}

}  // namespace halfstep
