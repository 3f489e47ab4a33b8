// SPDX-License-Identifier: Apache-2.0
// Saves a session's state in a checkpoint, and restores it.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <string>

#include "amp/step/run_state.h"
#include "apps/catalog/averages.h"
#include "apps/catalog/infer.h"
#include "apps/catalog/optimizers.h"
#include "apps/session/branch_names.h"
#include "apps/session/session.h"
#include "apps/terminal/quantity_text.h"
#include "framework/backend/backend.h"
#include "framework/io/checkpoint/stored_json.h"
#include "generated/halfstep_release.h"

namespace halfstep::app {
namespace {

Json value_or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

// Returns the denominator of one sample's loss, as far as its shape determines it.
double usual_denominator(const Session& session) {
  const DataFacts facts = facts_of(session.train->dataset());
  const Tensor one = empty(with_batch(1, facts.target), {.dtype = facts.target_dtype(), .device = Device::meta});
  return session.loss->denominator(one).value();
}

RunParts parts_of(Session& session, ProcessGroup* group = nullptr) {
  return {*session.model, session.optimizer.get(), &session.scaler, session.schedule.get(), &default_generator(), group};
}

// The place where a run continues in the data and in the schedule.
struct PlaceInRun {
  LoaderState state;                       // with the former batch size
  std::optional<LoaderPosition> position;  // set for another batch size
  int64_t former_steps_per_epoch = 0;      // 0: unknown
  double pace = 1;                         // ratio of a run's steps with the current epoch length to its former steps
  // Returns the number of steps that a run with the current epoch length would have taken up to here.
  int64_t steps_at_pace(int64_t former_steps) const { return std::llround(double(former_steps) * pace); }
};

// Returns the former number of steps in an epoch, from the config if an older halfstep wrote the checkpoint; 0: unknown.
int64_t former_steps_per_epoch(const CheckpointContents& contents, const StoredJson& loader) {
  if (const StoredJson t = stored_meta(contents).part("trainer"); t.has("steps_per_epoch")) return t.integer("steps_per_epoch", 0);
  const Json config = stored_config(contents);
  const auto number = [&](const char* path) {
    const auto at = Json::json_pointer(path);
    return config.contains(at) && config[at].is_number_integer() ? config[at].get<int64_t>() : 0;
  };
  const int64_t size = loader.integer("data_size", 0, 0), batch = number("/data/loader/batch_size");
  const bool sampled = config.contains(Json::json_pointer("/data/loader/sampler/type"));
  if (size == 0 || batch == 0 || sampled) return 0;
  const auto drop = Json::json_pointer("/data/loader/drop_last");
  int64_t batches = config.contains(drop) && config[drop] == true ? size / batch : (size + batch - 1) / batch;
  if (const int64_t most = number("/train/limit_batches")) batches = std::min(batches, most);
  const int64_t batches_per_step = std::max<int64_t>(number("/train/accumulate_steps"), 1);
  return (batches + batches_per_step - 1) / batches_per_step;
}

PlaceInRun place_in_run(const CheckpointContents& contents, const StoredJson& loader, const Session& session) {
  PlaceInRun out{{loader.integer("epoch", 0), loader.integer("next_batch", 0), loader.integer("begin", 0, 0)}, {}};
  const LoaderOptions& now = session.train->options();
  const auto path = Json::json_pointer("/data/loader/batch_size");
  const Json config = stored_config(contents);
  const int64_t configured =
      config.contains(path) && config[path].is_number_integer() ? config[path].get<int64_t>() : now.batch_size;
  const int64_t batch = loader.integer("batch_size", 1, configured);
  if (batch != now.batch_size) {
    const int64_t read = out.state.begin + out.state.next_batch * batch;  // samples of the epoch
    const int64_t size = loader.integer("data_size", 0, read);
    out.position = {out.state.epoch, size > 0 ? std::min(read, size) : read, batch, *now.seed,
                    uint64_t(loader.integer("order", 0, 0))};
  } else {
    check<CheckpointError>(out.state.next_batch <= session.train->size(), "resume", "the checkpoint was saved after batch ",
                           out.state.next_batch, " of an epoch, which has only ", session.train->size(),
                           " now: data.train or data.loader has changed",
                           Help{"resume with the same data and batches, or from a checkpoint at the end of an epoch"});
  }
  out.former_steps_per_epoch = former_steps_per_epoch(contents, loader);
  return out;
}

// Returns the steps from the loader's place to the end of the last epoch.
int64_t steps_left(const Session& session) {
  const LoaderState at = session.train->state();
  const int64_t batches = std::clamp<int64_t>(session.batches_per_epoch - at.next_batch, 0, session.train->left());
  const int64_t batches_per_step = session.batches_per_step, epochs = session.total_steps / session.steps_per_epoch;
  return (batches + batches_per_step - 1) / batches_per_step + (epochs - at.epoch - 1) * session.steps_per_epoch;
}

// Adapts the state to a config that may differ: the optimizer's options and rates are the config's, and the schedule is where a
// run would be that had this config and epoch length from its start.
CheckpointContents adapted_to_config(const CheckpointContents& contents, const PlaceInRun& place, const Counters& counters) {
  CheckpointContents out = contents;
  std::erase_if(out.state, [](const auto& entry) { return entry.first.starts_with("optimizer.param_groups."); });
  nlohmann::json& schedule = out.meta["schedule"];
  const int64_t count = place.steps_at_pace(counters.applied());
  if (schedule.is_object()) {
    for (auto it = schedule.begin(); it != schedule.end();)
      it = it.key().starts_with("lr.") || it.key().starts_with("initial_lr.") || it.key().starts_with("set_lr.")
               ? schedule.erase(it)
               : std::next(it);
    if (place.pace != 1 && schedule.contains("count")) schedule["count"] = count;
  } else if (schedule.is_null() || (place.pace != 1 && schedule.is_number())) {
    schedule = count;
  }
  if (place.pace == 1) return out;
  for (auto& [name, t] : out.state) {  // averages begin at a share of the run too
    if (name.starts_with("optimizer.") && name.find(".average") != std::string::npos && name.ends_with("_step"))
      t = full({}, double(place.steps_at_pace(int64_t(t.item<double>()))));
  }
  return out;
}

// Sets the number of steps and the warning of a run whose epochs now have another length, or that gets a schedule. is_new: the run
// had no schedule before.
void adopt_pace(const PlaceInRun& place, const Counters& counters, bool is_new, Session& session) {
  const int64_t steps = place.steps_at_pace(counters.attempted), whole = session.total_steps;
  const bool differs = place.pace != 1;
  if (differs) session.total_steps = std::max(counters.attempted, counters.attempted + whole - steps);
  if (!session.schedule || !(differs || is_new)) return;
  const std::string both = differs && is_new ? " and " : "";
  session.pace_warning = joined(
      differs ? joined("an epoch has ", session.steps_per_epoch, " steps, before ", place.former_steps_per_epoch) : "", both,
      is_new ? "the run had no schedule before" : "", ": the learning rates that follow are those of a run that had ",
      is_new ? "it" : "", both, differs ? joined(session.steps_per_epoch) : "", " from its start, from its step ",
      place.steps_at_pace(counters.applied()), " of ", whole, " on; ", number_text(session.optimizer->lr(), 3), " is the next");
}

}  // namespace

CheckpointContents pack(Session& session, const Json& config, const Counters& counters, ProcessGroup* group) {
  CheckpointContents out = halfstep::pack(parts_of(session, group));
  for (const auto& [name, tensor] : session.averaged_statistics) out.state[kAveragePrefix + name] = tensor;
  const LoaderState at = session.train->state();
  Json trainer = {{"steps", counters.attempted},
                  {"steps_per_epoch", session.steps_per_epoch},
                  {"skipped", counters.skipped},
                  {"samples", counters.samples},
                  {"epoch_loss", counters.epoch_loss_sum},
                  {"epoch_over", counters.epoch_denominator},
                  {"window_loss", counters.line_loss_sum},
                  {"window_over", counters.line_denominator},
                  {"last_log_step", counters.last_log_step},
                  {"last_eval_step", counters.last_eval_step},
                  {"stop_best", value_or_null(counters.stop_best)},
                  {"stop_waited", counters.stop_waited},
                  {"stopped", counters.stopped},
                  {"train_loss", value_or_null(counters.train_loss)},
                  {"val_loss", value_or_null(counters.val_loss)},
                  {"seconds", counters.seconds},
                  {"first_loss", value_or_null(counters.first_loss)},
                  {"usual_loss", counters.usual_loss}};
  if (counters.evaluation_due != 0) trainer["evaluation_due"] = counters.evaluation_due;
  if (counters.last_skip) trainer["last_skip"] = {{"step", counters.last_skip->step}, {"cause", counters.last_skip->cause}};
  store(trainer, counters.bests);
  for (const MetricValue& m : counters.val_metrics) trainer["val_" + m.name] = m.value;
  out.meta["trainer"] = trainer;
  Json loader = {{"epoch", at.epoch},
                 {"next_batch", at.next_batch},
                 {"begin", at.begin},
                 {"batch_size", session.train->options().batch_size},
                 {"order", session.train->position().order},
                 {"data_size", session.train->dataset().size()}};
  if (!session.data_sha256.empty()) loader["data_sha256"] = session.data_sha256;
  if (!session.val_sha256.empty()) loader["val_sha256"] = session.val_sha256;
  out.meta["loader"] = loader;
  if (counters.past.any()) out.meta["past"] = {{"trained_on", counters.past.trained_on}, {"changes", counters.past.changes}};
  out.meta["config"] = config;
  // Recorded for people who compare runs.
  out.meta["written_by"] = {
      {"halfstep", HALFSTEP_VERSION}, {"threads", num_threads()}, {"device", backend_for(session.device).describe()}};
  out.data = nlohmann::json{{"form", *to_json(session.form)}, {"transforms", prediction_transforms(config)}};
  return out;
}

Counters unpack(const CheckpointContents& contents, Session& session) {
  const StoredJson meta = stored_meta(contents), trainer = meta.part("trainer"), loader = meta.part("loader");
  meta.part("generator");
  const int64_t steps = trainer.integer("steps", 0);
  Counters counters{.attempted = steps,
                    .skipped = trainer.integer("skipped", 0),
                    .samples = trainer.integer("samples", 0),
                    .last_log_step = trainer.integer("last_log_step", -1, steps),
                    .last_eval_step = trainer.integer("last_eval_step", -1),
                    .bests = stored_bests(trainer),
                    .stop_best = trainer.number_or_null("stop_best"),
                    .stop_waited = trainer.integer("stop_waited", 0, 0),
                    .stopped = trainer.get("stopped") == true,
                    .train_loss = trainer.number_or_null("train_loss"),
                    .val_loss = trainer.number_or_null("val_loss"),
                    .val_metrics = {},
                    .seconds = trainer.number("seconds"),
                    .first_loss = trainer.number_or_null("first_loss")};
  if (trainer.has("epoch_over")) {
    counters.epoch_loss_sum = trainer.number("epoch_loss"), counters.epoch_denominator = trainer.number("epoch_over");
    counters.line_loss_sum = trainer.number("window_loss"), counters.line_denominator = trainer.number("window_over");
  } else {  // an older halfstep weighed losses by samples
    const double sample_denominator = usual_denominator(session);
    counters.epoch_loss_sum = trainer.number("epoch_loss") * sample_denominator,
    counters.epoch_denominator = double(trainer.integer("epoch_samples", 0)) * sample_denominator;
    counters.line_loss_sum = trainer.number("window_loss") * sample_denominator,
    counters.line_denominator = double(trainer.integer("window_samples", 0)) * sample_denominator;
  }
  counters.usual_loss = stored_usual_loss(contents), counters.evaluation_due = int(trainer.integer("evaluation_due", 0, 0));
  if (trainer.has("last_skip")) {
    const StoredJson skip = trainer.part("last_skip");
    skip.expect(skip.get("cause").is_string(), "cause", "a text");
    counters.last_skip = {skip.integer("step", 0), skip.get("cause").get<std::string>()};
  }
  for (const NamedMetric& m : session.metrics) {
    const auto value = trainer.number_or_null("val_" + m.name);
    if (value) counters.val_metrics.push_back({m.name, *value, m.metric->is_share(), m.metric->details(), m.column});
  }
  PlaceInRun place = place_in_run(contents, loader, session);
  if (place.position)
    session.train->set_position(*place.position);
  else
    session.train->set_state(place.state);
  if (session.counts_epochs && place.former_steps_per_epoch > 0 && place.former_steps_per_epoch != session.steps_per_epoch &&
      counters.attempted > 0)
    place.pace = double(std::max<int64_t>(session.total_steps - steps_left(session), 0)) / double(counters.attempted);
  counters.data_size = loader.integer("data_size", 0, session.train->dataset().size());
  counters.data_sha256 = stored_data_sha256(contents);
  counters.past = stored_past(contents);
  halfstep::unpack(adapted_to_config(with_branch_names(contents, *session.model), place, counters), parts_of(session));
  adopt_pace(place, counters, counters.attempted > 0 && !meta.has("schedule"), session);
  return counters;
}

namespace {

// Checks that averages and Lookahead were there from the start.
void check_followers(const char* command, const CheckpointContents& contents, const Session& session) {
  const Json config = stored_config(contents);
  for (const auto& [kind, key] : {std::pair("EMA", "ema"), std::pair("SWA", "swa"), std::pair("Lookahead", "lookahead")}) {
    const auto path = Json::json_pointer(joined("/train/", key)), enabled = path / "enabled";
    const bool then = config.contains(path) && config[path] != false && !config[path].is_null() &&
                      !(config.contains(enabled) && config[enabled] == false);
    const bool now = std::any_of(session.followers.begin(), session.followers.end(),
                                 [kind = std::string(kind)](const auto& f) { return f->kind() == kind; });
    check<ConfigError>(now == then, command, "train.", key, " must be as in the run that continues, where it is ",
                       then ? "on" : "off", ", got ", now ? "on" : "off",
                       Help{joined("its weights go back to the first step: set train.", key,
                                   " as it was, or train anew in another output_dir")});
  }
}

}  // namespace

Counters restore(const char* command, const std::filesystem::path& checkpoint, const CheckpointContents& contents,
                 Session& session) {
  check_followers(command, contents, session);
  const auto refuse = [&](const Error& why) {
    fail<ConfigError>(command, "the config must fit the state of ", checkpoint.string(), ": ", one_line(why),
                      Help{"take the config that the checkpoint was trained with; training may start over in another output_dir"});
  };
  try {
    return unpack(contents, session);
  } catch (const ValueError& e) { refuse(e); } catch (const ShapeError& e) {
    refuse(e);
  } catch (const DTypeError& e) { refuse(e); }
  return {};
}

int64_t stored_step(const CheckpointContents& contents) {
  const StoredJson t = stored_meta(contents).part("trainer");
  return std::max<int64_t>(t.integer("steps", 0) - t.integer("skipped", 0, 0), 0);
}

int64_t stored_attempts(const CheckpointContents& contents) { return stored_meta(contents).part("trainer").integer("steps", 0); }

double stored_usual_loss(const CheckpointContents& contents) {
  return stored_meta(contents).part("trainer").number_or_null("usual_loss").value_or(0);
}

std::string stored_data_sha256(const CheckpointContents& contents) {
  const StoredJson meta = stored_meta(contents), loader = meta.part("loader");
  if (!loader.has("data_sha256")) return {};
  loader.expect(loader.get("data_sha256").is_string(), "data_sha256", "a text");
  return loader.get("data_sha256").get<std::string>();
}

Json stored_config(const CheckpointContents& contents) {
  const StoredJson meta = stored_meta(contents);
  meta.part("config");
  return Json(meta.get("config"));
}

std::optional<StoredData> stored_data(const CheckpointContents& contents) {
  if (!contents.data) return {};
  return read_stored_data(**contents.data);
}

std::string changed_keys(const Json& now, const Json& then, const Session& session) {
  Json old = then;  // with defaults for keys that the writer did not know
  try {
    old = with_statistics(resolve_config(then, "the checkpoint's config").json);
  } catch (const Error&) {}  // then more than its age differs
  std::string changed;
  for (const auto& op : nlohmann::json::diff(nlohmann::json(old), nlohmann::json(now))) {
    const std::string path = op["path"];
    if (path == "/output_dir" || path == "/checkpoint/resume") continue;
    const bool layout = path == "/performance/channels_last";  // "auto" may be the same
    if (layout && old["performance"]["channels_last"] == session.channels_last) continue;
    changed += (changed.empty() ? "" : ", ") + path.substr(std::min<size_t>(1, path.size()));
  }
  return changed;
}

}  // namespace halfstep::app
