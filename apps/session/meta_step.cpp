// SPDX-License-Identifier: Apache-2.0
#include "apps/session/meta_step.h"

#include <algorithm>

#include "apps/catalog/infer.h"
#include "apps/catalog/losses.h"
#include "apps/catalog/optimizers.h"
#include "apps/session/ranks.h"
#include "apps/session/session.h"
#include "framework/ops/ops.h"
#include "layers/feedforward/normalization.h"

namespace halfstep::app {
namespace {

constexpr int64_t kMostBatches = 4096;  // most micro-batches of a step

const DataFacts& known_facts(const Config& config) {
  if (!config.facts && !config.data_fault.empty()) throw DataError(config.data_fault);
  check<DataError>(config.facts.has_value(), "plan", "the shapes of the data are not known: its files are not there",
                   Help{"put them where the config says, or use data of type \"Random\" with their shapes"});
  return *config.facts;
}

// Returns whether the config allows NCCL; then ranks can record their steps.
bool may_use_nccl(const Config& config) {
  return config.device.is_cuda() && (config.distributed.backend == "auto" || config.distributed.backend == "nccl");
}

}  // namespace

int64_t planned_batch(const Config& config, int64_t batch) {
  if (batch > 0) return batch;
  const int64_t size = config.data.loader.batch_size;
  return config.facts && config.facts->size ? std::min(size, *config.facts->size) : size;
}

PlannedDevice::PlannedDevice(const Config& config) : is_gpu_(config.device.is_cuda()), type_(config.device.type) {
  set_dnn_options({.benchmark = before_.benchmark, .workspace = config.performance.cudnn_workspace << 20});
}

MetaStep::MetaStep(const Config& config, int64_t batch, const std::vector<std::string>& recomputed, int ranks)
    : batches_{known_facts(config), planned_batch(config, batch)},
      target_(config),
      on_(Device::meta),
      others_(allocator(Device::meta).stats()),
      group_(ranks > 1 ? std::make_unique<MetaGroup>(0, ranks, may_use_nccl(config)) : nullptr),
      scaler_(config.scaler),
      options_(step_options(config, group_.get())) {
  {
    const MemoryScope scope(MemoryTag::parameters);
    model_ = build_model(config.model);
  }
  check<ConfigError>(options_.accumulate_steps <= kMostBatches, "plan", "runs each batch of a step, and up to ", kMostBatches,
                     " of them; train.accumulate_steps is ", options_.accumulate_steps,
                     Help{"--set train.accumulate_steps=4: from the second batch on all are alike"});
  if (group_ && config.distributed.sync_batch_norm) SyncBatchNorm::convert_sync_batchnorm(*model_);
  set_precisions(*model_, config);
  lay_out(*model_, config);
  model_->train();
  recompute_activations(*model_, config.train.checkpoint_activations);
  recompute_modules(*model_, recomputed);
  loss_ = build_loss(config.loss);
  optimizer_ = build_optimizer(config.optimizer, *model_);
  check<ConfigError>(!optimizer_->needs_closure(), "plan", optimizer_->describe(),
                     " decides by the values of the loss how often it evaluates it: its steps cannot be planned");
  followers_ = make_followers(config.train, *optimizer_, 1);
  if (group_) share_states(*optimizer_, config, *group_);
  options_.device = Device::meta;
  step_ = std::make_unique<TrainStep>(*model_, *loss_, *optimizer_, scaler_, nullptr, options_);
}

MetaStep::BatchTensors MetaStep::Batches::make() const {
  const MemoryScope scope(MemoryTag::data);
  return {empty(with_batch(size, facts.input), {.dtype = facts.input_dtype}),
          empty(with_batch(size, facts.target), {.dtype = facts.target_dtype()})};
}

// Returns whether the config's device may record such steps (TrainStep).
bool MetaStep::may_be_recorded() const {
  if (!target_.is_gpu() || options_.accumulate_steps > 1 || (group_ && !group_->can_record())) return false;
  return options_.graph == GraphMode::on ||
         (options_.graph == GraphMode::automatic && model_->is_recordable() && loss_->is_recordable() && !model_->any_recomputes());
}

void MetaStep::run() {
  if (!may_be_recorded())
    recorded_ = {};
  else if (!recorded_.input.defined())
    recorded_ = batches_.make();
  for (int64_t i = 0; i < options_.accumulate_steps; ++i) {
    const auto [input, target] = batches_.make();
    const StepResult result = (*step_)(input, target);
    pending_.push_back({result.loss, result.outcome});
  }
}

void MetaStep::run_as_second() {
  if (pending_.size() > size_t(options_.accumulate_steps)) pending_.resize(size_t(options_.accumulate_steps));
  run();
}

}  // namespace halfstep::app
