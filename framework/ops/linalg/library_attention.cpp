// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/linalg/library_attention.h"

#include "framework/backend/backend.h"
#include "framework/backend/dnn.h"
#include "framework/base/check.h"

namespace halfstep {
namespace {

AttentionLibrary* library_of(const Tensor& q) {
  return is_half(q.dtype()) ? dynamic_cast<AttentionLibrary*>(&backend_for(q.device())) : nullptr;
}

AttentionArgs args_of(const LibraryAttention& a) {
  return {.q = a.q.view(), .k = a.k.view(), .v = a.v.view(), .scale = a.scale, .causal = a.causal, .dropout_p = a.dropout_p};
}

}  // namespace

Tensor library_attention(const LibraryAttention& a, Generator::State state, const Tensor& out, bool differentiable) {
  AttentionLibrary* const library = library_of(a.q);
  if (!library) return {};
  const Tensor stats = Tensor::empty({a.q.size(0), a.q.size(1), a.q.size(2)}, {.device = a.q.device()});
  return library->attention(args_of(a), state, out.view(), stats.view(), differentiable) ? stats : Tensor();
}

Tensors library_attention_backward(const LibraryAttention& a, Generator::State state, const Tensor& out, const Tensor& stats,
                                   const Tensor& grad, const std::array<DType, 3>& wanted) {
  Tensors d;
  for (size_t i = 0; i < 3; ++i) {
    const Tensor& of = i == 0 ? a.q : i == 1 ? a.k : a.v;
    d.push_back(Tensor::empty(of.shape(), {.dtype = wanted[i] == DType::f32 ? wanted[i] : of.dtype(), .device = of.device()}));
  }
  const AttentionGradients gradients{
      .out = out.view(), .stats = stats.view(), .grad = grad.view(), .dq = d[0].view(), .dk = d[1].view(), .dv = d[2].view()};
  if (library_of(a.q)->attention_backward(args_of(a), state, gradients)) return d;
  check<DeviceError>(a.dropout_p == 0, "scaled_dot_product_attention",
                     "the device's library has dropped probabilities and now declines the gradient",
                     Help{"HALFSTEP_CUDA_DNN=plain in the environment leaves the library out"});
  return {};
}

}  // namespace halfstep
