// SPDX-License-Identifier: Apache-2.0
#include "framework/parallel/sum_over_ranks.h"

#include <any>

#include "framework/autograd/function.h"

namespace halfstep {
namespace {

// The group of the call below; forward stores it for backward.
thread_local ProcessGroup* t_group = nullptr;

struct SumOverRanks : Function<SumOverRanks> {
  static Tensors forward(FunctionContext& ctx, const Tensors& in) {
    ctx.state = t_group;
    const Tensor sum = in[0].detach().clone();
    t_group->wait(t_group->all_reduce({sum}));
    return {sum};
  }
  static Tensors backward(FunctionContext& ctx, const Tensors& grads) {
    return {sum_over_ranks(grads[0], *std::any_cast<ProcessGroup*>(ctx.state))};
  }
};

}  // namespace

Tensor sum_over_ranks(const Tensor& x, ProcessGroup& group) {
  t_group = &group;
  return SumOverRanks::apply({x})[0];
}

}  // namespace halfstep
