// SPDX-License-Identifier: Apache-2.0
// Checks the arguments of a training step.
#include "amp/step/train_step.h"
#include "framework/ops/core/op_policy.h"

namespace halfstep {

void TrainStep::check_options() const {
  const TrainStepOptions& o = options_;
  check<ValueError>(o.accumulate_steps >= 1, "TrainStep", "accumulate_steps must be >= 1, got ", o.accumulate_steps);
  check<ValueError>(!o.amp || is_half(*o.amp), "TrainStep", "amp must be float16 or bfloat16, got ", o.amp.value_or(DType::f32),
                    Help{"leave it out to compute in float32"});
  check_names(o.policies);
  check<ValueError>(o.clip_grad_norm >= 0, "TrainStep", "clip_grad_norm must be >= 0, got ", o.clip_grad_norm);
  check<ValueError>(o.clip_grad_agc >= 0, "TrainStep", "clip_grad_agc must be >= 0, got ", o.clip_grad_agc);
  check<ValueError>(o.clip_grad_value >= 0, "TrainStep", "clip_grad_value must be >= 0, got ", o.clip_grad_value);
  if (o.group) {
    check<ValueError>(!optimizer_.needs_closure(), "TrainStep", optimizer_.describe(),
                      " evaluates the loss itself, which ranks do not", Help{"train in one process, or with another optimizer"});
    check<ValueError>(o.graph != GraphMode::on || o.group->can_record(), "TrainStep",
                      "steps of ranks that exchange over the host are not recorded",
                      Help{"let them exchange over NCCL, or leave performance.cuda_graph at \"auto\""});
  }
  check<ValueError>(!optimizer_.is_sharded() || o.group, "TrainStep", "ranks share the states of ", optimizer_.describe(),
                    ", so they must train together, got no group", Help{"give the step their group"});
  if (!optimizer_.needs_closure()) return;
  check<ValueError>(!scaler_.is_enabled(), "TrainStep", optimizer_.describe(),
                    " evaluates the loss several times a step, which a gradient scaler does not allow",
                    Help{"train in float32 or bfloat16"});
  check<ValueError>(o.accumulate_steps == 1 && !clips() && !o.grad_norm, "TrainStep", optimizer_.describe(),
                    " evaluates the loss itself: it neither accumulates nor clips gradients",
                    Help{"leave out accumulate_steps, grad_norm and what clips"});
}

namespace {

// Returns whether a layer normalises over ranks.
bool syncs_over_ranks(Module& module) {
  bool syncs = false;
  module.apply([&](Module& m) {
    const auto* norm = dynamic_cast<const RunningNorm*>(&m);
    syncs |= norm && norm->syncs();
  });
  return syncs;
}

}  // namespace

BatchRows TrainStep::rows_of(const Tensor& input, const std::optional<BatchRows>& part) const {
  const int64_t ranks = options_.group ? options_.group->size() : 1, rank = options_.group ? options_.group->rank() : 0;
  if (part) {
    const bool right = part->first >= 0 && part->rows >= 0 && part->total > 0 && part->first + part->rows <= part->total &&
                       (part->rows == 0 || (input.defined() && input.dim() > 0 && input.size(0) == part->rows));
    check<ShapeError>(right, "TrainStep", "the part of a batch must be its input's rows, got rows [", part->first, ", ",
                      part->first + part->rows, ") of ", part->total, " and ",
                      input.defined() ? joined("input ", input.shape()) : "no input");
    check<ValueError>(ranks > 1 || part->rows == part->total, "TrainStep", "a part of a batch needs a group of ranks");
    check<ValueError>(part->total >= ranks || !syncs_over_ranks(module_), "TrainStep",
                      "batch normalisation over ranks needs a sample on each of ", ranks, ", got a batch of ", part->total,
                      Help{"drop_last leaves out a last batch that is small"});
    return *part;
  }
  const int64_t samples = input.dim() > 0 ? input.size(0) : 1;
  check<ShapeError>(samples > 0, "TrainStep", "a batch must have samples, got input ", input.shape());
  return {rank * samples, samples, ranks * samples};
}

void train_step::wrong_inputs(const Module& module, size_t given) {
  fail<ValueError>("TrainStep", "the module must take the tensors before the target and give one, got ", given, " for ",
                   module.describe(),
                   Help{"give the step a function of the loss: step([&] { return loss_fn(net(a, b), target); })"});
}

}  // namespace halfstep
