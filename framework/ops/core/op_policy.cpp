// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/core/op_policy.h"

#include <algorithm>

#include "framework/base/check.h"
#include "framework/base/list_text.h"
#include "framework/math/functors.h"

namespace halfstep {
namespace {

bool promotes_by_itself(std::string_view name) {
  const auto is_named = [&](const ElementwiseRow& row) { return row.name == name; };
  return name == "where" || name == "equal" || name == "add_relu" || name == "batch_norm_add_relu" ||
         std::any_of(std::begin(kBinaryRows), std::end(kBinaryRows), is_named) ||
         std::any_of(std::begin(kComparisonRows), std::end(kComparisonRows), is_named);
}

}  // namespace

std::string_view list_policy(const Op& op) {
  switch (op.policy) {
    case CastPolicy::low: return "lower";
    case CastPolicy::f32:
    case CastPolicy::f32_output: return "fp32";
    case CastPolicy::promote: return "promote";
    case CastPolicy::banned: return "banned";
    case CastPolicy::keep: break;
  }
  return promotes_by_itself(op.alias_of.empty() ? op.name : op.alias_of) ? "builtin_promote" : "keep";
}

bool calls_others(std::string_view op) {
  constexpr std::string_view kComposed[] = {"aminmax",
                                            "atleast_1d",
                                            "atleast_2d",
                                            "atleast_3d",
                                            "bernoulli",
                                            "channel_shuffle",
                                            "chunk",
                                            "clamp_max",
                                            "clamp_min",
                                            "cummax",
                                            "cummin",
                                            "diag",
                                            "flatten",
                                            "full_like",
                                            "index_fill",
                                            "kron",
                                            "masked_fill",
                                            "masked_scatter",
                                            "masked_select",
                                            "matmul",
                                            "max",
                                            "max_unpool1d",
                                            "max_unpool2d",
                                            "max_unpool3d",
                                            "meshgrid",
                                            "min",
                                            "mode",
                                            "movedim",
                                            "msort",
                                            "nan_to_num",
                                            "nanmean",
                                            "nansum",
                                            "narrow",
                                            "outer",
                                            "pixel_shuffle",
                                            "pixel_unshuffle",
                                            "rand_like",
                                            "randn_like",
                                            "repeat",
                                            "repeat_interleave",
                                            "reshape",
                                            "rot90",
                                            "rrelu",
                                            "select",
                                            "squeeze",
                                            "t",
                                            "take",
                                            "take_along_dim",
                                            "tensor_split",
                                            "tile",
                                            "to",
                                            "transpose",
                                            "tril",
                                            "triu",
                                            "unflatten",
                                            "unique",
                                            "unique_consecutive",
                                            "unsqueeze",
                                            "zeros_like"};
  return std::find(std::begin(kComposed), std::end(kComposed), op) != std::end(kComposed);
}

void check_names(const OpPolicies& policies) {
  if (policies.checked()) return;
  for (const auto& [name, policy] : policies.by_name()) {
    const Op* const op = find_op(name);
    if (!op) {
      std::vector<std::string> known;
      for (const Op& o : all_ops())
        if (o.alias_of.empty()) known.emplace_back(o.name);
      const std::string near = nearest_name(name, known);
      fail<ValueError>("autocast", "there is no op \"", name, "\" to set a policy for",
                       near.empty() ? "" : "; did you mean \"" + near + "\"?", Help{"halfstep ops lists them"});
    }
    check<ValueError>(op->alias_of.empty(), "autocast", '"', name, "\" is another name of ", op->alias_of, ": give that one");
    check<ValueError>(!calls_others(name), "autocast", name,
                      " has no policy of its own: it calls other ops, as matmul calls mm and bmm",
                      Help{"an OpLogScope, or halfstep plan, lists them"});
    check<ValueError>(policy != CastPolicy::f32_output || op->takes_dtype || op->reads_half, "autocast", name,
                      " has no dtype of its result to choose, so its policy cannot be f32_output", Help{"f32 casts its inputs"});
  }
  policies.set_checked();
}

std::vector<DType> dtypes_of(const Op& op) {
  std::vector<DType> out;
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType t = DType(i);
    if (op.dtypes == DTypeSet::bits) {
      if (!is_floating(t)) out.push_back(t);
      continue;
    }
    if (is_floating(t) || (is_integral(t) && op.dtypes != DTypeSet::floating) || op.dtypes == DTypeSet::any) out.push_back(t);
  }
  return out;
}

}  // namespace halfstep
