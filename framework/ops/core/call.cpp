// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/core/call.h"

#include <algorithm>

#include "framework/base/check.h"
#include "framework/ops/core/op_policy.h"
#include "framework/ops/core/registry.h"

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

namespace {

// Returns whether a region would give these inputs one dtype: it casts those of the ops on its lists, and only floats of 16 and 32
// bits.
bool region_helps(std::string_view name, const Tensors& in) {
  const Op* const op = find_op(name);
  if (!op || calls_others(op->name)) return false;
  const bool casts =
      op->policy == CastPolicy::low || op->policy == CastPolicy::promote || (op->policy == CastPolicy::f32 && !op->reads_half);
  return casts && std::all_of(in.begin(), in.end(), [](const Tensor& t) {
           return !t.defined() || ((t.dtype() == DType::f32 || is_half(t.dtype())) && !autocast::is_enabled(t.device().type));
         });
}

}  // namespace

void check_same_dtype(std::string_view op, const Tensors& in) {
  const Tensor* first = nullptr;
  for (const Tensor& t : in) {
    if (!t.defined()) continue;
    if (!first) first = &t;
    if (t.dtype() == first->dtype()) continue;
    fail<DTypeError>(
        op, "all inputs must have one dtype, got ", first->dtype(), " ", first->shape(), " and ", t.dtype(), " ", t.shape(),
        Help{region_helps(op, in) ? "convert with to(dtype), or compute inside an Autocast region" : "convert with to(dtype)"});
  }
}

}  // namespace halfstep
