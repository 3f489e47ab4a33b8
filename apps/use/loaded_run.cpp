// SPDX-License-Identifier: Apache-2.0
#include "apps/use/loaded_run.h"

#include "apps/session/evaluate.h"
#include "apps/session/stored_run.h"

namespace halfstep::app {
namespace {

bool sets_amp(const std::string& set) { return set.starts_with("amp.") || set.starts_with("amp="); }

// Returns the config with amp on, as `load` makes it from options. was_float32: amp was off before the amp settings in `options`.
template <class Load>
Config in_16_bits(const Load& load, ConfigOptions options, bool& was_float32) {
  ConfigOptions without_amp = options;
  std::erase_if(without_amp.sets, sets_amp);
  Config config = load(without_amp);
  was_float32 = !config.low;
  if (config.low && without_amp.sets.size() == options.sets.size()) return config;
  if (was_float32) options.sets.insert(options.sets.begin(), "amp.enabled=true");
  config = load(options);
  check<ConfigError>(config.low.has_value(), "amp", "must be on: float16 or bfloat16 is compared with float32",
                     Help{"leave out --set amp=false"});
  return config;
}

}  // namespace

LoadedRun open_in_16_bits(const char* command, const std::filesystem::path& path, const ConfigOptions& options) {
  if (!std::filesystem::is_directory(path)) {
    bool was_float32 = false;
    Config config = in_16_bits([&](const ConfigOptions& o) { return load_config(path, o); }, options, was_float32);
    Session session = make_session(config, nullptr, FirstValues::with_files);
    session.model->train();
    return {std::move(config), std::move(session), 0, was_float32};
  }
  const StoredRun run = open_run(command, path);
  bool was_float32 = false;
  const auto load = [&](const ConfigOptions& o) { return resolve_config(run.config, "the run's config", o); };
  Config config = in_16_bits(load, options, was_float32);
  Session session = make_session(config, nullptr, run.checkpoint ? FirstValues::of_layers : FirstValues::with_files);
  LoadedRun out{std::move(config), std::move(session), 0, was_float32};
  if (run.checkpoint)
    out.step = restore(command, *run.checkpoint, load_checkpoint(*run.checkpoint, out.session.device), out.session).applied();
  out.session.model->train();
  return out;
}

StepUnderTest next_batches(LoadedRun& opened, int64_t count) {
  Session& session = opened.session;
  const TrainSection& section = opened.config.train;
  StepUnderTest out{.module = *session.model, .batches = {}, .device = session.device, .low = opened.config.low};
  out.policies = opened.config.policies;
  out.scale = session.scaler.get_scale();
  out.low_gradients =
      section.accumulate_steps == 1 && !section.clip_grad_norm && !section.clip_grad_value && !section.clip_grad_agc;
  out.random = default_generator().state();
  bool epoch_begins = false;  // and with it the data's streams
  int64_t empty = 0;          // batches without a target, in a row
  while (std::ssize(out.batches) < count) {
    const LoaderState at = session.train->state();
    std::optional<Batch> batch;
    if (at.next_batch < session.batches_per_epoch) batch = session.train->next();
    if (!batch) {
      epoch_begins = true;
      session.train->set_state({at.epoch + 1, 0});
      batch = session.train->next();
    }
    const auto [input, target] = on_device(*batch, session.device);
    const double denominator = session.loss->denominator(target).value();
    if (denominator == 0) {
      ++opened.left_out;
      check<DataError>(++empty < session.batches_per_epoch, "data.train",
                       "needs a batch with a target that is not loss.ignore_index and whose class has a weight above 0");
      continue;
    }
    empty = 0;
    out.batches.push_back({[&session, epoch_begins, input = input, target = target] {
                             if (epoch_begins) reset_states(*session.model);
                             return (*session.loss)((*session.model)(input), target);
                           },
                           {input},
                           {target}});
    out.batches.back().denominator = denominator;
    epoch_begins = false;
  }
  return out;
}

std::string left_out_text(const LoadedRun& opened) {
  if (opened.left_out == 0) return {};
  return joined("left out ", opened.left_out, opened.left_out == 1 ? " batch" : " batches", " in which no target counts");
}

}  // namespace halfstep::app
