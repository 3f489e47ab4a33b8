// SPDX-License-Identifier: Apache-2.0
#include "apps/session/averaged_statistics.h"

#include <algorithm>
#include <utility>

#include "amp/step/data_parallel.h"
#include "apps/session/evaluate.h"
#include "layers/feedforward/running_statistics.h"

namespace halfstep::app {
namespace {

// Returns the statistics of the norms that training updates, by name in the model's state.
StateDict moving_statistics(Module& model) {
  StateDict out;
  for (const auto& [path, module] : model.named_modules()) {
    const auto* const norm = dynamic_cast<const RunningNorm*>(module);
    if (!norm || !norm->running_mean.defined() || norm->has_frozen_statistics()) continue;
    const std::string prefix = path.empty() ? "" : path + ".";
    out.push_back({prefix + "running_mean", norm->running_mean});
    out.push_back({prefix + "running_var", norm->running_var});
    out.push_back({prefix + "num_batches_tracked", norm->num_batches_tracked});
  }
  return out;
}

StateDict copies_of(const StateDict& state) {
  const NoGrad off;
  StateDict out;
  for (const NamedTensor& t : state) out.push_back({t.name, t.tensor.detach().clone()});
  return out;
}

// Copies the tensors of one list into those of another in the same order.
void copy_into(const StateDict& from, const StateDict& to) {
  const NoGrad off;
  for (size_t i = 0; i < from.size(); ++i) to[i].tensor.detach().copy_(from[i].tensor);
}

// Restores the loader's position and the default generator when it is destroyed.
class SavedPosition {
 public:
  [[nodiscard]] explicit SavedPosition(DataLoader<>& loader)
      : loader_(loader), position_(loader.state()), random_(default_generator().state()) {}
  ~SavedPosition() {
    loader_.set_state(position_);
    default_generator().set_state(random_);
  }
  SavedPosition(const SavedPosition&) = delete;

 private:
  DataLoader<>& loader_;
  LoaderState position_;
  Generator::State random_;
};

}  // namespace

bool makes_averaged_statistics(const Session& session, const TrainSection& train) {
  return session.average && train.swa.enabled && train.swa.update_bn && !moving_statistics(*session.model).empty();
}

void make_averaged_statistics(Session& session, const TrainSection& train, int64_t step, ProcessGroup* group) {
  if (session.averaged_step == step || !makes_averaged_statistics(session, train)) return;
  const Tensors averages = session.average->averages();
  if (std::none_of(averages.begin(), averages.end(), [](const Tensor& t) { return t.defined(); })) return;
  const WeightAverage::Scope averaged(*session.average);
  const StateDict own = moving_statistics(*session.model), before = copies_of(own);
  double samples = 0;  // of this rank
  {
    const SavedPosition saved(*session.train);
    const FreshStates zero(*session.model);
    const NoGrad off;
    const RunningStatistics reset(*session.model);
    const GroupScope scope(group);  // for norms with statistics over all ranks, as in training
    session.train->set_state({});
    for (int64_t i = 0; i < session.batches_per_epoch; ++i) {
      const std::optional<Batch> batch = session.train->next();
      if (!batch) break;
      const auto [input, target] = on_device(*batch, session.device);
      if (!input.defined()) continue;
      samples += double(input.size(0));
      const Autocast region(session.device, session.region);
      (*session.model)(input);
    }
  }
  if (group) average_buffers(*session.model, *group, samples);
  session.averaged_statistics = copies_of(own);
  session.averaged_step = step;
  copy_into(before, own);
}

AveragedStatistics::AveragedStatistics(Session& session) : session_(session) {
  if (session.averaged_statistics.empty()) return;
  const StateDict now = moving_statistics(*session.model);
  before_ = copies_of(now);
  copy_into(session.averaged_statistics, now);
  AveragedWeights::statistics_moved();
}
AveragedStatistics::~AveragedStatistics() {
  if (!before_.empty()) copy_into(before_, moving_statistics(*session_.model));
}

}  // namespace halfstep::app
