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

// Copies tensors between lists of the same order.
void assign(const StateDict& from, const StateDict& to) {
  const NoGrad off;
  for (size_t i = 0; i < from.size(); ++i) to[i].tensor.detach().copy_(from[i].tensor);
}

// Restores the loader's position and the default generator.
class SavedPosition {
 public:
  [[nodiscard]] explicit SavedPosition(DataLoader<>& loader)
      : loader_(loader), place_(loader.state()), random_(default_generator().state()) {}
  ~SavedPosition() {
    loader_.set_state(place_);
    default_generator().set_state(random_);
  }
  SavedPosition(const SavedPosition&) = delete;

 private:
  DataLoader<>& loader_;
  LoaderState place_;
  Generator::State random_;
};

}  // namespace

bool makes_averaged_statistics(const Session& s, const TrainSection& train) {
  return s.average && train.swa.enabled && train.swa.update_bn && !moving_statistics(*s.model).empty();
}

void make_averaged_statistics(Session& s, const TrainSection& train, int64_t step, ProcessGroup* group) {
  if (s.averaged_at == step || !makes_averaged_statistics(s, train)) return;
  const Tensors averages = s.average->averages();
  if (std::none_of(averages.begin(), averages.end(), [](const Tensor& t) { return t.defined(); })) return;
  const WeightAverage::Scope averaged(*s.average);
  const StateDict now = moving_statistics(*s.model), before = copies_of(now);
  double samples = 0;  // of this rank
  {
    const SavedPosition saved(*s.train);
    const FreshStates begin(*s.model);
    const NoGrad off;
    const RunningStatistics anew(*s.model);
    const GroupScope together(group);  // for norms with statistics over all ranks, as in training
    s.train->set_state({});
    for (int64_t i = 0; i < s.batches_per_epoch; ++i) {
      const std::optional<Batch> batch = s.train->next();
      if (!batch) break;
      const auto [input, target] = on_device(*batch, s.device);
      if (!input.defined()) continue;
      samples += double(input.size(0));
      const Autocast region(s.device, s.region);
      (*s.model)(input);
    }
  }
  if (group) average_buffers(*s.model, *group, samples);
  s.averaged_statistics = copies_of(now);
  s.averaged_at = step;
  assign(before, now);
}

AveragedStatistics::AveragedStatistics(Session& s) : session_(s) {
  if (s.averaged_statistics.empty()) return;
  const StateDict now = moving_statistics(*s.model);
  before_ = copies_of(now);
  assign(s.averaged_statistics, now);
  AveragedWeights::statistics_moved();
}
AveragedStatistics::~AveragedStatistics() {
  if (!before_.empty()) assign(before_, moving_statistics(*session_.model));
}

}  // namespace halfstep::app
