// SPDX-License-Identifier: Apache-2.0
#include "apps/train/resume_checks.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "amp/step/run_state.h"
#include "apps/catalog/datasets.h"
#include "apps/session/ranks.h"

namespace halfstep::app {
namespace {

const Json kNull;

const Json& value_at(const Json& json, const char* pointer) {
  const auto path = Json::json_pointer(pointer);
  return json.contains(path) ? json[path] : kNull;
}

// Compares two values of a config, as far as the older one has the keys of the newer.
bool is_same(const Json& then, const Json& now) {
  if (then.is_object() && now.is_object()) {
    for (const auto& [key, value] : then.items())
      if (!now.contains(key) || !is_same(value, now[key])) return false;
    return true;
  }
  if (then.is_array() && now.is_array())
    return then.size() == now.size() && std::equal(then.begin(), then.end(), now.begin(), is_same);
  return then == now;
}

// Returns the part of a config that says what data.val is. Statistics of the training data do not count: they change what the model
// sees, not what it is measured by.
Json measured_data(const Json& config) {
  Json val = value_at(config, "/data/val");
  if (val.is_object() && val.contains("transforms"))
    for (Json& transform : val["transforms"])
      if (transform.is_object()) transform.erase("mean"), transform.erase("std"), transform.erase("from");
  const bool is_cut =
      val.is_object() && ((val.contains("range") && val["range"] != Json{0.0, 1.0}) || !value_at(val, "/fold").is_null());
  return {{"val", val}, {"root", value_at(config, "/data/root")}, {"seed", is_cut ? value_at(config, "/seed") : Json()}};
}

// Returns a form of data without ranges, which change as data grow.
nlohmann::json without_ranges(nlohmann::json form) {
  for (const char* key : {"low", "high"}) form["source"].erase(key);
  return form;
}

// Facts in which the run differs from its checkpoint.
struct Differences {
  bool val = false, train = false, scale = false;  // samples of data.val and of data.train; scale of the targets
};

bool are_other_samples(const CheckpointContents& contents, const Session& session, const Json& config) {
  const Json before = stored_config(contents), was = measured_data(before), is = measured_data(config);
  if (value_at(before, "/data/val").is_null() || !session.val) return false;
  if (value_at(before, "/train/overfit_batches") != value_at(config, "/train/overfit_batches")) return true;
  const StoredJson meta = stored_meta(contents), loader = meta.part("loader");
  // A fingerprint changes with the scale in which data are read, too.
  const bool read_alike = contents.data && without_ranges((**contents.data)["form"]) == without_ranges(*to_json(session.form));
  if (!loader.has("val_sha256") || session.val_sha256.empty() || !read_alike) return !is_same(was, is);
  return loader.get("val_sha256") != nlohmann::json(session.val_sha256) ||
         !is_same(value_at(was, "/val/transforms"), value_at(is, "/val/transforms"));
}

Differences differences(const CheckpointContents& contents, const Session& session, const Json& config, ProcessGroup* group) {
  const std::optional<StoredData> then = stored_data(contents);
  const std::string trained = stored_data_sha256(contents);
  Differences out{.val = are_other_samples(contents, session, config),
                  .train = !trained.empty() && !session.data_sha256.empty() && trained != session.data_sha256,
                  .scale = then && is_other_scale(then->form.scale, session.form.scale)};
  if (!group) return out;
  const Json first = value_of_rank0(*group, {{"val", out.val}, {"train", out.train}});  // it alone has fingerprints
  out.val = first["val"], out.train = first["train"];
  return out;
}

// Returns the config's entry of the metric with this name; null: it is measured without one.
Json metric_named(const Json& config, const std::string& name) {
  for (const Json& metric : value_at(config, "/metrics")) {
    const Json& own = value_at(metric, "/name");
    if (Json(name) == (own.is_string() && own != "" ? own : value_at(metric, "/type"))) return metric;
  }
  return {};
}

// Returns why the values of a monitor, "checkpoint" or "train/early_stopping", are others than before; empty: they are not.
std::string reason(const std::string& section, const Json& then, const Json& now, const Differences& differ) {
  std::string key = section;
  std::replace(key.begin(), key.end(), '/', '.');
  for (const std::string part : {"monitor", "mode"}) {
    const std::string pointer = "/" + section + "/" + part;
    const Json &was = value_at(then, pointer.c_str()), &is = value_at(now, pointer.c_str());
    if (was.is_string() && is.is_string() && was != is)
      return joined(key, ".", part, " is ", is.get<std::string>(), ", before ", was.get<std::string>());
  }
  const Json& monitor = value_at(now, ("/" + section + "/monitor").c_str());
  if (!monitor.is_string()) return "";
  const std::string name = monitor;
  if (name.ends_with("/loss")) {
    if (!is_same(value_at(then, "/loss"), value_at(now, "/loss"))) return joined("the loss is another one than before");
    if (differ.scale) return "the targets have another scale than before";
  } else if (const std::string metric = name.substr(name.find('/') + 1);
             !is_same(metric_named(then, metric), metric_named(now, metric))) {
    return joined("the metric ", metric, " has other options than before");
  }
  if (name.starts_with("val/") && differ.val) return "data.val has other samples or transforms than before";
  if (name.starts_with("train/") && differ.train) return "data.train has other samples than before";
  return "";
}

// Removes what ReduceLROnPlateau has seen, also as a part of another schedule. Returns whether there was something.
bool forget_plateau(nlohmann::json& schedule) {
  if (!schedule.is_object()) return false;
  bool any = false;
  for (auto it = schedule.begin(); it != schedule.end();) {
    const std::string key = it.key().substr(it.key().rfind('.') + 1);  // npos + 1 is 0
    const bool seen = key == "best" || key == "best_is_infinite" || key == "bad";
    any = any || (seen && key != "bad");
    it = seen ? schedule.erase(it) : std::next(it);
  }
  return any;
}

}  // namespace

std::string check_meanings(const CheckpointContents& contents, const Session& session, const Json& config) {
  const std::optional<StoredData> then = stored_data(contents);
  if (!then) return "";
  for (const OtherName& other : other_names(then->form, session.form))
    fail<ConfigError>(
        "resume",
        "the names of data.train must have the numbers that the checkpoint's model learned, got other ones: ", other.text(),
        Help{"resume with data of the same names, or train anew in another output_dir, or with --overwrite"});
  const std::string scale = other_scale(*then, {session.form, prediction_transforms(config)});
  return scale.empty() ? "" : "data.train has another scale: " + scale + "; the model learned the former one";
}

ForgottenValues forget_other_values(CheckpointContents& contents, const Session& session, const Json& config, ProcessGroup* group) {
  stored_meta(contents).part("trainer");
  const Json then = stored_config(contents);
  const Differences differ = differences(contents, session, config, group);
  const std::string of_best = reason("checkpoint", then, config, differ);
  const std::string of_stop = reason("train/early_stopping", then, config, differ);
  nlohmann::json& trainer = contents.meta["trainer"];
  std::vector<std::string> forgotten;
  if (!of_best.empty()) {
    if (trainer.contains("best") && !trainer["best"].is_null()) forgotten.emplace_back("the best checkpoint");
    for (const char* key : {"best", "best_top", "next_best"}) trainer.erase(key);
    trainer["best_step"] = -1;
    if (contents.meta->contains("schedule") && forget_plateau(contents.meta["schedule"]))
      forgotten.emplace_back("ReduceLROnPlateau");
  }
  if (!of_stop.empty()) {
    if (trainer.contains("stop_best") && !trainer["stop_best"].is_null()) forgotten.emplace_back("train.early_stopping");
    trainer["stop_best"] = nullptr, trainer["stop_waited"] = 0, trainer["stopped"] = false;
  }
  const Json& rule = value_at(config, "/train/early_stopping");
  // What is no number is left for the reader of the state, which refuses it.
  if (rule.is_null() && trainer.value("stop_best", nlohmann::json()).is_number()) trainer["stop_best"] = nullptr;
  if (rule.is_null() && trainer.value("stop_waited", nlohmann::json()).is_number_unsigned()) trainer["stop_waited"] = 0;
  const nlohmann::json waited = trainer.value("stop_waited", nlohmann::json());
  if (rule.is_null() || (waited.is_number_integer() && waited < rule["patience"].get<int64_t>())) trainer["stopped"] = false;
  const std::string why =
      joined(of_best.empty() ? of_stop : of_best, of_best.empty() || of_stop.empty() || of_best == of_stop ? "" : "; " + of_stop);
  if (forgotten.empty()) return {why, ""};
  std::string which;
  for (size_t i = 0; i < forgotten.size(); ++i) which += (i == 0 ? "" : i + 1 < forgotten.size() ? ", " : " and ") + forgotten[i];
  return {why, joined(why, ": earlier values are not compared with later ones, and ", which,
                      forgotten.size() > 1 ? " begin" : " begins", " anew with the next")};
}

}  // namespace halfstep::app
