// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/core/call.h"

#include "framework/base/check.h"
#include "framework/ops/core/op_policy.h"

namespace halfstep {

std::optional<DType> BackwardContext::wanted_column_sums(size_t input, DType g, Device device) const {
  if (grad_enabled() || !call_.needs(input) || !backend_for(device).adds_up_columns(g)) return {};
  const Edge* to = &node_.edges[input];
  while (*to && to->node->keeps_columns()) to = &to->node->edges[0];
  const int bias = *to ? to->node->summed_input() : -1;
  if (bias < 0 || !BackwardCall{*to->node, call_.wanted}.needs(size_t(bias))) return {};
  return halfstep::grad_dtype(*to->node, size_t(bias));
}

bool apply_policy(const OpInfo& info, std::span<Tensor> in) {
  if (autocast::any_policies()) [[unlikely]]
    check_names(autocast::policies_for(in));
  const std::optional<CastPolicy> policy = autocast::apply(info.name, info.policy, info.reads_half, in, info.advice);
  return policy == CastPolicy::f32 || policy == CastPolicy::f32_output;
}

void check_same_device(std::string_view op, const Tensors& in) {
  const Tensor* first = nullptr;
  for (const Tensor& t : in) {
    if (!t.defined()) continue;
    if (!first || first->impl()->wrapped_number) first = &t;
    check<DeviceError>(t.impl()->wrapped_number || t.device() == first->device(), op, "all tensors must be on one device, got ",
                       first->device(), " and ", t.device(), Help{"move them with to(device)"});
  }
  check<ValueError>(first != nullptr, op, "needs a defined tensor");
}

void check_has_values(std::string_view op, const Tensors& in) {
  for (const Tensor& t : in) {
    check<MetaError>(!t.defined() || !t.device().is_meta(), op,
                     "needs the values of its inputs, and a tensor on the device meta has none, got ",
                     t.defined() ? t.dtype() : DType::f32, " ", t.defined() ? t.shape() : Shape(),
                     Help{"only shapes, dtypes and sizes are known there: run this on the cpu or a GPU"});
  }
}

void check_same_dtype(std::string_view op, const Tensors& in) {
  const Tensor* first = nullptr;
  for (const Tensor& t : in) {
    if (!t.defined()) continue;
    if (!first) first = &t;
    check<DTypeError>(t.dtype() == first->dtype(), op, "all inputs must have one dtype, got ", first->dtype(), " ", first->shape(),
                      " and ", t.dtype(), " ", t.shape(), Help{"convert with to(dtype), or compute inside an Autocast region"});
  }
}

}  // namespace halfstep
