// SPDX-License-Identifier: Apache-2.0
#include "framework/parallel/sum_over_ranks.h"

#include <any>

#include "framework/autograd/function.h"

namespace halfstep {
namespace {

struct SumOverRanks : Function<SumOverRanks> {
  static Tensors forward(FunctionContext& ctx, const Tensors& in, ProcessGroup* group) {
    ctx.state = group;
    const Tensor sum = in[0].detach().clone();
    group->wait(group->all_reduce({sum}));
    return {sum};
  }
  static Tensors backward(FunctionContext& ctx, const Tensors& grads) {
    return {sum_over_ranks(grads[0], *std::any_cast<ProcessGroup*>(ctx.state))};
  }
};

}  // namespace

Tensor sum_over_ranks(const Tensor& x, ProcessGroup& group) {
  return SumOverRanks::apply({x}, &group)[0];
}

}  // namespace halfstep
