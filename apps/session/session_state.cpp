// SPDX-License-Identifier: Apache-2.0
// Saves a session's state in a checkpoint, and restores it.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <string>

#include "amp/step/run_state.h"
#include "apps/catalog/infer.h"
#include "apps/catalog/optimizers.h"
#include "apps/session/branch_names.h"
#include "apps/session/session.h"
#include "apps/terminal/progress.h"
#include "framework/backend/backend.h"
#include "framework/io/checkpoint/stored_json.h"
#include "generated/halfstep_release.h"

namespace halfstep::app {
namespace {

const std::string kOfAverage = "average.";  // prefix in a state: statistics for the averaged weights

Json optional(const std::optional<double>& v) { return v ? Json(*v) : Json(); }

// Returns the denominator of one sample's loss, as far as its shape determines it.
double usual_denominator(const Session& s) {
  const DataFacts facts = facts_of(s.train->dataset());
  const Tensor one = empty(with_batch(1, facts.target), {.dtype = facts.target_dtype(), .device = Device::meta});
  return s.loss->denominator(one).value();
}

RunParts parts_of(Session& s, ProcessGroup* group = nullptr) {
  return {*s.model, s.optimizer.get(), &s.scaler, s.schedule.get(), &default_generator(), group};
}

}  // namespace

int use_averages(const CheckpointContents& contents, StateDict& state) {
  int used = 0;
  for (NamedTensor& weight : state) {
    const auto count = contents.state.find("optimizer." + weight.name + ".average_count");
    const auto average = contents.state.find("optimizer." + weight.name + ".average");
    if (count == contents.state.end() || average == contents.state.end() || count->second.item<double>() == 0) continue;
    weight.tensor = average->second;
    ++used;
  }
  if (used == 0) return 0;
  for (NamedTensor& t : state)
    if (const auto own = contents.state.find(kOfAverage + t.name); own != contents.state.end()) t.tensor = own->second;
  return used;
}

namespace {

// The place where a run continues in the data and in the schedule.
struct PlaceInRun {
  LoaderState state;                    // with the former batch size
  std::optional<LoaderPosition> place;  // with another batch size
  int64_t then = 0;                     // former steps in an epoch
  double pace = 1;                      // ratio of a run's steps with the current epoch length to its former steps
  int64_t steps(int64_t before) const { return std::llround(double(before) * pace); }
};

// Returns the former number of steps in an epoch; 0: an older halfstep's checkpoint does not store it.
int64_t steps_per_epoch_then(const CheckpointContents& contents, const StoredJson& loader) {
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
  const int64_t each = std::max<int64_t>(number("/train/accumulate_steps"), 1);
  return (batches + each - 1) / each;
}

PlaceInRun place_in_run(const CheckpointContents& contents, const StoredJson& loader, const Session& s) {
  PlaceInRun out{{loader.integer("epoch", 0), loader.integer("next_batch", 0), loader.integer("begin", 0, 0)}, {}};
  const LoaderOptions& now = s.train->options();
  const auto path = Json::json_pointer("/data/loader/batch_size");
  const Json config = stored_config(contents);
  const int64_t known = config.contains(path) && config[path].is_number_integer() ? config[path].get<int64_t>() : now.batch_size;
  const int64_t batch = loader.integer("batch_size", 1, known);
  if (batch != now.batch_size) {
    const int64_t read = out.state.begin + out.state.next_batch * batch, size = loader.integer("data_size", 0, read);
    out.place = {out.state.epoch, size > 0 ? std::min(read, size) : read, batch, *now.seed,
                 uint64_t(loader.integer("order", 0, 0))};
  } else {
    check<CheckpointError>(out.state.next_batch <= s.train->size(), "resume", "the checkpoint was saved after batch ",
                           out.state.next_batch, " of an epoch, which has only ", s.train->size(),
                           " now: data.train or data.loader has changed",
                           Help{"resume with the same data and batches, or from a checkpoint at the end of an epoch"});
  }
  out.then = steps_per_epoch_then(contents, loader);
  return out;
}

// Returns the steps from the loader's place to the end of the last epoch.
int64_t steps_left(const Session& s) {
  const LoaderState at = s.train->state();
  const int64_t batches = std::clamp<int64_t>(s.batches_per_epoch - at.next_batch, 0, s.train->left());
  const int64_t each = s.batches_per_step, epochs = s.total_steps / s.steps_per_epoch;
  return (batches + each - 1) / each + (epochs - at.epoch - 1) * s.steps_per_epoch;
}

// Adapts the state to a config that may differ: the optimizer's options and rates are the config's, and the schedule is where a
// run would be that had this config and epoch length from its start.
CheckpointContents for_config(const CheckpointContents& contents, const PlaceInRun& at, const Counters& n) {
  CheckpointContents out = contents;
  std::erase_if(out.state, [](const auto& entry) { return entry.first.starts_with("optimizer.param_groups."); });
  nlohmann::json& schedule = out.meta["schedule"];
  const int64_t count = at.steps(n.applied());
  if (schedule.is_object()) {
    for (auto it = schedule.begin(); it != schedule.end();)
      it = it.key().starts_with("lr.") || it.key().starts_with("initial_lr.") || it.key().starts_with("set_lr.")
               ? schedule.erase(it)
               : std::next(it);
    if (at.pace != 1 && schedule.contains("count")) schedule["count"] = count;
  } else if (schedule.is_null() || (at.pace != 1 && schedule.is_number())) {
    schedule = count;
  }
  if (at.pace == 1) return out;
  for (auto& [name, t] : out.state) {  // averages begin at a share of the run too
    if (name.starts_with("optimizer.") && name.find(".average") != std::string::npos && name.ends_with("_step"))
      t = full({}, double(at.steps(int64_t(t.item<double>()))));
  }
  return out;
}

// is_new: the run had no schedule before.
void take_pace(const PlaceInRun& at, const Counters& n, bool is_new, Session& s) {
  const int64_t place = at.steps(n.steps), whole = s.total_steps;
  const bool other = at.pace != 1;
  if (other) s.total_steps = std::max(n.steps, n.steps + whole - place);
  if (!s.schedule || !(other || is_new)) return;
  const std::string both = other && is_new ? " and " : "";
  s.other_pace = joined(other ? joined("an epoch has ", s.steps_per_epoch, " steps, before ", at.then) : "", both,
                        is_new ? "the run had no schedule before" : "",
                        ": the learning rates that follow are those of a run that had ", is_new ? "it" : "", both,
                        other ? joined(s.steps_per_epoch) : "", " from its start, from its step ", at.steps(n.applied()), " of ",
                        whole, " on; ", number_text(s.optimizer->lr(), 3), " is the next");
}

}  // namespace

CheckpointContents pack(Session& s, const Json& config, const Counters& n, ProcessGroup* group) {
  CheckpointContents out = halfstep::pack(parts_of(s, group));
  for (const auto& [name, tensor] : s.averaged_statistics) out.state[kOfAverage + name] = tensor;
  const LoaderState at = s.train->state();
  Json trainer = {{"steps", n.steps},
                  {"steps_per_epoch", s.steps_per_epoch},
                  {"skipped", n.skipped},
                  {"samples", n.samples},
                  {"epoch_loss", n.epoch_loss_sum},
                  {"epoch_over", n.epoch_denominator},
                  {"window_loss", n.line_loss_sum},
                  {"window_over", n.line_denominator},
                  {"last_log_step", n.last_log_step},
                  {"last_eval_step", n.last_eval_step},
                  {"stop_best", optional(n.stop_best)},
                  {"stop_waited", n.stop_waited},
                  {"stopped", n.stopped},
                  {"train_loss", optional(n.train_loss)},
                  {"val_loss", optional(n.val_loss)},
                  {"seconds", n.seconds},
                  {"first_loss", optional(n.first_loss)},
                  {"usual_loss", n.usual_loss}};
  if (n.evaluation_due != 0) trainer["evaluation_due"] = n.evaluation_due;
  if (n.last_skip) trainer["last_skip"] = {{"step", n.last_skip->step}, {"cause", n.last_skip->cause}};
  store(trainer, n.bests);
  for (const MetricValue& m : n.val_metrics) trainer["val_" + m.name] = m.value;
  out.meta["trainer"] = trainer;
  Json loader = {{"epoch", at.epoch},
                 {"next_batch", at.next_batch},
                 {"begin", at.begin},
                 {"batch_size", s.train->options().batch_size},
                 {"order", s.train->position().order},
                 {"data_size", s.train->dataset().size()}};
  if (!s.data_sha256.empty()) loader["data_sha256"] = s.data_sha256;
  out.meta["loader"] = loader;
  out.meta["config"] = config;
  // Recorded for people who compare runs.
  out.meta["written_by"] = {
      {"halfstep", HALFSTEP_VERSION}, {"threads", num_threads()}, {"device", backend_for(s.device).describe()}};
  out.data = nlohmann::json{{"form", *to_json(s.form)}, {"transforms", prediction_transforms(config)}};
  return out;
}

Counters unpack(const CheckpointContents& contents, Session& s) {
  const StoredJson meta = stored_meta(contents), t = meta.part("trainer"), loader = meta.part("loader");
  meta.part("generator");
  const int64_t steps = t.integer("steps", 0);
  Counters counters{.steps = steps,
                    .skipped = t.integer("skipped", 0),
                    .samples = t.integer("samples", 0),
                    .last_log_step = t.integer("last_log_step", -1, steps),
                    .last_eval_step = t.integer("last_eval_step", -1),
                    .bests = stored_bests(t),
                    .stop_best = t.number_or_null("stop_best"),
                    .stop_waited = t.integer("stop_waited", 0, 0),
                    .stopped = t.get("stopped") == true,
                    .train_loss = t.number_or_null("train_loss"),
                    .val_loss = t.number_or_null("val_loss"),
                    .val_metrics = {},
                    .seconds = t.number("seconds"),
                    .first_loss = t.number_or_null("first_loss")};
  if (t.has("epoch_over")) {
    counters.epoch_loss_sum = t.number("epoch_loss"), counters.epoch_denominator = t.number("epoch_over");
    counters.line_loss_sum = t.number("window_loss"), counters.line_denominator = t.number("window_over");
  } else {  // an older halfstep weighed losses by samples
    const double each = usual_denominator(s);
    counters.epoch_loss_sum = t.number("epoch_loss") * each,
    counters.epoch_denominator = double(t.integer("epoch_samples", 0)) * each;
    counters.line_loss_sum = t.number("window_loss") * each,
    counters.line_denominator = double(t.integer("window_samples", 0)) * each;
  }
  counters.usual_loss = stored_usual_loss(contents), counters.evaluation_due = int(t.integer("evaluation_due", 0, 0));
  if (t.has("last_skip")) {
    const StoredJson skip = t.part("last_skip");
    skip.expect(skip.get("cause").is_string(), "cause", "a text");
    counters.last_skip = {skip.integer("step", 0), skip.get("cause").get<std::string>()};
  }
  for (const NamedMetric& m : s.metrics) {
    const auto value = t.number_or_null("val_" + m.name);
    if (value) counters.val_metrics.push_back({m.name, *value, m.metric->is_share(), m.metric->details(), m.column});
  }
  PlaceInRun at = place_in_run(contents, loader, s);
  if (at.place)
    s.train->set_position(*at.place);
  else
    s.train->set_state(at.state);
  if (s.by_epochs && at.then > 0 && at.then != s.steps_per_epoch && counters.steps > 0)
    at.pace = double(std::max<int64_t>(s.total_steps - steps_left(s), 0)) / double(counters.steps);
  counters.data_size = loader.integer("data_size", 0, s.train->dataset().size());
  counters.data_sha256 = stored_data_sha256(contents);
  halfstep::unpack(for_config(with_branch_names(contents, *s.model), at, counters), parts_of(s));
  take_pace(at, counters, counters.steps > 0 && !meta.has("schedule"), s);
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
  const StoredJson data(**contents.data, "data.json");
  data.part("form");
  const auto& transforms = data.get("transforms");
  data.expect(transforms.is_array(), "transforms", "a list");
  return StoredData{read_form(data.get("form")), Json(transforms)};
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
